import json
import re
from functools import cache

import pytest
from bs4 import BeautifulSoup
from scipy.stats import norm

from bayesloss_book.calibrating.decision_theory.slider import power_plant_slider
from bayesloss_book.problems.power_plant import PowerPlant, approximations

PLANT = PowerPlant()
TEXT = cache(lambda: power_plant_slider(PLANT, approximations(PLANT))._repr_html_())


@pytest.mark.parametrize(
    ("critical", "cost", "decisions"),
    [
        (345, 5, ["shut down", "stay on", "stay on", "shut down"]),
        (345, 2, ["shut down", "stay on", "shut down", "shut down"]),
        (312, 20, ["stay on", "stay on", "shut down", "stay on"]),
    ],
)
def test_script_decides_as_the_package_does(shown, critical, cost, decisions):
    tab = shown(TEXT())
    tab.locator("[data-slider=critical]").fill(str(critical))
    tab.locator("[data-slider=cost]").fill(str(cost))
    assert [tab.locator(f"[data-decision='{k}']").text_content() for k in range(4)] == decisions
    truth = 100 * float(PLANT.tail(critical))
    for k, decision in enumerate(decisions):
        wrong = decision != decisions[0]
        found = float(tab.locator(f"[data-divergence='{k}']").text_content())
        assert found == pytest.approx(abs(truth - cost) if wrong else 0, abs=0.006)
    path = tab.locator("[data-curve='3']").get_attribute("d")
    height = float(re.match(r"M0.0 ([\d.]+)L", path)[1])
    data = json.loads(BeautifulSoup(TEXT(), "html.parser").div["data-plant"])
    density = norm.pdf(220, *data["fits"][critical - data["first"]])
    assert height == pytest.approx(170 * (1 - density / 0.028), abs=0.06)
