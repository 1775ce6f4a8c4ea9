"""Tests of `MonotoneDisplay`: what it draws is what the estimator says."""

import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from bayesloss import ISGPRegressor
from bayesloss.learning.estimators.monotone_display import MonotoneDisplay


@pytest.fixture
def data():
    generator = np.random.default_rng(0)
    X = np.exp(generator.normal(size=(40, 1)))
    return X, np.log(X[:, 0]) + 0.2 * generator.normal(size=40)


@pytest.fixture
def model(data):
    return ISGPRegressor(n_basis=4).fit(*data)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_it_draws_what_the_estimator_says(model, data):
    _, ax = plt.subplots()
    display = MonotoneDisplay.from_estimator(model, *data, level=0.8, n_points=30, ax=ax)
    assert display.ax_ is ax
    (line,) = ax.get_lines()
    x, mean = line.get_data()
    assert (x.min(), x.max()) == pytest.approx((data[0].min(), data[0].max()))
    np.testing.assert_allclose(mean, model.predict(x[:, None]), rtol=1e-10)
    low, high = model.predict_interval(x[:, None], 0.8)
    np.testing.assert_allclose(display.curve, (low, high))
    assert np.all(display.observation[0] < low)
    assert np.all(high < display.observation[1])
    np.testing.assert_array_equal(ax.collections[0].get_offsets()[:, 1], data[1])


def test_a_new_figure_and_another(model, data):
    display = MonotoneDisplay.from_estimator(model, *data)
    first = display.ax_
    assert display.plot().ax_ is not first


def test_data_frames(data):
    frame = pd.DataFrame(data[0], columns=["income"])
    model = ISGPRegressor(n_basis=4).fit(frame, data[1])
    MonotoneDisplay.from_estimator(model, frame, data[1])


def test_without_matplotlib(model, data, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"bayesloss\[plot\]"):
        MonotoneDisplay.from_estimator(model, *data)


def test_shapes(model, data):
    with pytest.raises(ValueError, match=r"expected X of shape \(n, 1\) and y .*, got \(40,\)"):
        MonotoneDisplay.from_estimator(model, data[0][:, 0], data[1])


def test_data_and_both_bands_can_be_told_apart(model, data):
    """Dots of less than three points across hide no band, and the inner is twice as dark."""
    ax = MonotoneDisplay.from_estimator(model, *data).ax_
    dots, outer, inner = ax.collections
    assert np.all(np.sqrt(dots.get_sizes()) < 3)
    assert inner.get_alpha() > 2 * outer.get_alpha() > 0.2
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["data", "95 % of new data", "95 % of curve", "mean"]
