import re
from pathlib import Path

import pytest

from paperledger.ledger import checks, under_specified
from paperledger.ledger.checks import check_setting, check_statement
from paperledger.ledger.claims import Claim, ledger
from paperledger.ledger.scorecard import all_findings
from paperledger.ledger.under_specified import settings_table, sway

BOOK = Path(__file__).resolve().parents[3] / "book"
ENTRY = Claim(
    "wn-x", "W&N", "table", "Section 9", "One.", "part/page", "under-specified", doubt="No $c$."
)


@pytest.fixture
def finding(monkeypatch):
    """A setting under four readings, checked as a page does it."""
    for module in (checks, under_specified):
        monkeypatch.setattr(module, "ledger", lambda: {"wn-x": ENTRY})
    outcomes = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 23.0}
    return check_setting("wn-x", outcomes, tolerance=0.5, note="In metres.")


def test_sway_reads_what_the_check_writes(finding):
    results, middle, half = sway(finding)
    assert results == {"a": 1.0, "b": 2.0, "c": 3.0, "d": 23.0}
    assert (middle, half) == (2.5, 0.25)


def test_table_has_gap_choice_and_range(finding):
    shown = settings_table(
        "W&N", {"wn-x": "We take $c = 1$."}, {"wn-x": ("part/page", finding)}, ".."
    )
    html = shown._repr_html_()
    said = "from 1 (a) to 23 (d): 44 times what would not matter"  # 22 over a tolerance of 0.5
    assert repr(shown) == f"wn-x: {said}"
    assert said in html
    assert said in shown._repr_markdown_()
    assert 'href="../part/page.html#claim-wn-x"' in html
    assert r"No <span" in html
    assert r"\(c = 1\)" in html
    assert "In metres." in html
    assert html.count("<circle") == 4


def test_dots_and_band_lie_on_one_scale(finding):
    html = settings_table("W&N", {"wn-x": ""}, {"wn-x": ("part/page", finding)}, "..")._repr_html_()
    dots = [float(x) for x in re.findall(r'circle cx="([\d.]+)"', html)]
    left, width = map(float, re.search(r'rect x="([\d.]+)" y="3" width="([\d.]+)"', html).groups())
    scale = (dots[3] - dots[0]) / 22
    assert dots == pytest.approx([dots[0] + scale * k for k in (0, 1, 2, 22)], abs=0.1)
    assert left == pytest.approx(dots[0] + scale * 1.25, abs=0.1)
    assert width == pytest.approx(scale * 0.5, abs=0.2)


@pytest.mark.parametrize("choices", [{}, {"wn-x": "", "wn-y": ""}])
def test_every_setting_needs_its_choice(finding, choices):
    with pytest.raises(ValueError, match="expected a choice for each"):
        settings_table("W&N", choices, {"wn-x": ("part/page", finding)}, "..")


def test_a_statement_is_no_setting(finding, monkeypatch):
    entry = Claim("wn-s", "W&N", "table", "", "One.", "part/page", "holds")
    monkeypatch.setattr(checks, "ledger", lambda: {"wn-s": entry})
    with pytest.raises(ValueError, match="is no setting"):
        sway(check_statement("wn-s", {"one": (True, "1")}))


def test_every_under_specified_claim_is_a_setting_with_a_doubt():
    findings = all_findings(BOOK)
    for claim in ledger().values():
        if claim.verdict == "under-specified":
            assert claim.doubt, claim.id
            assert len(sway(findings[claim.id][1])[0]) > 1, claim.id
