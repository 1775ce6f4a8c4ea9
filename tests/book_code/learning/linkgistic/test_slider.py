import re

import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from scipy.special import expit

from bayesloss_book.learning.linkgistic.rounds import KINKED, degrees, kinked, learn
from bayesloss_book.learning.linkgistic.slider import band, link_slider

SMALL = kinked(300, 0, n_test=200)
SHOWN = (0, 1, 3)
NUMBERS = {
    "fixed": (-0.5, 2.0),
    "losses": (0.5, 0.4, 0.3),
    "angles": (20.4, 5.0, 1.6),
    "others": (0.61, 0.25),
}


@pytest.fixture(scope="module")
def rounds():
    return learn(SMALL, rounds=3, C=10.0, n_basis=16)


@pytest.fixture(scope="module")
def text(rounds):
    return link_slider(
        rounds, SHOWN, SMALL.X_test @ KINKED / 3, SMALL.odds, **NUMBERS
    )._repr_html_()


def test_curves_are_drawn_to_scale(rounds, text):
    """The last frame's mean, the sigmoid and the truth, read back."""
    curves = re.findall(r'<path d="M([^"]*)" fill="none"', text)
    mean, fixed, truth = (
        np.array([[float(v) for v in point.split()] for point in path.split("L")])
        for path in curves[-3:]
    )
    t = mean[:, 0] / 600 * 5 - 2.5
    found = rounds[3]
    draws = found.posterior.sample(2000, torch.Generator().manual_seed(5))
    u = expit(found.posterior.prior.source(torch.from_numpy(t) * found.scores.std(), draws).numpy())
    # 200 draws against 2000, and pixels.
    np.testing.assert_allclose(1 - mean[:, 1] / 300, u.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(1 - fixed[:, 1] / 300, expit(-0.5 + 2 * t), atol=0.001)
    odds = np.where(t < 0, 0.9 * t, 7.5 * t) - 0.5  # the true score is three times t
    inner = np.abs(t) < 1.5
    np.testing.assert_allclose(1 - truth[inner, 1] / 300, expit(odds[inner]), atol=0.03)


def test_the_band_holds_the_mean_and_is_where_the_picture_has_it(rounds, text):
    frame = BeautifulSoup(text, "html.parser").find(attrs={"data-frame": "3"})
    points = frame.path["d"].removeprefix("M").removesuffix("Z").split("L")
    drawn = np.array([[float(v) for v in point.split()] for point in points])
    n = len(drawn) // 2
    low, mean, high = band(rounds[3], drawn[:n, 0] / 600 * 5 - 2.5)
    assert (low < mean).all() and (mean < high).all()
    np.testing.assert_allclose(1 - drawn[:n, 1] / 300, low, atol=0.002)
    np.testing.assert_allclose(1 - drawn[n:, 1][::-1] / 300, high, atol=0.002)


def test_angles_between_weights():
    assert degrees(np.array([1.0, 1.0]), np.array([0.0, 3.0])) == pytest.approx(45)
    assert degrees(7 * KINKED, KINKED) == 0


def test_a_round_tells_its_numbers(text):
    told = BeautifulSoup(text, "html.parser").find(attrs={"data-frame": "1"})["data-told"]
    assert "0.400 nats; logistic regression 0.610, truth 0.250" in told
    assert told.endswith("weights point 5° off the true ones.")
