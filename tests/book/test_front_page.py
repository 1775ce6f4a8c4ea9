"""The front page says what the book is, and shows its figure, without scrolling."""

import browser as tools
import notebooks
import pytest

from paperledger.ledger.claims import of_papers

FRONT = notebooks.ROOT / "_build" / "html" / "book" / "index.html"
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1300, "height": 900}
BUTTONS = ["Read beside the paper", "Learn", "Use it on my data", "What was wrong in print"]


@pytest.fixture(params=["light", "dark"])
def tab(browser, request):
    with browser.new_context(offline=True, color_scheme=request.param) as context:
        page = context.new_page()
        page.goto(FRONT.as_uri())
        tools.typeset(page)
        yield page


def bottom(tab, selector):
    """The lowest edge of what is found, from the top of the page."""
    boxes = [found.bounding_box() for found in tab.locator(selector).all()]
    assert boxes
    return max(box["y"] + box["height"] for box in boxes)


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_what_the_book_is_and_the_ways_in_are_in_the_first_screen(tab, size):
    tab.set_viewport_size(size)
    first = tab.locator(".bd-article h1 + p").inner_text()
    papers = ("Walder and Nock", "Lacoste-Julien, Huszár and Ghahramani")
    for said in (*papers, f"{len(of_papers())} claims"):
        assert said in first
    assert tab.locator(".ways .sd-btn").all_inner_texts() == BUTTONS
    assert bottom(tab, ".bd-article h1 + p, .ways .sd-btn") <= size["height"]


def test_the_figure_stands_beside_its_costs_in_the_first_screen_of_a_desktop(tab):
    tab.set_viewport_size(DESKTOP)
    assert bottom(tab, "#cost-slider input, #cost-slider svg, #cost-slider table") <= 900
    picture = tab.locator("#cost-slider svg").first.bounding_box()
    table = tab.locator("#cost-slider table").bounding_box()
    assert picture["x"] + picture["width"] <= table["x"]
    assert abs(picture["y"] - table["y"]) < 50
