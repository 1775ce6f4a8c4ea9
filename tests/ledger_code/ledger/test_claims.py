import json
from pathlib import Path

import pytest
import yaml

from paperledger.ledger.claims import (
    NOT_YET,
    TRUE,
    Claim,
    Finding,
    disagreements,
    findings_in,
    ledger,
    numbers_in,
)


def small_book(folder: Path, *findings: Finding, page: str = "part/page") -> Path:
    path = folder / f"{page}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    outputs = [{"output_type": "display_data", "data": f._repr_mimebundle_()} for f in findings]
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "outputs": outputs}]}))
    return folder


def claim(id: str = "wn-table-1", verdict: str = "holds", page: str = "part/page") -> Claim:
    return Claim(id, "W&N", "table", "somewhere", "One is one.", page, verdict)


FOUND = Finding("wn-table-1", "holds", [])


def test_guard_passes_a_book_in_order(tmp_path):
    entries = {"wn-table-1": claim(), "wn-table-2": claim("wn-table-2", NOT_YET)}
    assert disagreements(small_book(tmp_path, FOUND), entries, {"part/page"}) == []


@pytest.mark.parametrize(
    ("entry", "findings", "pages", "said"),
    [
        (claim(), [], {"part/page"}, "no executed page checks it"),
        (claim(), [FOUND], set(), "there is no page"),
        (claim(page="part/other"), [FOUND], {"part/other"}, "the ledger says part/other"),
        (claim(verdict="fails"), [FOUND], {"part/page"}, "holds on part/page, not fails"),
        (claim(verdict=NOT_YET), [FOUND], {"part/page"}, f"but {NOT_YET}"),
        (claim("wn-table-2", NOT_YET), [FOUND], {"part/page"}, "not in the ledger"),
    ],
)
def test_guard_sees(tmp_path, entry, findings, pages, said):
    wrong = disagreements(small_book(tmp_path, *findings), {entry.id: entry}, pages)
    assert any(said in line for line in wrong), wrong


@pytest.mark.parametrize(
    ("verdict", "correction"),
    [("holds as corrected", ""), ("holds as corrected", "slip"), ("holds", "misprint")],
)
def test_a_grade_that_is_missing_or_unknown_is_refused(companion, verdict, correction):
    write(companion, entry() | {"verdict": verdict, "correction": correction})
    with pytest.raises(ValueError, match="a-x: expected a correction of"):
        ledger()


@pytest.fixture
def companion(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def entry() -> dict[str, str]:
    texts = dict.fromkeys(("paper", "kind", "where", "statement", "page"), "some")
    return {"id": "a-x", "verdict": "holds", **texts}


def write(companion: Path, *entries: dict[str, str]) -> None:
    (companion / "claims.yml").write_text(yaml.safe_dump(list(entries)), "utf-8")


def test_claims_are_of_the_papers_that_are_named(companion):
    write(companion, entry())
    assert list(ledger()) == ["a-x"]  # where no paper is named
    for papers in ('own = "some"', '[papers]\nsome = "Some paper"'):
        (companion / "paperledger.toml").write_text(papers, "utf-8")
        assert list(ledger()) == ["a-x"]
    (companion / "paperledger.toml").write_text('[papers]\nother = "Another paper"', "utf-8")
    with pytest.raises(ValueError, match="a-x: expected a paper of .* got 'some'"):
        ledger()


def test_an_id_and_a_verdict_that_cannot_be_are_refused_as_soon_as_they_are_written(companion):
    write(companion, entry())
    assert list(ledger()) == ["a-x"]
    write(companion, entry(), entry())
    with pytest.raises(ValueError, match="two claims 'a-x'"):
        ledger()
    write(companion, entry() | {"verdict": "so so"})
    with pytest.raises(ValueError, match="expected a verdict of"):
        ledger()


def test_outside_of_a_companion_it_is_said_where_claims_are_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"claims.yml, got no such file; paperledger.toml"):
        ledger()


def test_finding_survives_the_notebook(tmp_path):
    book = small_book(tmp_path, Finding("wn-table-1", "holds", [_row("$a < b$", True)], "so"))
    assert list(findings_in(book / "part/page.ipynb")) == [
        Finding("wn-table-1", "holds", [_row("$a < b$", True)], "so")
    ]


def test_numbers_are_read_as_they_were_glued(tmp_path):
    told = {"n": "3", "mean": "'1.5 ± 0.2'"}
    outputs = [
        {
            "data": {"application/papermill.record/text/plain": text},
            "metadata": {"scrapbook": {"name": name}},
        }
        for name, text in told.items()
    ]
    cells = [{"outputs": [*outputs, {"text": "printed"}]}, {"source": "# Text"}]
    (tmp_path / "page.ipynb").write_text(json.dumps({"cells": cells}), "utf-8")
    assert numbers_in(tmp_path / "page.ipynb") == {"n": 3, "mean": "1.5 ± 0.2"}


@pytest.mark.parametrize("part", ["html", "plain"])
def test_nothing_that_is_meant_to_be_false_is_said_to_be_expected(part):
    rows = [
        _row("$a < b$", False) | {"group": "If it is right as printed"},
        _row("$a > b$", True) | {"group": "If it is right as corrected"},
    ]
    shown = getattr(Finding("wn-table-1", "holds as corrected", rows), part)()
    assert "expected" not in shown
    printed = shown.index("right as printed")
    corrected = shown.index("right as corrected")
    assert printed < shown.index("false") < corrected < shown.rindex("true")


def _row(what: str, ok: bool) -> dict:
    return {"what": what, "measured": "1", "expected": TRUE, "ok": ok}
