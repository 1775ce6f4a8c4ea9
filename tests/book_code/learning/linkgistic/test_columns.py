"""Simulated rows with columns of noise, and the excess of each method."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from bayesloss_book.learning.linkgistic import columns
from bayesloss_book.learning.linkgistic.rounds import KINKED


@pytest.mark.parametrize("truth", columns.TRUTHS)
def test_only_three_columns_matter(truth):
    task = columns.with_noise(4000, 6, truth, 0)
    assert task.X.shape == (4000, 6)
    fitted = LogisticRegression(C=1e6).fit(task.X, task.y).coef_[0]
    np.testing.assert_allclose(fitted[:3] / fitted[0], KINKED / KINKED[0], atol=0.15)
    np.testing.assert_allclose(fitted[3:] / fitted[0], 0, atol=0.1)
    # Labels are drawn by the odds: the mean of three thousand is within 4 standard errors.
    p = expit(task.odds)
    assert abs((task.y_test - p).mean()) < 4 * np.sqrt((p * (1 - p)).sum()) / len(p)


def test_straight_odds_are_a_line():
    task = columns.with_noise(300, 5, "straight", 1)
    slopes = np.linalg.lstsq(task.X_test, task.odds, rcond=None)[0]
    np.testing.assert_allclose(task.X_test @ slopes, task.odds, atol=1e-9)
    kinked = columns.with_noise(300, 5, "kinked", 1)
    slopes = np.linalg.lstsq(kinked.X_test, kinked.odds, rcond=None)[0]
    assert np.abs(kinked.X_test @ slopes - kinked.odds).max() > 1


def test_excess_is_above_the_truth():
    table = columns.measure(300, [4], [0], C=1.0)
    assert list(table["truth"]) == list(columns.TRUTHS)
    task = columns.with_noise(300, 4, "kinked", 0)
    model = LogisticRegression(C=1.0, tol=1e-8, max_iter=10_000).fit(task.X, task.y)
    p, q = expit(task.odds), model.predict_proba(task.X_test)[:, 1]
    divergence = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    assert table["logistic regression"][0] == pytest.approx(divergence.mean())
    assert (table[list(columns.METHODS)] > 0).all(axis=None)
