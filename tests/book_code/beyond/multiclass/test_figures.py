"""Figures show what they say."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.datasets import load_iris

from bayesloss import LinkgisticClassifier
from bayesloss_book.beyond.multiclass import figures


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


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
