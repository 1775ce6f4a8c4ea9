"""The slider of arriving data: what the page carries, and that it asks nothing of a network."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from bs4 import BeautifulSoup

from bayesloss import laplace
from bayesloss_book.learning.toy_regression import fits as toy
from bayesloss_book.learning.toy_regression.slider import posterior_slider

SIZES = (1, 5, 20)


@pytest.fixture(scope="module")
def problem():
    data = toy.problem(20, 0)
    return toy.fit(data, n_basis=8), data


@pytest.fixture(scope="module")
def text(problem):
    return posterior_slider(*problem, SIZES)._repr_html_()


def test_frames_are_the_posteriors_of_the_first_data(problem, text):
    found, data = problem
    frames = {
        int(values["data-frame"]): float(values["data-width"])
        for values in BeautifulSoup(text, "html.parser").find_all(attrs={"data-frame": True})
    }
    assert tuple(frames) == SIZES
    for n, width in frames.items():
        posterior = laplace(found.posterior.prior, found.likelihood, data.x[:n], data.y[:n])
        mean_width = 4 * float(posterior.variance(toy.grid(n=81)).sqrt().mean())
        assert width == pytest.approx(mean_width, abs=0.051)  # one decimal is shown
    assert len(BeautifulSoup(text, "html.parser").find_all("circle")) == 20


def test_mean_curve_is_drawn_to_scale(problem, text):
    """The path of the last frame, read back."""
    found, _ = problem
    path = re.findall(r'<path d="M([^"]*)" fill="none" stroke="#', text)[-1]
    points = np.array([[float(v) for v in point.split()] for point in path.split("L")])
    x = toy.grid(n=81)
    mean = found.posterior.mean(x).numpy()
    inside = (points[:, 1] > 0) & (points[:, 1] < 300)
    assert inside.sum() > 50
    slope, level = np.polyfit(mean[inside], points[inside, 1], 1)
    assert slope < 0  # pictures count downwards
    assert level == pytest.approx(150, abs=0.1)  # zero is in the middle
    np.testing.assert_allclose(points[inside, 1], level + slope * mean[inside], atol=0.06)
    np.testing.assert_allclose(points[:, 0], 6 * (x + 50), atol=0.051)


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the script outside a browser")
def test_script_shows_one_frame_and_its_data(text):
    """Run the script on a page of stubs, move the slider, and see what is shown."""
    script = re.search(r"<script>(.*)</script>", text, re.DOTALL)[1]
    stub = f"""
      const sizes = {list(SIZES)};
      const make = (key, value) => ({{dataset: {{[key]: value, width: "w" + value}}, style: {{}}}});
      const frames = sizes.map(n => make("frame", String(n)));
      const dots = Array.from({{length: 20}}, (_, i) => make("datum", String(i)));
      let listen;
      const slider = {{value: "2", setAttribute: (k, v) => {{ slider[k] = v; }},
                       addEventListener: (_, f) => {{ listen = f; }}}};
      const outputs = {{n: {{}}, width: {{}}}};
      const box = {{
        dataset: {{sizes: JSON.stringify(sizes)}},
        querySelectorAll: s => s.includes("frame") ? frames : dots,
        querySelector: s => s === "input" ? slider
          : s.includes("frame") ? frames[sizes.indexOf(+s.match(/"(\\d+)"/)[1])]
          : outputs[s.match(/value=(\\w+)/)[1]],
      }};
      const document = {{getElementById: () => box}};
      {script}
      const seen = () => [frames, dots].map(l => l.filter(e => e.style.display === "").length);
      const before = seen();
      slider.value = "1";
      listen();
      console.log(JSON.stringify([before, seen(), outputs, frames[1].style.display,
                                  slider["aria-valuetext"]]));
    """
    done = subprocess.run(["node", "-e", stub], capture_output=True, text=True, check=True)
    before, after, outputs, display, said = json.loads(done.stdout)
    assert before == [1, 20]
    assert after == [1, 5]
    assert display == ""
    assert outputs["n"]["textContent"] == 5
    assert said == "5 data, band w5 wide on average"
