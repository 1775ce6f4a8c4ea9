"""The pages beside the print have all of it, and lead to where it is checked."""

import re

import notebooks
import pytest

from paperledger.ledger.claims import of_papers

BUILT = notebooks.ROOT / "_build" / "html" / "book" / "reference"
PAGES = {"W&N": "beside_walder_nock", "LHG": "beside_lacoste_julien"}


def read(page):
    return (BUILT / f"{page}.html").read_text("utf-8")


@pytest.mark.parametrize("paper", PAGES)
def test_every_claim_stands_once_in_the_order_of_the_print_with_a_link_to_its_check(paper):
    page = read(PAGES[paper])
    claims = [claim for claim in of_papers() if claim.paper == paper]
    shown = re.findall(r'class="beside-claim[^"]*" id="([^"]+)"', page)
    assert sorted(shown) == sorted(claim.id for claim in claims)
    links = set(re.findall(r'class="beside-place"><a href="([^"]+)"', page))
    assert links == {f"../{claim.page}.html#claim-{claim.id}" for claim in claims}


@pytest.mark.parametrize("paper", PAGES)
def test_equations_stand_in_the_order_of_their_numbers(paper):
    page = read(PAGES[paper])
    numbers = re.findall(r'class="beside-place"><a [^>]+>Equation \((\d+)\)', page)
    assert len(numbers) >= 20
    assert numbers == sorted(numbers, key=int)


def test_figures_and_tables_have_a_place_each():
    page = read("figures_and_tables")
    wanted = {claim.id for claim in of_papers() if claim.kind in ("figure", "table")}
    assert wanted <= set(re.findall(r'class="beside-large" id="([^"]+)"', page))
    numbers = page.split('class="dataframe numbers"')[1:]
    counts = [
        len(re.findall(r"<td>[\d.,]+</td>", table.partition("</table>")[0])) for table in numbers
    ]
    assert counts == [32 * 4, 8 * 6, 15 * 9]  # Tables 1 and 2 of W&N, Table 4 of LHG


@pytest.mark.parametrize("page", ["beside_walder_nock", "figures_and_tables"])
def test_figures_without_levels_are_said_to_be_judged_without(page):
    assert read(page).count("Judged without its levels.") == 2


def test_a_reader_with_the_paper_finds_them_first():
    files = notebooks.toc_files()
    assert files[:4] == ["book/index.ipynb"] + [
        f"book/reference/{page}.ipynb" for page in (*PAGES.values(), "figures_and_tables")
    ]
