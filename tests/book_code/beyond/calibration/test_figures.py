"""Figures show what they say."""

import matplotlib.pyplot as plt
import pytest

from bayesloss_book.beyond.calibration import figures


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def test_reliability_is_of_predictions_that_are_too_sure():
    p, y = figures.too_sure(20_000, 0)
    sure = p > 0.9  # E sigmoid(0.7 logit p) there is about 0.89, below the mean prediction 0.95
    assert p[sure].mean() - y[sure].mean() > 0.04  # its standard error is below 0.01
    axes = figures.draw_reliability((60, 200), 0).axes
    assert [axis.get_title() for axis in axes[:2]] == ["60 cases", "200 cases"]
    assert all(len(axis.collections) == 1 for axis in axes[:2])
