"""The figures show what they are given."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

from bayesloss import LinkgisticClassifier
from bayesloss_book.learning.linkgistic import figures
from bayesloss_book.learning.linkgistic.rounds import kinked, learn

SMALL = kinked(400, 0, n_test=10)


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def model():
    return LinkgisticClassifier(C=10.0, n_basis=16, tol=1e-2, random_state=0).fit(SMALL.X, SMALL.y)


@pytest.fixture(scope="module")
def rounds():
    return learn(SMALL, rounds=3, C=10.0, n_basis=16)


def test_held_out(rounds):
    shares = pd.DataFrame({"score": [1.0], "share": [0.5], "low": [0.2], "high": [0.9]})
    scores = rounds[3].scores.numpy()
    axes = figures.draw_held_out(scores, scores - 1, SMALL.y, {"one": (rounds[3], shares)}).axes
    zero, one = axes[0].lines
    assert len(zero.get_xdata()) + len(one.get_xdata()) == len(SMALL.y)
    assert set(np.round(one.get_ydata(), 12)) == {-1.0}
    x, u = axes[1].lines[0].get_data()
    draws = rounds[3].posterior.sample(200, torch.Generator().manual_seed(0))
    nu = rounds[3].posterior.prior.source(torch.as_tensor(np.asarray(x)), draws)
    np.testing.assert_allclose(u, torch.sigmoid(nu).mean(dim=0))
    (bars,) = axes[1].collections[-1].get_segments()
    assert bars[:, 1].tolist() == pytest.approx([0.2, 0.9])


def test_asymmetry(model):
    centre = figures.middle(model.link_)
    assert float(model.link_.inverse_link([centre])[0]) == pytest.approx(0.5, abs=1e-9)
    halves = figures.mirrored(model.link_, 5)
    t = halves["t"]
    np.testing.assert_allclose(halves["left"], 1 - model.link_.inverse_link(centre - t))
    for side in ("left", "right"):
        low, high = halves[f"{side} band"]
        assert (low <= halves[side]).all()
        assert (halves[side] <= high).all()
    assert len(figures.draw_asymmetry(model.link_).axes[0].lines) == 3
