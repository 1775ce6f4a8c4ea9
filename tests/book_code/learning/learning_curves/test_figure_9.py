"""Figure 9's experiment, on scikit-learn's digits: what is stored is the link that was fitted."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from bayesloss_book.data.image_sets import inputs
from bayesloss_book.learning.learning_curves import figure_9 as dress_link


@cache
def row(method: str) -> pd.Series:
    found = dress_link.measure(
        data="digits", size=300, method=method, penalty=1.0, seed=0, class_label=3
    )
    return pd.Series(found)


def test_the_fixed_link_is_the_sigmoid():
    table = dress_link.curves_of(row("logistic"))
    assert len(table) == dress_link.POINTS
    np.testing.assert_allclose(table["link"], expit(table["x"]), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(table["source"], table["x"], rtol=1e-5, atol=1e-8)
    assert (table["link_low"] == table["link"]).all()  # nothing learned, no band


@pytest.mark.parametrize("method", ["GP", "ISGP"])
def test_bands_hold_their_means(method):
    table = dress_link.curves_of(row(method))
    assert table["link"].between(0, 1).all()
    assert (table["source_low"] < table["source"]).all()
    assert (table["source"] < table["source_high"]).all()
    # Sigmoid keeps the order of the draws; quantiles between two of the 64 are interpolated.
    np.testing.assert_allclose(expit(table["source_low"]), table["link_low"], rtol=1e-5, atol=0.01)
    np.testing.assert_allclose(
        expit(table["source_high"]), table["link_high"], rtol=1e-5, atol=0.01
    )
    # A mean may leave a central interval only where most of the mass sits at one end.
    assert table["link"].between(table["link_low"], table["link_high"]).mean() > 0.9


@pytest.mark.parametrize("method", ["logistic", "ISGP"])
def test_groups_hold_every_test_image_once(method):
    groups = dress_link.groups_of(row(method))
    _, _, X_test, y_test = inputs("digits", 300, "pixels", 0)
    assert groups["count"].sum() == len(X_test)
    assert (np.diff(groups["score"]) > 0).all()
    assert (groups["count"] * groups["ones"]).sum() == pytest.approx((y_test == 3).sum())
    # Threes have the high scores.
    assert groups["ones"].iloc[-1] > 0.8 and groups["ones"].iloc[0] < 0.1
