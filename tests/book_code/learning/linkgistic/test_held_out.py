"""Scores without each datum against refits, and links fitted to them."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from bayesloss_book.learning.linkgistic import held_out
from bayesloss_book.learning.linkgistic import rounds as em
from bayesloss_book.learning.linkgistic.rounds import KINKED

SMALL = em.kinked(80, 1, n_test=2000)
C = 1.0


@pytest.fixture(scope="module")
def found():
    return em.learn(SMALL, rounds=2, C=C, n_basis=16)[-1]


def test_fixed_link():
    """Logistic regression's scores; without a datum close to what a refit says."""
    scores, alone = held_out.fixed_link(SMALL, C)
    Z = SMALL.X - SMALL.X.mean(axis=0)
    model = LogisticRegression(C=C, tol=1e-10, max_iter=1000).fit(Z, SMALL.y)
    np.testing.assert_allclose(scores, Z @ model.coef_[0], rtol=1e-4, atol=1e-5)
    rows = range(0, 80, 4)
    truth = held_out.refits_of_fixed_link(SMALL, C, rows)
    moved = truth - scores.numpy()[rows]
    assert np.abs(alone.numpy()[rows] - truth).max() < 0.2 * np.abs(moved).max()


def test_refits_of_fixed_link_leave_one_out():
    (found,) = held_out.refits_of_fixed_link(SMALL, C, [7])
    Z = SMALL.X - SMALL.X.mean(axis=0)
    y = np.where(SMALL.y == 1, 1, -1)
    rest = np.arange(80) != 7

    def objective(theta):
        odds = Z[rest] @ theta[:-1] + theta[-1]
        return np.logaddexp(0, -y[rest] * odds).sum() + theta[:-1] @ theta[:-1] / (2 * C)

    theta = minimize(objective, np.zeros(4), tol=1e-12).x
    assert found == pytest.approx(Z[7] @ theta[:-1], abs=1e-4)


def test_relinked_is_the_link_of_these_scores(found):
    """Its own scores give back its kind of link, labels turned round a link that knows nothing."""
    assert held_out.relinked(SMALL, found, found.scores).beta is found.beta
    x = torch.from_numpy(SMALL.X_test - SMALL.X.mean(axis=0)) @ found.beta
    losses = []
    for scores in (found.scores, -found.scores):
        p = expit(held_out.relinked(SMALL, found, scores).posterior.mean(x).numpy())
        losses.append(log_loss(SMALL.y_test, p))
    assert losses[0] < 0.5 < 0.6 < losses[1]


def test_frequencies():
    scores = np.arange(12.0)
    y = np.array([1] * 6 + [0, 0, 0, 1, 1, 1])
    table = held_out.frequencies(scores[::-1], y[::-1], 2)  # in any order
    assert table["score"].tolist() == [7.0, 10.0]
    assert table["share"].tolist() == [0.0, 1.0]
    # Jeffreys' posterior for no hit in three, summed by hand.
    p = np.linspace(0, 1, 2_000_001)[1:-1]
    density = p**-0.5 * (1 - p) ** 2.5
    inside = (p >= table["low"][0]) & (p <= table["high"][0])
    assert density[inside].sum() / density.sum() == pytest.approx(0.95, abs=0.002)


@pytest.mark.parametrize("truth", held_out.TRUTHS)
def test_only_three_columns_matter(truth):
    task = held_out.with_noise(4000, 6, truth, 0)
    assert task.X.shape == (4000, 6)
    fitted = LogisticRegression(C=1e6).fit(task.X, task.y).coef_[0]
    np.testing.assert_allclose(fitted[:3] / fitted[0], KINKED / KINKED[0], atol=0.15)
    np.testing.assert_allclose(fitted[3:] / fitted[0], 0, atol=0.1)
    # Labels are drawn by the odds: the mean of three thousand is within 4 standard errors.
    p = expit(task.odds)
    assert abs((task.y_test - p).mean()) < 4 * np.sqrt((p * (1 - p)).sum()) / len(p)


def test_straight_odds_are_a_line():
    task = held_out.with_noise(300, 5, "straight", 1)
    slopes = np.linalg.lstsq(task.X_test, task.odds, rcond=None)[0]
    np.testing.assert_allclose(task.X_test @ slopes, task.odds, atol=1e-9)
    kinked = held_out.with_noise(300, 5, "kinked", 1)
    slopes = np.linalg.lstsq(kinked.X_test, kinked.odds, rcond=None)[0]
    assert np.abs(kinked.X_test @ slopes - kinked.odds).max() > 1


def test_excess_is_above_the_truth():
    table = held_out.measure(300, [4], [0], C=1.0)
    assert list(table["truth"]) == list(held_out.TRUTHS)
    task = held_out.with_noise(300, 4, "kinked", 0)
    model = LogisticRegression(C=1.0, tol=1e-8, max_iter=10_000).fit(task.X, task.y)
    p = expit(task.odds)
    q = model.predict_proba(task.X_test)[:, 1]
    divergence = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    assert table["logistic regression"][0] == pytest.approx(divergence.mean())
    assert (table[list(held_out.METHODS)] > 0).all(axis=None)
