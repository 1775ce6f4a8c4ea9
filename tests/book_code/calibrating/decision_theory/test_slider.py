"""The sliders of the power plant: what the page carries, and what the script makes of it."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from bs4 import BeautifulSoup
from scipy.stats import norm

from bayesloss_book.calibrating.decision_theory.slider import power_plant_slider
from bayesloss_book.power_plant import PowerPlant, approximations

PLANT = PowerPlant()
FITS = approximations(PLANT)
TEXT = power_plant_slider(PLANT, FITS)._repr_html_()


def test_carries_everything_it_needs():
    assert not re.search(r"https?:|<img|import|fetch|src=", TEXT)
    assert len(TEXT) < 30_000


def test_has_labelled_sliders_and_a_described_picture():
    elements = BeautifulSoup(TEXT, "html.parser")
    sliders = elements.find_all("input")
    assert [slider["data-slider"] for slider in sliders] == ["critical", "cost"]
    assert all(slider["type"] == "range" for slider in sliders)
    assert len(elements.find_all("label")) == 2
    assert all(
        values.get("aria-label") or values.get("aria-hidden") for values in elements.find_all("svg")
    )


def test_tails_are_those_of_the_distributions():
    data = json.loads(BeautifulSoup(TEXT, "html.parser").div["data-plant"])
    row = 350 - data["first"]
    tails, (mean, deviation) = data["tails"][row], data["fits"][row]
    fits = [np.round(FITS[name], 4) for name in list(FITS)[:2]]  # to the digits that the search has
    expected = [float(PLANT.tail(350)), *(norm.sf(350, *fit) for fit in fits)]
    assert tails[:3] == pytest.approx(expected, rel=1e-5)
    assert tails[3] == tails[0]
    # Two decimals of a degree
    assert norm.sf(350, mean, deviation) == pytest.approx(tails[0], abs=1e-4)


def test_refuses_a_temperature_that_the_slider_has_not():
    with pytest.raises(ValueError, match="expected a critical temperature of 310 to 375"):
        power_plant_slider(PowerPlant(critical=400.0), FITS)


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the script outside a browser")
@pytest.mark.parametrize(
    ("critical", "cost", "decisions"),
    [
        (345, 5, ["shut down", "stay on", "stay on", "shut down"]),
        (345, 2, ["shut down", "stay on", "shut down", "shut down"]),
        (312, 20, ["stay on", "stay on", "shut down", "stay on"]),
    ],
)
def test_script_decides_as_the_package_does(critical, cost, decisions):
    """Run the script on a page of stubs, and read what it writes."""
    script = re.search(r"<script>(.*)</script>", TEXT, re.DOTALL)[1]
    data = BeautifulSoup(TEXT, "html.parser").div["data-plant"]
    stub = f"""
      const values = {{critical: {critical}, cost: {cost}}}, stubs = {{}};
      const box = {{
        dataset: {{plant: {json.dumps(data)}}},
        addEventListener: () => 0,
        querySelector: (s) => stubs[s] ??= {{
          value: values[(s.match(/slider=(\\w+)/) || [])[1]],
          setAttribute: function (name, v) {{ this[name] = v; }},
        }},
      }};
      const document = {{getElementById: () => box}};
      {script}
      console.log(JSON.stringify(stubs));
    """
    done = subprocess.run(["node", "-e", stub], capture_output=True, text=True, check=True)
    stubs = json.loads(done.stdout)
    assert [stubs[f"[data-decision='{k}']"]["textContent"] for k in range(4)] == decisions
    truth = 100 * float(PLANT.tail(critical))
    for k, decision in enumerate(decisions):
        wrong = decision != decisions[0]
        found = float(stubs[f"[data-divergence='{k}']"]["textContent"])
        assert found == pytest.approx(abs(truth - cost) if wrong else 0, abs=0.006)
    height = float(re.search(r"M0.0 ([\d.]+)L", stubs["[data-curve='3']"]["d"])[1])
    fitted = json.loads(data)["fits"][critical - 310]
    assert height == pytest.approx(170 * (1 - norm.pdf(220, *fitted) / 0.028), abs=0.06)
