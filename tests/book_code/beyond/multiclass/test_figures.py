"""Figures show what they say."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from bayesloss import LinkgisticClassifier
from bayesloss_book.beyond.multiclass import figures
from bayesloss_book.beyond.multiclass.benchmark import METHODS


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def test_every_method_but_the_reference_has_a_style():
    assert {*figures.STYLES, "temperature"} == set(METHODS)


def test_losses_are_relative_to_the_temperature():
    rows = pd.DataFrame(
        [
            {"data": data, "n": 0, "C": 1.0, "seed": 0}
            | {f"{m}: loss": 0.2 if m == "temperature" else 0.19 for m in METHODS}
            | {f"{m}: less": 0.001 for m in METHODS}
            for data in ("iris", "wine")
        ]
    )
    axis = figures.draw_losses(rows).axes[0]
    assert len(axis.containers) == len(figures.STYLES)
    np.testing.assert_allclose(axis.containers[0].lines[0].get_xdata().astype(float), -5)
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["iris, C = 1", "wine, C = 1"]


def test_sources_are_less_the_line():
    X, y = load_iris(return_X_y=True)
    model = LinkgisticClassifier().fit((X - X.mean(0)) / X.std(0), y)
    axis = figures.draw_sources(model, (0, 2)).axes[0]
    labels = [line.get_label() for line in axis.lines]
    assert labels.count("digit 0") == 1 and len(axis.lines) == 4  # three sources and the line
    x, shown = axis.lines[labels.index("digit 2")].get_data()
    link = model.links_[2]
    np.testing.assert_allclose(shown, link.source(x) - link.source(0.0) - x)


def test_curl_is_zero_for_one_temperature():
    figure = figures.draw_curl(("one temperature", "bent", "bent", "a slope a class"))
    values = [np.abs(axis.collections[0].get_array()).max() for axis in figure.axes[:4]]
    assert values[0] < 1e-12 and min(values[1:]) > 0.05


def test_rounds():
    top, bottom = figures.draw_rounds([-3.0, -2.0], [0.4, 0.3], 0.35).axes
    assert top.lines[0].get_ydata().tolist() == [-3.0, -2.0]
    assert bottom.lines[1].get_ydata()[0] == 0.35
