"""Tests of approximate leave-one-out scores against fits that leave data out."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from bayesloss import LogLoss
from bayesloss.learning import leave_one_out
from bayesloss.learning.leave_one_out import LeaveOneOut
from bayesloss.learning.linear_scores import LinearScores


def problem(n=120, d=6, C=0.5, seed=0, weight=None):
    generator = np.random.default_rng(seed)
    z = generator.normal(size=(n, d)) * np.geomspace(1, 30, d) + 5
    z[:, 1] = 3.0  # a constant column
    odds = (z - z.mean(0)) @ (generator.normal(size=d) / np.geomspace(1, 30, d))
    labels = (generator.random((1, n)) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    weight = np.ones(n) if weight is None else weight
    return LinearScores(*(torch.from_numpy(a) for a in (z, labels, weight)), C)


def fitted(data, C, without=None):
    """Scores of all data from scikit-learn's fit without the offset, one datum left out."""
    Z, labels = (data.Z - data.centre).numpy(), data.labels[0].numpy()
    weight = data.weight.numpy().copy()
    if without is not None:
        weight[without] -= 1
    model = LogisticRegression(
        C=C, fit_intercept=False, solver="newton-cholesky", tol=1e-12, max_iter=1000
    )
    kept = weight > 0
    return Z @ model.fit(Z[kept], labels[kept], weight[kept]).coef_[0]


def held_out(data, scores):
    scores = torch.from_numpy(scores)
    slopes = LogLoss().log_probabilities(scores)[1]
    return LeaveOneOut(data, seed=0)(0, scores, slopes).numpy()


@pytest.fixture
def exact(monkeypatch):
    """All leverages computed, no curvature left out."""
    monkeypatch.setattr(leave_one_out, "_SKETCH", 1000)
    monkeypatch.setattr(leave_one_out, "_LEFT_OUT", 0.0)


@pytest.mark.parametrize(("n", "d"), [(120, 6), (40, 90)])
@pytest.mark.usefixtures("exact")
def test_close_to_fits_that_leave_a_datum_out(n, d):
    """More data than columns, and fewer. One Newton step: errors are of second order."""
    data = problem(n=n, d=d)
    scores = fitted(data, 0.5)
    found = held_out(data, scores)
    truth = np.array([fitted(data, 0.5, without=i)[i] for i in range(n)])
    moved = truth - scores
    assert np.abs(moved).max() > 0.3
    assert np.abs(found - truth).mean() < 0.1 * np.abs(moved).mean()
    assert np.corrcoef(found, truth)[0, 1] > 0.99


@pytest.mark.usefixtures("exact")
def test_exact_for_squares():
    """With the slopes of a Gaussian likelihood, y - x and -1, a Newton step leaves one out."""
    data = problem(C=0.5)
    Z, y = (data.Z - data.centre).numpy(), np.where(data.labels[0] == 1, 0.5, -0.5)
    gram = Z.T @ Z + np.eye(6) / 0.5
    scores = Z @ np.linalg.solve(gram, Z.T @ y)

    # Slopes s_1 = 1/2 - x and s_0 = -1/2 - x do not have the product -1: two labels whose slopes
    # do, with the slope of the datum's own as it is.
    slope = torch.from_numpy(y - scores)
    slopes = torch.where(
        data.labels[0] == 1, torch.stack([-1 / slope, slope]), torch.stack([slope, -1 / slope])
    )
    found = LeaveOneOut(data, seed=0)(0, torch.from_numpy(scores), slopes).numpy()
    for i in (0, 17, 80):
        kept = np.arange(len(y)) != i
        beta = np.linalg.solve(gram - np.outer(Z[i], Z[i]), Z[kept].T @ y[kept])
        assert found[i] == pytest.approx(Z[i] @ beta, rel=1e-9, abs=1e-12)


def test_sketch_and_flat_data_hardly_matter(monkeypatch):
    """Against all leverages computed: a sixth of the shift, as a sketch of 64 directions has it."""
    data = problem(n=3000, d=100)
    scores = fitted(data, 0.5)
    fast = held_out(data, scores) - scores
    monkeypatch.setattr(leave_one_out, "_SKETCH", 1000)
    monkeypatch.setattr(leave_one_out, "_LEFT_OUT", 0.0)
    slow = held_out(data, scores) - scores
    error = np.abs(fast - slow).sum() / np.abs(slow).sum()
    assert 0 < error < 3 * math.sqrt(2 / 64)


@pytest.mark.usefixtures("exact")
def test_a_weight_is_so_many_data():
    """A datum of weight two is two data, of which one is left out."""
    weight = np.ones(120)
    weight[:30] = 2
    weighted = problem(weight=weight)
    repeated = LinearScores(
        torch.cat([weighted.Z, weighted.Z[:30]]),
        torch.cat([weighted.labels, weighted.labels[:, :30]], dim=1),
        torch.ones(150, dtype=torch.float64),
        0.5,
    )
    found = held_out(weighted, fitted(weighted, 0.5))
    expected = held_out(repeated, fitted(repeated, 0.5))
    np.testing.assert_allclose(found, expected[:120], rtol=0, atol=1e-8)


def test_units_of_the_columns_do_not_matter_without_a_penalty():
    data = problem(C=math.inf)
    units = torch.tensor([1e6, 1, 1e-3, 1, 10, 1], dtype=torch.float64)
    other = LinearScores(data.Z * units, data.labels, data.weight, math.inf)
    for first, second in ((data, other), (other, data)):
        a = LeaveOneOut(first, seed=0)._root(torch.ones(120).double())
        b = LeaveOneOut(second, seed=0)._root(torch.ones(120).double())
        Z = [each.Z - each.centre for each in (first, second)]
        torch.testing.assert_close((Z[0] @ a) @ (Z[0] @ a).T, (Z[1] @ b) @ (Z[1] @ b).T)


def test_later_rounds_move_less():
    """Round t goes 2 / (t + 1) of the way; what does not change stays."""
    data = problem()
    scores = torch.from_numpy(fitted(data, 0.5))
    slopes = LogLoss().log_probabilities(scores)[1]
    held = LeaveOneOut(data, seed=0)
    first = held(0, scores, slopes) - scores
    torch.testing.assert_close(held(0, scores, slopes) - scores, first, rtol=1e-12, atol=1e-12)
    # With the slopes' signs turned, all shifts are; in the third round half the way.
    third = held(0, scores, -slopes) - scores
    torch.testing.assert_close(third, 0 * first, rtol=0, atol=1e-12)


def test_no_curvature_no_shift():
    data = problem()
    scores = torch.from_numpy(fitted(data, 0.5))
    assert LeaveOneOut(data, seed=0)(0, scores, torch.zeros((2, 120)).double()) is scores


def test_the_curvature_is_formed_in_rounds_1_2_4_8(monkeypatch):
    data = problem()
    held, formed, now = LeaveOneOut(data, seed=0), [], 0
    leverages = held._leverages
    monkeypatch.setattr(held, "_leverages", lambda c: (formed.append(now), leverages(c))[1])
    scores = torch.zeros(120).double()
    slopes = LogLoss().log_probabilities(scores)[1]
    for now in range(1, 12):  # noqa: B007
        held(0, scores, slopes)
    assert formed == [1, 2, 4, 8]
