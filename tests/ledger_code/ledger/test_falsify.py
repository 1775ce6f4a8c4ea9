import json

import nbformat
import numpy as np
import pytest
import torch

from paperledger.ledger import checks
from paperledger.ledger.falsify import FAULTS, _spoil, digest, falsify, falsify_page

CELL = """
half = 0.5 * whole
check_statement("wn-remark-3-1", {"two halves": (abs(2 * half - whole) < tolerance, "note")})
"""
NAMES = {"check_statement": checks.check_statement, "whole": 3.0, "tolerance": 1e-9}


def test_digests_are_those_of_every_python():
    """Trees of Python 3.12 have fields that 3.11 lacks, and 3.13 prints no empty ones."""
    assert digest("def f(x, *rest):\n    return [x]\n") == "5efd826e8657"


def test_a_wrong_number_is_found():
    found = falsify(CELL, NAMES, {"wn-remark-3-1": "holds"})
    assert found == {"wn-remark-3-1": ("2 * half", "1 % larger", "fails")}


def test_a_check_that_cannot_fail_has_none():
    cell = 'check_statement("wn-remark-3-1", {"itself": (whole == whole, str(whole))})'
    assert falsify(cell, NAMES, {"wn-remark-3-1": "holds"}) != {}  # one side is made wrong
    cell = 'check_statement("wn-remark-3-1", {"typed": (True, "surely")})'
    assert falsify(cell, NAMES, {"wn-remark-3-1": "holds"}) == {}


def test_a_tolerance_is_not_made_wrong():
    names = {"check_formula": checks.check_formula, "truth": np.ones(2), "size": lambda: 1e-9}
    cell = 'check_formula("wn-lemma-7", truth=[1.0], printed=[1.0], tolerance=size(), by="hand")'
    assert falsify(cell, names, {"wn-lemma-7": "holds"}) == {}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_faults_change_numbers_and_nothing_else(fault):
    if fault == "the same under every reading":
        assert _spoil({"a": 1.0, "b": 3.0}, FAULTS[fault], False) == {"a": 2.0, "b": 2.0}
        return
    for value in [2.0, np.array([2.0]), torch.tensor([2.0]), {"a": 2.0}, (2.0, "text", True)]:
        assert str(_spoil(value, FAULTS[fault], False)) != str(value)
    for value in (3, True, "text", None, np.array([1, 2]), torch.tensor([True])):
        assert str(_spoil(value, FAULTS[fault], False)) == str(value)
    assert _spoil(3, FAULTS["larger by 1"], True) == 4


def test_a_page_is_run_and_each_claim_falsified(tmp_path):
    book = tmp_path / "book"
    book.mkdir()
    sources = [
        "from paperledger.ledger.checks import check_statement\nwhole, tolerance = 3.0, 1e-9",
        CELL,
    ]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), book / "page.ipynb")
    found = falsify_page("page", book)
    assert list(found) == ["wn-remark-3-1"]
    assert found["wn-remark-3-1"].cell == digest(CELL + "# a comment")
    assert json.dumps(found["wn-remark-3-1"]._asdict())
