import json
import re
from pathlib import Path

import pytest
import yaml

from bayesloss_book.ledger import claims
from bayesloss_book.ledger.claims import (
    CORRECTIONS,
    NOT_YET,
    OURS,
    TRUE,
    VERDICTS,
    Claim,
    Finding,
    findings_in,
    ledger,
    numbers_in,
)

ROOT = Path(__file__).resolve().parents[3]
BOOK = ROOT / "book"


def disagreements(book: Path, entries: dict[str, Claim], pages: set[str]) -> list[str]:
    """What the ledger and the findings in a book's executed pages have against each other."""
    found: dict[str, list[tuple[str, Finding]]] = {}
    for notebook in sorted(book.rglob("*.ipynb")):
        page = str(notebook.relative_to(book).with_suffix(""))
        for finding in findings_in(notebook):
            found.setdefault(finding.id, []).append((page, finding))
    wrong = [f"{id}: checked, but not in the ledger" for id in found if id not in entries]
    for claim in entries.values():
        checks = found.get(claim.id, [])
        if claim.verdict == NOT_YET:
            wrong += [f"{claim.id}: checked on {page}, but {NOT_YET}" for page, _ in checks]
            continue
        if claim.page not in pages:
            wrong.append(f"{claim.id}: treated, but there is no page {claim.page}")
        if not checks:
            wrong.append(f"{claim.id}: {claim.verdict}, but no executed page checks it")
        for page, finding in checks:
            if page != claim.page:
                wrong.append(f"{claim.id}: checked on {page}, the ledger says {claim.page}")
            if finding.verdict != claim.verdict:
                wrong.append(f"{claim.id}: {finding.verdict} on {page}, not {claim.verdict}")
    return wrong


def pages_in_toc() -> set[str]:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    chapters = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    return {str(Path(file).relative_to("book").with_suffix("")) for file in chapters}


def test_ledger_and_executed_pages_agree():
    assert disagreements(BOOK, dict(ledger()), pages_in_toc()) == []


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


def test_ledger_is_in_order():
    entries = ledger().values()
    assert {entry.paper for entry in entries} == {"W&N", "LHG", OURS}
    for entry in entries:
        assert (entry.paper == OURS) == entry.id.startswith("own-")
        assert entry.paper != OURS or entry.verdict == "holds", entry.id  # or it is taken out
    assert all(entry.statement and entry.where and entry.page for entry in entries)
    assert all(entry.statement.count("$") % 2 == 0 for entry in entries)


def test_a_corrected_claim_says_what_is_corrected():
    graded = {id: entry.correction for id, entry in ledger().items() if entry.correction}
    corrected = {id for id, entry in ledger().items() if entry.verdict == "holds as corrected"}
    assert set(graded) == corrected
    assert set(graded.values()) == set(CORRECTIONS)


@pytest.mark.parametrize(
    ("verdict", "correction"),
    [("holds as corrected", ""), ("holds as corrected", "slip"), ("holds", "misprint")],
)
def test_a_grade_that_is_missing_or_unknown_is_refused(monkeypatch, verdict, correction):
    texts = dict.fromkeys(("paper", "kind", "where", "statement", "page"), "some")
    entry = {"id": "wn-x", "verdict": verdict, "correction": correction, **texts}
    monkeypatch.setattr(claims.yaml, "safe_load", lambda text: [entry])
    with pytest.raises(ValueError, match="wn-x: expected a correction of"):
        ledger.__wrapped__()


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
    printed, corrected = shown.index("right as printed"), shown.index("right as corrected")
    assert printed < shown.index("false") < corrected < shown.rindex("true")


def test_every_verdict_has_a_look_of_its_own():
    style = (BOOK / "_static" / "style.css").read_text("utf-8")
    signs = []
    for verdict in VERDICTS:
        name = re.escape("claim-" + verdict.replace(" ", "-"))
        assert re.search(rf"\.{name}\b[^}}]*{{ --verdict: ", style), verdict
        signs += re.findall(rf'\.{name} \.claim-verdict::before {{ content: "(.) "', style)
    assert len(set(signs)) == len(VERDICTS)


def _row(what: str, ok: bool) -> dict:
    return {"what": what, "measured": "1", "expected": TRUE, "ok": ok}
