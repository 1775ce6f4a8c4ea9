import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax

from bayesloss.learning.calibration import calibrator_fit
from bayesloss.learning.calibration.calibrator_fit import (
    CrossEntropy,
    fit_curve,
    fit_matrix,
    fit_shares,
    fit_sources,
    mixture,
    no_matrix,
)
from bayesloss.learning.calibration.monotone_curves import monotone_curves
from bayesloss.learning.data.rows import Rows
from bayesloss.learning.evidence.mixtures import NormalBernoulli
from bayesloss.learning.inference.laplace import laplace


def test_components_are_laplaces_and_weights_follow_their_bounds():
    """By the posterior of all cases, which are not spread on a grid."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 300)
    y = (rng.random(300) < 1 / (1 + np.exp(-2 * x))).astype(float)
    fitted = fit_curve(Rows(x, y, np.ones(300)), 0.1, 2.1, 300.0, 1.0)
    again = mixture(fitted, 0.1)
    assert fitted.converged
    assert again.converged
    bounds = torch.tensor([q.evidence_bound for q in again.components], dtype=torch.float64)
    torch.testing.assert_close(again.weights, torch.softmax(bounds, dim=0))
    at = torch.linspace(-2, 2, 9, dtype=torch.float64)
    for k in (0, 5, 8):
        part = again.components[k]
        direct = laplace(
            part.prior, NormalBernoulli(), torch.from_numpy(x - 0.1), torch.from_numpy(y)
        )
        # The grid moves the mode by a thousandth of a standard deviation at most.
        for one, other in zip(part.moments(at), direct.moments(at), strict=True):
            np.testing.assert_allclose(one, other, rtol=0.01, atol=0.003)
        np.testing.assert_allclose(part.evidence_bound, direct.evidence_bound, atol=0.01)


def problem(n=500, K=3):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, K))
    p = softmax(1.7 * z + 0.3 * z**3, axis=1)
    codes = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=K - 1)
    return z, codes, rng.uniform(0.5, 2, n)


def loss_at(z, codes, weight):
    return -weight @ log_softmax(z, axis=1)[np.arange(len(z)), codes]


def test_each_search_ends_where_moving_raises_the_penalised_loss():
    z, codes, weight = problem()
    loss = CrossEntropy(codes, weight)
    t = 1.2
    affine = fit_matrix(t * z, loss, no_matrix(3))
    W = affine.matrix
    b = affine.intercept
    assert affine.converged

    def penalised(W, b):
        off = (W - np.eye(3))[~np.eye(3, dtype=bool)]
        spread = ((W.diagonal() - 1) ** 2).sum() * 6 + (b**2).sum() * 6 + (off**2).sum() * 12
        return loss_at(t * z @ W.T + b, codes, weight) + spread / 2

    rng = np.random.default_rng(1)
    for _ in range(20):
        assert penalised(W, b) < penalised(W + 0.02 * rng.normal(size=(3, 3)), b)
    u = t * z @ W.T + b
    fitted = fit_sources(u, loss)
    assert fitted.converged
    sources = fitted.curves

    def with_sources(Gammas):
        columns = [
            monotone_curves(u[:, k] - each.centre, Gamma[None], each.c)[0][0]
            for k, (each, Gamma) in enumerate(zip(sources, Gammas, strict=True))
        ]
        penalty = sum(
            each.precision @ (Gamma - centre) ** 2
            for each, Gamma, centre in zip(sources, Gammas, centres, strict=True)
        )
        return loss_at(np.stack(columns, axis=1), codes, weight) + penalty / 2

    # The prior's mean: the straight line through the middle of u, of level sqrt(1 - 0.03 - 0.05^2).
    centres = [np.r_[np.zeros(16), np.sqrt(0.9675), each.centre] for each in sources]
    found = [each.Gamma for each in sources]
    for _ in range(20):
        steps = [0.1 * rng.normal(size=18) / np.sqrt(each.precision) for each in sources]
        moved = [Gamma + step for Gamma, step in zip(found, steps, strict=True)]
        assert with_sources(found) < with_sources(moved)


def test_a_matrix_is_that_of_all_parts_of_the_rows(monkeypatch):
    """Of 500 rows in parts of 32, of which the last is shorter, and at once."""
    z, codes, weight = problem()
    loss = CrossEntropy(codes, weight)
    whole = fit_matrix(z, loss, no_matrix(3))
    monkeypatch.setattr(calibrator_fit, "_PART", 98)
    in_parts = fit_matrix(z, loss, no_matrix(3))
    # Sums in another order, until the search's end; the matrix has single precision.
    np.testing.assert_allclose(in_parts.matrix, whole.matrix, atol=1e-5)
    np.testing.assert_allclose(in_parts.intercept, whole.intercept, atol=1e-5)


def shares_of(z, codes):
    loss = CrossEntropy(codes, np.ones(len(z)))
    affine = fit_matrix(z, loss, no_matrix(z.shape[1]))
    return fit_shares(z, loss, None, affine, fit_sources(affine(z), loss))


def labels(z, seed):
    rng = np.random.default_rng(seed)
    return (z + rng.gumbel(size=z.shape)).argmax(axis=1)


def test_matrix_and_sources_get_their_shares_where_these_are_the_truth():
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, (3000, 4))
    kinked = shares_of(z, labels(np.where(z < 0, 0.3 * z, 2 * z), 1))
    assert kinked.matrix > 0.9
    assert kinked.sources > 0.8
    W = np.array([[1, 0.4, 0, 0], [0, 1, 0, 0], [0, 0, 0.6, -0.4], [0, 0, 0, 1.2]])
    mixed = shares_of(z, labels(z @ W.T + [0.5, 0, 0, -0.5], 2))
    assert mixed.matrix > 0.9
    assert mixed.sources < 0.5
    # A source is one of the logits after the matrix: here the two differ by the intercept.
    u = z @ W.T + [2, 0, 0, -2]
    both = shares_of(z, labels(np.where(u < 0, 0.3 * u, 2 * u), 3))
    assert both.matrix > 0.9
    assert both.sources > 0.8
    # Of twenty draws with nothing to find, most find little.
    nothing = [shares_of(z[:120], labels(z[:120], seed)) for seed in range(20)]
    assert np.median([each.matrix for each in nothing]) < 0.5
    assert np.median([each.matrix * each.sources for each in nothing]) < 0.2


def test_shares_are_decided_by_what_cases_hold_not_by_their_order():
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, (150, 3))
    codes = labels(0.5 * z + [1, 0, 0], 1)
    order = rng.permutation(150)
    found = shares_of(z, codes)
    again = shares_of(z[order], codes[order])
    assert again.matrix == pytest.approx(found.matrix, abs=1e-3)
    assert again.matrix * again.sources == pytest.approx(found.matrix * found.sources, abs=1e-3)


def test_shares_are_decided_by_what_cases_hold_not_by_the_names_of_classes():
    """Renamed in a cycle, which is not its own inverse; the shares lie within their bounds."""
    z = np.random.default_rng(0).normal(0, 2, (400, 3))
    kinked = np.where(z < 0, 0.7 * z, 1.2 * z)
    codes = labels(kinked + np.array([0, 0.3, 1]), 50)
    renamed = np.array([1, 2, 0])
    columns = np.empty_like(z)
    columns[:, renamed] = z
    found = shares_of(z, codes)
    again = shares_of(columns, renamed[codes])
    assert 0.1 < found.sources < 0.9
    assert again.matrix == pytest.approx(found.matrix, abs=1e-6)
    assert again.sources == pytest.approx(found.sources, abs=1e-6)
