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


def test_link(model):
    scores = (SMALL.X - model.centre_) @ model.coef_[0]
    figure = figures.draw_link(model.link_, scores)
    x, y = figure.axes[0].lines[0].get_data()
    np.testing.assert_allclose(y, model.link_.source(x))
    counts = [bar.get_height() for bar in figure.axes[2].patches]
    assert sum(counts) == len(SMALL.y)


def test_fall(rounds):
    left, right = figures.draw_fall(rounds, [0.0, -1.0, -2.0, -3.0]).axes
    assert left.lines[0].get_ydata().tolist() == [found.value for found in rounds]
    assert left.lines[1].get_ydata().tolist() == [0.0, -1.0, -2.0, -3.0]
    assert right.lines[0].get_ydata().tolist() == [found.rise for found in rounds[1:]]


def test_creep(rounds):
    left, middle, right = figures.draw_creep(rounds, (0, 3)).axes
    assert left.lines[0].get_ydata()[3] == pytest.approx(float(rounds[3].beta.norm()))
    assert middle.lines[0].get_ydata()[0] == 0
    assert len(right.lines) == 2
    assert np.std(right.lines[1].get_xdata(), ddof=1) == pytest.approx(1)


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


def test_links(rounds):
    (axis,) = figures.draw_links({"one": {"first": rounds[0], "last": rounds[3]}}).axes
    x, nu = axis.lines[1].get_data()
    found = rounds[3]
    np.testing.assert_allclose(nu, found.posterior.mean(found.scores.sort().values))
    assert np.std(x, ddof=1) == pytest.approx(1)
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["first", "last"]


def test_outside(model):
    (axis,) = figures.draw_outside({"ISGP": model.link_}).axes
    edge = model.link_.slope / model.link_.posterior.prior.kernel.c
    assert [line.get_xdata()[0] for line in axis.lines[1:]] == pytest.approx([-edge, edge])


def test_short_cuts():
    table = pd.DataFrame({"value": [1.0, 0.1], "slope": [1.0, 0.5], "mode": [1.0, 0.2]}, [10, 20])
    left, right = figures.draw_short_cuts(table, table).axes
    dashed = left.lines[1].get_ydata()
    assert dashed[0] / dashed[1] == pytest.approx(16)
    assert right.lines[1].get_ydata()[0] == pytest.approx(0.8)


def test_sensitivity():
    table = pd.DataFrame({"log loss": [0.3, 0.2]}, [0.1, 0.9])
    (axis,) = figures.draw_sensitivity({"one": table}, {"one": 0.25}).axes
    assert axis.lines[0].get_ydata().tolist() == [0.3, 0.2]
    assert axis.lines[1].get_ydata()[0] == 0.25


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
