"""This book's ledger is in order, and its executed pages agree with it."""

import re
from pathlib import Path

import yaml

from paperledger.configuration import configuration
from paperledger.ledger.claims import CORRECTIONS, VERDICTS, disagreements, ledger

ROOT = Path(__file__).resolve().parents[3]
BOOK = ROOT / "book"
OWN = configuration().own


def pages_in_toc() -> set[str]:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    chapters = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    return {str(Path(file).relative_to("book").with_suffix("")) for file in chapters}


def test_ledger_and_executed_pages_agree():
    assert disagreements(BOOK, dict(ledger()), pages_in_toc()) == []


def test_ledger_is_in_order():
    entries = ledger().values()
    assert {entry.paper for entry in entries} == {"W&N", "LHG", OWN}
    for entry in entries:
        assert (entry.paper == OWN) == entry.id.startswith("own-")
        assert entry.paper != OWN or entry.verdict == "holds", entry.id  # or it is taken out
    assert all(entry.statement and entry.where and entry.page for entry in entries)
    assert all(entry.statement.count("$") % 2 == 0 for entry in entries)


def test_a_corrected_claim_says_what_is_corrected():
    graded = {id: entry.correction for id, entry in ledger().items() if entry.correction}
    corrected = {id for id, entry in ledger().items() if entry.verdict == "holds as corrected"}
    assert set(graded) == corrected
    assert set(graded.values()) == set(CORRECTIONS)


def test_the_errata_are_grouped_by_what_is_corrected():
    _, *groups = re.split(r"^## ", (BOOK / "reference/errata.md").read_text("utf-8"), flags=re.M)
    gravest = [*CORRECTIONS, "fails"].index
    shown = []
    for group in groups:
        _, *entries = re.split(r"^### ", group, flags=re.M)
        found = [re.findall(r'findings\["(.+?)"\]', entry) for entry in entries]
        graded = [[ledger()[id].correction or ledger()[id].verdict for id in ids] for ids in found]
        shown.append({max(kinds, key=gravest) for kinds in graded if kinds})
    assert shown == [{kind} for kind in ("fails", *reversed(CORRECTIONS))]


def test_every_numbered_item_of_the_papers_is_in_the_ledger():
    wanted = [f"wn-equation-{n}" for n in range(1, 21)]
    wanted += [f"wn-{kind}" for kind in ("definition-1", "definition-2", "lemma-1", "lemma-6")]
    wanted += [f"wn-theorem-{n}" for n in ("2-i", "2-ii", "3", "4", "5", "8")] + ["wn-lemma-7"]
    wanted += [f"wn-figure-{n}" for n in range(1, 10)] + ["wn-table-1", "wn-table-2"]
    wanted += [f"lhg-equation-{n}" for n in range(1, 36)]
    wanted += [f"lhg-table-{n}" for n in range(1, 5)] + ["lhg-figure-1"]
    covered = set(ledger())
    # An id may stand for two equations printed as one, such as wn-equation-17-18.
    missing = [w for w in wanted if not any(c == w or c.startswith(w + "-") for c in covered)]
    text = " ".join(entry.where for entry in ledger().values())
    missing = [m for m in missing if f"({m.rsplit('-', 1)[1]})" not in text]
    assert missing == []


def test_every_verdict_has_a_look_of_its_own():
    style = (BOOK / "_static" / "style.css").read_text("utf-8")
    signs = []
    for verdict in VERDICTS:
        name = re.escape("claim-" + verdict.replace(" ", "-"))
        assert re.search(rf"\.{name}\b[^}}]*{{ --verdict: ", style), verdict
        signs += re.findall(rf'\.{name} \.claim-verdict::before {{ content: "(.) "', style)
    assert len(set(signs)) == len(VERDICTS)
