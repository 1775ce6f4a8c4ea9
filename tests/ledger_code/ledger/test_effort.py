from pathlib import Path

import pytest

from paperledger.ledger import effort as module
from paperledger.ledger.claims import Claim, Finding
from paperledger.ledger.effort import effort
from paperledger.stores.results import run_cells

PAGES = ["part/one", "part/two"]


def square(n: int) -> dict[str, int]:
    return {"square": n**2}


def claim(id, page, paper="A"):
    return Claim(id, paper, "equation", "Section 1", "One.", page, "holds")


def test_a_row_a_page_counts_claims_comparisons_and_what_was_measured(tmp_path, monkeypatch):
    claims = [claim("a", "part/one"), claim("b", "part/one"), claim("c", "part/two")]
    monkeypatch.setattr(module, "of_papers", lambda: [*claims, claim("d", "part/one", "B")])
    line = {"what": "x", "measured": "1", "expected": "must be true", "ok": True}
    found = {
        id: ("", Finding(id, "holds", [line] * n))
        for id, n in zip("abcd", (1, 2, 3, 9), strict=True)
    }
    run_cells(square, [{"n": 2}, {"n": 3}], tmp_path, "numbers")
    monkeypatch.setattr("paperledger.stores.rerun._page", lambda function, known: "part/two")
    table = effort("A", found, Path(tmp_path), PAGES)
    assert list(table.index) == ["part/one", "part/two", "all"]
    assert table["claims"].to_list() == [2, 1, 3]
    assert table["comparisons"].to_list() == [3, 3, 6]
    assert table["stored rows"].to_list() == [0, 2, 2]
    hours = table["core hours"]
    assert hours["part/one"] == 0
    assert hours["all"] == pytest.approx(hours["part/two"])
