import re

import numpy as np
import pytest
from bs4 import BeautifulSoup

from bayesloss_book.learning.proper_losses.slider import bills, forecast_slider


@pytest.fixture(scope="module")
def text():
    return forecast_slider(0.7)._repr_html_()


def test_bills_are_the_losses_written_out():
    u = np.linspace(0, 1, 11)[1:-1]
    by_hand = {"distance": (1 - u, u), "square": ((1 - u) ** 2, u**2)}
    by_hand["log"] = (-np.log(u), -np.log(1 - u))
    for name, two in bills(11).items():
        for one, expected in zip(two, by_hand[name], strict=True):
            np.testing.assert_allclose(one[1:-1], expected, atol=5.1e-5)  # four decimals travel


def test_script_draws_what_the_page_starts_with_and_moves(shown, text):
    """At 0.7 its curves are those of the page; at 0.3 the dots move."""
    elements, tab = BeautifulSoup(text, "html.parser"), shown(text)
    tab.locator("input").fill("0.5")
    tab.locator("input").fill("0.7")
    for g in elements.select("g[data-curve]"):
        drawn = tab.locator(f'[data-curve="{g["data-curve"]}"] path').get_attribute("d")
        theirs, ours = (np.array(re.findall(r"-?[\d.]+", d), float) for d in (drawn, g.path["d"]))
        np.testing.assert_allclose(theirs, ours, atol=0.11)  # a tenth is shown
    tab.locator("input").fill("0.3")
    best = tab.locator("[data-value=best]").text_content()
    assert best == "distance 0.00, square 0.30, log 0.30"
