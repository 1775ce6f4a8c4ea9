import re
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from paperledger.ledger import front_page
from paperledger.ledger.claims import VERDICTS, Claim, Finding, of_papers
from paperledger.ledger.front_page import MARKS, Headline, draw_verdicts, headlines
from paperledger.ledger.scorecard import all_findings

BOOK = Path(__file__).resolve().parents[3] / "book"


def test_every_verdict_has_its_own_colour_and_shape():
    assert set(MARKS) == set(VERDICTS)
    assert len(set(MARKS.values())) == len(VERDICTS)
    assert len({shape for _, shape in MARKS.values()}) == len(VERDICTS)


def test_a_verdict_has_one_colour_on_the_figure_and_on_chips():
    style = (BOOK / "_static" / "style.css").read_text("utf-8")
    for verdict, (colour, _) in MARKS.items():
        chip = verdict.replace(" ", "-")
        name = re.search(
            rf"\.claim-{chip}(?:, [^{{]*)? {{ --verdict: var\((--verdict-\w+)\)", style
        )[1]
        assert re.search(rf"{name}: (#\w+);", style)[1] == colour


def test_one_mark_a_claim():
    pages = dict.fromkeys(claim.page for claim in of_papers())
    figure = draw_verdicts({page: page for page in pages} | {"guide/cluster": "no claims"})
    (axes,) = figure.axes
    drawn = Counter()
    for line in axes.lines:
        for y in line.get_ydata():
            drawn[line.get_marker(), int(y)] += 1
    shapes = {verdict: shape for verdict, (_, shape) in MARKS.items()}
    rows = {page: row for row, page in enumerate(pages)}
    assert drawn == Counter((shapes[c.verdict], rows[c.page]) for c in of_papers())
    assert [text.get_text() for text in axes.get_yticklabels()] == list(pages)
    plt.close(figure)


NUMBERS = [
    {"what": "GP", "measured": "7.25", "expected": "3.5\u00a0±\u00a00.1", "ok": False},
    {"what": "ISGP", "measured": "1", "expected": "1\u00a0±\u00a00.1", "ok": True},
    {"what": "the order", "measured": "as in print", "expected": "true", "ok": True},
]
SETTING = [
    {"what": w, "measured": m, "expected": "2.5 ± 0.1", "ok": False}
    for w, m in {"a": "10", "b": "9.5", "c": "-3"}.items()
]


@pytest.mark.parametrize(
    ("verdict", "rows", "line", "printed", "ours"),
    [
        ("not reproduced", NUMBERS, "GP", "3.5\u00a0±\u00a00.1", "7.25"),
        ("not reproduced", NUMBERS, "the order", "the order", "as in print"),
        ("not reproduced", NUMBERS, None, "2 numbers", "1 within the tolerance"),
        ("under-specified", SETTING, None, "left open", "-3 to 10"),
    ],
)
def test_headline(monkeypatch, verdict, rows, line, printed, ours):
    entry = Claim("wn-x", "W&N", "table", "Section 9", "One.", "part/page", verdict)
    monkeypatch.setattr(front_page, "ledger", lambda: {"wn-x": entry})
    check = "setting" if verdict == "under-specified" else "numbers"
    findings = {"wn-x": ("part/page", Finding("wn-x", verdict, rows, check=check))}
    shown = headlines({"wn-x": Headline("what it is", line)}, findings, ".")
    assert repr(shown) == f"W&N: what it is: in print {printed}; here {ours}; {verdict}"
    html = shown._repr_html_()
    assert f"<td>{printed}</td><td>{ours}</td>" in html
    assert verdict in html
    assert '<a href="./part/page.html#claim-wn-x">W&amp;N: what it is</a>' in html


def test_a_line_that_is_gone_is_an_error():
    with pytest.raises(ValueError, match="wn-lemma-7 has no line 'nonsense'"):
        headlines({"wn-lemma-7": Headline("the mean", "nonsense")}, all_findings(BOOK), ".")


def test_what_was_found_cannot_be_typed():
    with pytest.raises(ValueError, match="wn-lemma-7: expected a place"):
        headlines({"wn-lemma-7": Headline("the mean", ours="never")}, all_findings(BOOK), ".")
