"""Each claim of this book has a value that, made wrong, changes its verdict."""

from pathlib import Path

import nbformat

from paperledger.ledger.claims import MIME
from paperledger.ledger.falsify import digest, falsifiers
from paperledger.pages import notebooks

BOOK = Path(__file__).resolve().parents[3] / "book"
# No single wrong value was found within the time of a search: what these compare are whole
# decisions, signs and orders, or several values that go wrong together. None may be added.
NOT_BY_ONE_VALUE = {
    "wn-finite-m-parametric",
    "wn-support-representable",
    "lhg-choice-rule",
    "lhg-easy-cases",
    "lhg-log-linearisation",
    "lhg-posterior-optimal",
    "lhg-reference-risk",
    "lhg-risk-gain",
    "lhg-table-1",
}


def check_cells():
    """From each claim to its page and the digest of the cell that checks it."""
    for page, path in notebooks(BOOK).items():
        for cell in nbformat.read(path, as_version=4).cells:
            for output in cell.get("outputs", []):
                if finding := output.get("data", {}).get(MIME):
                    yield finding["id"], page, digest(cell.source)


def test_every_claim_has_a_falsifier_found_with_its_present_cell():
    stored = falsifiers()
    wrong = []
    for id, page, cell in check_cells():
        if id in NOT_BY_ONE_VALUE:
            continue
        if id not in stored:
            wrong.append(f"{id}: no wrong number changes its verdict")
        elif (stored[id].page, stored[id].cell) != (page, cell):
            wrong.append(f"{id}: its cell has changed; run the module for {page} again")
    assert not wrong, "\n".join(wrong)


def test_no_claim_is_excused_that_has_a_falsifier():
    assert not NOT_BY_ONE_VALUE & set(falsifiers())
