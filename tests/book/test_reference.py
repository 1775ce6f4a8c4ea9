import re

import notebooks
import pytest

from paperledger.ledger.claims import ledger

BUILT = notebooks.ROOT / "_build" / "html" / "book"


def read(page: str) -> str:
    return (BUILT / f"{page}.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted({claim.page for claim in ledger().values()}))
def test_every_claim_has_its_place_on_its_page(page):
    anchors = set(re.findall(r'id="([^"]+)"', read(page)))
    wanted = {f"claim-{claim.id}" for claim in ledger().values() if claim.page == page}
    assert not wanted - anchors


def test_the_scorecard_leads_to_every_claim():
    links = set(re.findall(r'href="([^"]+)"', read("reference/scorecard")))
    assert not {f"../{c.page}.html#claim-{c.id}" for c in ledger().values()} - links


def rows_without_links(html: str) -> list[str]:
    """Return the rows of the notation's tables that define a symbol or name code without a link.

    A row has a symbol, its meanings, and, in the tables by theme, a definition and a name in code.
    """
    wrong = []
    for table in re.findall(r'<table class="notation.*?</table>', html, re.DOTALL):
        by_theme = "in code" in table.partition("</thead>")[0]
        for row in re.findall(r"<tr.*?</tr>", table.partition("</thead>")[2], re.DOTALL):
            cells = re.findall(r"<td.*?</td>", row, re.DOTALL)
            linked = ["<a " in cell for cell in cells]
            if not (all(linked[2:]) if by_theme else any(linked)):
                wrong.append(re.sub(r"<[^>]+>", "", cells[0]).strip())
    return wrong


def test_every_symbol_is_linked():
    html = read("reference/notation")
    assert html.count('<table class="notation') >= 6  # the guard finds its tables
    assert rows_without_links(html) == []


def test_guard_sees_a_symbol_without_link():
    head = '<table class="notation docutils"><thead><tr><th>symbol</th>{}</tr></thead><tbody>'
    link = '<td><a href="x">1</a></td>'
    none = "<td>1</td>"
    by_theme = head.format("<th>in code</th>")
    end = "</tbody></table>"
    assert rows_without_links(f"{by_theme}<tr><td>a</td>{none}{link}{link}</tr>{end}") == []
    assert rows_without_links(f"{by_theme}<tr><td>a</td>{link}{link}{none}</tr>{end}") == ["a"]
    clash = head.format("<th>in LHG</th>")
    assert rows_without_links(f"{clash}<tr><td>b</td>{none}{link}{none}</tr>{end}") == []
    assert rows_without_links(f"{clash}<tr><td>b</td>{none}{none}{none}</tr>{end}") == ["b"]
