"""The slider for the chance of rain: its bills, its picture and its script."""

import json
import re
import shutil
import subprocess

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


def test_dots_stand_where_the_cost_is_least(text):
    elements = BeautifulSoup(text, "html.parser")
    across = {
        g["data-curve"]: float(g.circle["cx"]) / 540 for g in elements.select("g[data-curve]")
    }
    assert across == pytest.approx({"distance": 1, "square": 0.7, "log": 0.7}, abs=1e-3)
    assert "distance 1.00, square 0.70, log 0.70" in elements.find("output").text


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the script outside a browser")
def test_script_draws_what_the_page_starts_with_and_moves(text):
    """Run the script on stubs: at 0.7 its curves are those of the page, at 0.3 the dots move."""
    elements = BeautifulSoup(text, "html.parser")
    box = elements.find(id="forecast-slider")
    script = re.search(r"<script>(.*)</script>", text, re.DOTALL)[1]
    stub = f"""
      const made = {{}}, outputs = {{rain: {{}}, best: {{}}}};
      const part = key => made[key] ??= {{setAttribute(k, v) {{ this[k] = v; }}}};
      let listen;
      const input = {{value: "0.7", setAttribute: (k, v) => {{ input[k] = v; }},
                      addEventListener: (_, f) => {{ listen = f; }}}};
      const box = {{
        dataset: {{bills: {json.dumps(box["data-bills"])}, shape: "{box["data-shape"]}"}},
        querySelector: s => s === "input" ? input
          : s.includes("curve") ? part(s) : outputs[s.match(/value=(\\w+)/)[1]],
      }};
      const document = {{getElementById: () => box}};
      {script}
      const before = JSON.stringify(made);
      input.value = "0.3";
      listen();
      console.log(JSON.stringify([JSON.parse(before), outputs]));
    """
    done = subprocess.run(["node", "-e", stub], capture_output=True, text=True, check=True)
    made, outputs = json.loads(done.stdout)
    for g in elements.select("g[data-curve]"):
        name = g["data-curve"]
        ours = np.array(re.findall(r"-?[\d.]+", g.path["d"]), dtype=float)
        theirs = np.array(re.findall(r"-?[\d.]+", made[f'[data-curve="{name}"] path']["d"]), float)
        np.testing.assert_allclose(theirs, ours, atol=0.11)  # a tenth is shown
    assert outputs["best"]["textContent"] == "distance 0.00, square 0.30, log 0.30"
