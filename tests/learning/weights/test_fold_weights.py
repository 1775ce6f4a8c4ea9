"""Tests of weights without each fold, against scikit-learn's, SciPy's and derivatives."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from link_fits import regression
from scipy.optimize import minimize
from scipy.special import log_expit
from sklearn.linear_model import LogisticRegression

from bayesloss.learning.data.folds import NEVER, Folds, no_folds
from bayesloss.learning.weights import fold_weights
from bayesloss.learning.weights.fold_weights import FoldWeights
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.multinomial import fit_softmax

TOL = 1e-7
K = 3


def many_classes(n=300, d=4, C=2.0, *, chance=False, bend=1.0):
    """Labels of three classes, by chance or by scores, their regression, and five folds."""
    generator = np.random.default_rng(0)
    Z = generator.normal(size=(n, d))
    x = Z @ generator.normal(size=(d, K))
    classes = (np.where(x < 0, x / bend, x * bend) + generator.gumbel(size=(n, K))).argmax(1)
    if chance:
        classes = np.arange(n) % K
    labels = torch.from_numpy(np.eye(K, dtype=np.int8)[classes].T.copy())
    weight = torch.from_numpy(generator.integers(1, 4, n).astype(float))
    data = LinearScores.of(torch.from_numpy(Z), labels, weight, C)
    fit, data = fit_softmax(data, 0.1 * TOL)
    fold = np.empty(n, dtype=np.int64)
    fold[np.argsort(classes, kind="stable")] = np.arange(n) % 5
    return data, fit, classes, Folds(np.arange(n), weight.numpy(), fold, 5)


@pytest.mark.parametrize("weighted", [False, True])
def test_two_classes_without_each_fold(weighted):
    X, y, weight, data, fit, folds = regression(TOL, weighted=weighted)
    weights = FoldWeights(data, fit, folds, TOL)
    assert weights.settled
    held_out = (weights.held_out()[0] + weights.level).numpy()
    for k in range(folds.n_folds):
        rest = folds.fold != k
        other = LogisticRegression(C=0.7, solver="newton-cholesky", tol=1e-10)
        other.fit(X[rest], y[rest], weight[rest])
        np.testing.assert_allclose(
            held_out[~rest], other.decision_function(X[~rest]), rtol=0, atol=1e-4
        )


@pytest.mark.parametrize("spare", [0, 2**23])
def test_many_classes_without_each_fold(spare, monkeypatch):
    """One fold at a time, or all with common passes."""
    monkeypatch.setattr(fold_weights, "_SPARE", spare)
    data, fit, classes, folds = many_classes()
    weights = FoldWeights(data, fit, folds, TOL)
    assert weights.settled
    held_out = (weights.held_out() + weights.level[:, None]).numpy()
    Z = (data.inputs.Z - data.centre).numpy()
    for k in range(folds.n_folds):
        rest = folds.fold != k
        other = LogisticRegression(C=2.0, tol=1e-10, max_iter=10_000)
        other.fit(Z[rest], classes[rest], folds.weight[rest])
        expected = other.decision_function(Z[~rest]).T
        found = held_out[:, ~rest] - held_out[:, ~rest].mean(0)
        np.testing.assert_allclose(found, expected - expected.mean(0), rtol=0, atol=2e-4)


@pytest.mark.parametrize("C", [1e2, 1e6, math.inf])
@pytest.mark.filterwarnings("ignore")
def test_no_held_out_score_knows_its_label(C):
    """Labels by chance, 60: right within two standard errors of a third, after moves too."""
    data, fit, classes, folds = many_classes(60, 80, C, chance=True)
    weights = FoldWeights(data, fit, folds, 1e-4)
    for _ in range(4):
        scores = weights.held_out() + weights.level[:, None]
        right = float((scores.argmax(0).numpy() == classes).mean())
        assert right < 1 / 3 + 2 * math.sqrt(2 / 9 / 60)
        weights.move(bent)


@pytest.mark.parametrize("C", [1.0, math.inf])
def test_what_all_classes_share_is_nought(C):
    """It changes no probability, but it is part of the scores that sources see."""
    data, fit, _, folds = many_classes(C=C)
    weights = FoldWeights(data, fit, folds, 1e-6)
    zero = {"rtol": 0, "atol": 1e-12 * float(weights.scores.abs().max())}
    for rows in (weights.beta[2], weights.held_out()):
        np.testing.assert_allclose(rows.sum(0), 0, **zero)
    scores = data.scores(weights.beta[2], weights.offset[2])
    # The search moves scores by steps: rounding of a few hundred of these.
    np.testing.assert_allclose(weights.scores[2], scores, rtol=0, atol=1e-9)


def bent(scores):
    """Curves for any number of classes, and their slopes."""
    return 0.8 * scores + scores.sin() / 2, 0.8 + scores.cos() / 2


def moved_to_the_end(weights, curves):
    """Moves, of a few steps each, under curves of the scores' first size."""
    total = 1.0
    for _ in range(40):
        before = weights.strength

        def now(scores, total=total):
            values, slopes = curves(scores / total)
            return values, slopes / total

        weights.move(now)
        total *= (weights.strength / before) ** -0.5
    return total


@pytest.mark.parametrize("fold", [None, 3])
def test_weights_under_a_curve_are_the_likeliest(fold):
    """SciPy's BFGS on the objective as it is written, from where the search ended."""
    X, y, weight, data, fit, folds = regression(TOL, weighted=True)
    weights = FoldWeights(data, fit, folds, TOL)
    before = weights.scores[0, 0].numpy().copy()
    factor = moved_to_the_end(weights, bent)
    counts = weight if fold is None else weight * (folds.fold != fold)
    row = 0 if fold is None else 1 + fold
    # Back from the size that scores were brought to: s divided by t^2, weights times t.
    assert factor == pytest.approx(weights.strength**-0.5)
    Z = X - data.centre.numpy()
    offset = float(weights.offset[row, 0]) / factor

    def loss(beta):
        x = torch.from_numpy(Z @ beta + offset)
        likelihood = counts @ log_expit((2 * y - 1) * bent(x)[0].numpy())
        return -likelihood + beta @ beta / (2 * 0.7)

    found = weights.beta[row, 0].numpy() / factor
    best = minimize(loss, found, tol=1e-9)
    np.testing.assert_allclose(found, best.x, rtol=0, atol=2e-4)
    after = weights.scores[0, 0].numpy()
    sizes = [np.sqrt(np.cov(scores, aweights=weight, ddof=0)) for scores in (before, after)]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-9)
    assert abs(factor - 1) > 0.02  # or the test would not see the factor


def test_the_penalty_is_divided_by_the_square_of_the_scores_factor():
    """That factor from SciPy's weights of one move, which begins at a strength of 1."""
    X, y, weight, data, fit, folds = regression(TOL, weighted=True)
    weights = FoldWeights(data, fit, folds, TOL)
    offset = float(weights.offset[0, 0])
    weights.move(bent)
    Z = X - data.centre.numpy()

    def loss(beta):
        x = torch.from_numpy(Z @ beta + offset)
        likelihood = weight @ log_expit((2 * y - 1) * bent(x)[0].numpy())
        return -likelihood + beta @ beta / (2 * 0.7)

    found = weights.beta[0, 0].numpy()
    best = minimize(loss, found, tol=1e-9).x
    factor = np.linalg.norm(found) / np.linalg.norm(best)
    assert abs(factor - 1) > 0.02  # or the test would not see its power
    assert weights.strength == pytest.approx(factor**-2, rel=1e-3)  # the search took 20 steps


@pytest.mark.parametrize("spare", [0, 2**23])
def test_weights_of_many_classes_are_the_likeliest(spare, monkeypatch):
    """Where moves end, the objectives have no slope: by automatic differentiation."""
    monkeypatch.setattr(fold_weights, "_SPARE", spare)
    data, fit, _, folds = many_classes(400, bend=3.0)
    weights = FoldWeights(data, fit, folds, 1e-6)
    factor = moved_to_the_end(weights, bent)
    for i in range(1 + folds.n_folds):
        counts = torch.where(torch.from_numpy(folds.fold) == i - 1, 0.0, data.weight)
        offset = weights.offset[i] / factor

        def objective(beta, counts=counts, offset=offset):
            x = beta @ (data.inputs.Z - data.centre).T + offset[:, None]
            log_p = torch.log_softmax(bent(x)[0], dim=0)
            fit = (data.labels * log_p).sum(0) @ counts
            return (fit - (beta**2).sum() / (2 * 2.0)) / counts.sum()  # C = 2

        slope = torch.autograd.functional.jacobian(objective, weights.beta[i] / factor)
        assert float(slope.abs().max()) < 5e-6


def test_what_is_never_held_out_counts_in_every_fit():
    """SciPy's BFGS under a curve, of all rows and without a fold, where half are in none."""
    X, y, weight, data, fit, folds = regression(TOL, weighted=True)
    fold = np.where(np.arange(len(y)) % 2 == 0, NEVER, folds.fold)
    weights = FoldWeights(data, fit, replace(folds, fold=fold), TOL)
    factor = moved_to_the_end(weights, bent)
    Z = X - data.centre.numpy()
    for row, counts in ((0, weight), (4, weight * (fold != 3))):
        offset = float(weights.offset[row, 0]) / factor

        def loss(beta, counts=counts, offset=offset):
            x = torch.from_numpy(Z @ beta + offset)
            likelihood = counts @ log_expit((2 * y - 1) * bent(x)[0].numpy())
            return -likelihood + beta @ beta / (2 * 0.7)

        found = weights.beta[row, 0].numpy() / factor
        np.testing.assert_allclose(found, minimize(loss, found, tol=1e-9).x, rtol=0, atol=2e-4)


def test_without_folds_scores_are_the_training_rows_own():
    _, _, weight, data, fit, _ = regression(TOL)
    weights = FoldWeights(data, fit, no_folds(weight), TOL)
    own = fit.scores - fit.offset[:, None]
    np.testing.assert_array_equal(weights.held_out().numpy(), own.numpy())
