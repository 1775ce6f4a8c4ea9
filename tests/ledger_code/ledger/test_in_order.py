from pathlib import Path

import pytest

from paperledger.ledger import in_order
from paperledger.ledger.claims import Claim, Finding, of_papers
from paperledger.ledger.in_order import (
    beside,
    found_in_a_line,
    section,
    sections,
    where_in,
    with_verdicts,
)
from paperledger.ledger.scorecard import all_findings

BOOK = Path(__file__).resolve().parents[3] / "book"


def claim(where, id="wn-x", verdict="holds"):
    return Claim(id, "W&N", "equation", where, "One.", "part/page", verdict)


@pytest.mark.parametrize(
    ("where", "place", "inside"),
    [
        ("Section 4.1, equation (11)", "Section 4.1", "Equation (11)"),
        ("Section 3", "Section 3", "Text"),
        ("Abstract, Sections 1 and 6", "Abstract", "Sections 1 and 6"),
        ("Section 4.3 and Appendix F", "Section 4.3", "Section 4.3 and Appendix F"),
        ("Appendix D.1, equation (17)", "Appendix D.1", "Equation (17)"),
        ("Appendix D, Figure 3", "Appendix D", "Figure 3"),
        ("Appendix, Figure 4", "Appendix", "Figure 4"),
        ("Appendix 7.2", "Appendix 7.2", "Text"),
        ("Broader Impact", "Broader Impact", "Text"),
    ],
)
def test_a_place_is_a_section_and_what_is_in_it(where, place, inside):
    assert (section(claim(where)), where_in(claim(where))) == (place, inside)


def test_a_place_without_a_section_is_refused():
    with pytest.raises(ValueError, match=r"wn-x: expected a place that begins .*, got 'Page 3'"):
        section(claim("Page 3"))


def test_every_claim_of_the_papers_is_in_one_section_in_the_order_of_the_ledger():
    for paper in ("W&N", "LHG"):
        of_paper = [claim.id for claim in of_papers() if claim.paper == paper]
        by_section = [claim.id for claims in sections(paper).values() for claim in claims]
        assert sorted(by_section) == sorted(of_paper)
        for claims in sections(paper).values():
            places = [of_paper.index(claim.id) for claim in claims]
            assert places == sorted(places)


def row(what, measured, expected="must be true", ok=True):
    return {"what": what, "measured": measured, "expected": expected, "ok": ok}


@pytest.mark.parametrize(
    ("check", "rows", "said"),
    [
        ("statement", [row("it rises", "by 3")], "It rises: by 3."),
        ("statement", [row("a", "1"), row("b", "2")], "A: 1 (1 more line)."),
        ("statement", [row("a", "1"), row("b", "2", ok=False)], "Not so: b: 2 (1 more line)."),
        (
            "formula",
            [
                row("the formula as printed", "65%", "a sum", False),
                row("the formula corrected", "within 1e-9", "a sum"),
            ],
            "As printed: off by 65%; corrected: within 1e-9. Compared with a sum.",
        ),
        (
            "numbers",
            [row("a", "1", "1 ± 0.1"), row("b", "2", "1 ± 0.1", False), row("c", "3")],
            "1 of 2 numbers agree within the tolerance.",
        ),
        (
            "setting",
            [row("C = 1", "-0.5", "0 ± 1"), row("none", "2", "0 ± 1")],
            "2 readings: from -0.5 (C = 1) to 2 (none).",
        ),
    ],
)
def test_what_was_found_is_a_line(check, rows, said):
    assert found_in_a_line(Finding("wn-x", "holds", rows, check=check)) == said


@pytest.fixture
def one_claim(monkeypatch):
    """A paper with one claim, which its check found to be false."""
    entry = claim("Section 2, equation (3)", verdict="fails")
    monkeypatch.setattr(in_order, "ledger", lambda: {"wn-x": entry})
    rows = [row("$a < b$", "3 of 4", ok=False)]
    return {"wn-x": ("part/page", Finding("wn-x", "fails", rows, "It is greater."))}


def test_a_section_says_of_each_claim_what_it_is_and_where_it_is_checked(one_claim):
    table = beside(
        "W&N", "Section 2", {"wn-x": "A is less."}, one_claim, "..", {"wn-x": "<b>!</b>"}
    )
    shown = table._repr_html_()
    assert '<a href="../part/page.html#claim-wn-x">Equation (3)</a>' in shown
    for part in (
        "A is less.",
        ">fails<",
        "Not so: ",
        r"\(a &lt; b\)",
        "It is greater.",
        "<b>!</b>",
    ):
        assert part in shown
    assert 'class="beside-claim beside-numbered" id="wn-x"' in shown
    assert repr(table) == "Equation (3): A is less. fails. Not so: $a < b$: 3 of 4."


def test_an_unknown_section_and_a_claim_without_a_line_are_refused(one_claim):
    with pytest.raises(ValueError, match=r"expected a section of W&N, .*'Section 2'.*'Section 9'"):
        beside("W&N", "Section 9", {"wn-x": "A."}, one_claim, "..")
    with pytest.raises(ValueError, match=r"expected a line for every claim, none for \['wn-x'\]"):
        beside("W&N", "Section 2", {}, one_claim, "..")


def test_all_findings_of_the_book_make_a_line():
    found = [found_in_a_line(finding) for _, finding in all_findings(BOOK).values()]
    assert not [line for line in found if not line.endswith(".") or "\n" in line]


def test_claims_are_chosen_by_their_verdicts_with_their_whole_place(one_claim):
    shown = with_verdicts("W&N", ["fails"], {"wn-x": "A is less."}, one_claim, "..")
    assert ">Section 2, equation (3)</a>" in shown._repr_html_()
    none = with_verdicts("W&N", ["holds"], {"wn-x": "A is less."}, one_claim, "..")
    assert "beside-claim" not in none._repr_html_()
