import re

import numpy as np
import pytest
from bs4 import BeautifulSoup

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


def test_a_frame_has_its_data_and_tells_the_width_of_its_band(text):
    frames = BeautifulSoup(text, "html.parser").select("[data-frame]")
    assert [len(frame("circle")) for frame in frames] == list(SIZES)
    widths = [float(frame["data-told"].split()[3]) for frame in frames]
    assert widths[0] > widths[1] > widths[2]
