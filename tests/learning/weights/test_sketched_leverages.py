"""Tests of sketched leverages, against those of a dense inverse."""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit

from bayesloss.learning.data.inputs import SparseInputs
from bayesloss.learning.weights import sketched_leverages as module
from bayesloss.learning.weights.sketched_leverages import sketched_leverages


def text(n=400, d=600, words=12, topics=5, seed=0):
    """Documents of unit length whose topics prefer some words: columns that are correlated."""
    rng = np.random.default_rng(seed)
    usual = 1 / np.arange(1, d + 1)
    X = np.zeros((n, d))
    for row in X:
        odds = usual * np.random.default_rng(rng.integers(topics)).gamma(0.3, size=d)
        row[rng.choice(d, words, p=odds / odds.sum())] = 1 + rng.random(words)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def exact(X, mass, ridge):
    Z = X - X.mean(0)
    H = Z.T @ (mass[:, None] * Z) + ridge * np.eye(Z.shape[1])
    return np.einsum("nj,jk,nk->n", Z, np.linalg.inv(H), Z)


def found(X, mass, ridge, seed=0):
    inputs = SparseInputs(sparse.csr_array(X))
    centre = torch.from_numpy(X.mean(0))
    return sketched_leverages(inputs, centre, torch.from_numpy(mass), ridge, seed)


@pytest.mark.parametrize(("ridge", "largest"), [(0.1, 0.2), (1.0, 0.12)])
def test_error_is_as_stated(ridge, largest):
    X = text()
    mass = 0.25 * np.random.default_rng(1).random(len(X))
    Z, h = X - X.mean(0), exact(X, mass, ridge)
    formula = (Z**2 / (mass @ Z**2 + ridge)).sum(1)
    error = found(X, mass, ridge).numpy() / h - 1
    # A sketch of 8 signs alone would be off by (2 / 8)^1/2 = 0.5.
    assert np.sqrt((error**2).mean()) < largest
    if ridge < 1:  # where the formula is far off
        assert np.sqrt((error**2).mean()) < np.sqrt(((formula / h - 1) ** 2).mean())


def test_many_signs_find_the_leverages(monkeypatch):
    monkeypatch.setattr(module, "_SIGNS", 4096)
    monkeypatch.setattr(module, "_SEEN", 60 * 4096)
    monkeypatch.setattr(module, "_SOLVED", 1e-6)
    X = text(n=60, d=40)
    mass = 0.25 * np.random.default_rng(1).random(len(X))
    own, expected = (mass * h for h in (found(X, mass, 0.5).numpy(), exact(X, mass, 0.5)))
    # 60 errors of labels of variance u (1 - u) / 4096, less with the formula's help.
    assert (np.abs(own - expected) < 4 * np.sqrt(expected * (1 - expected) / 4096)).all()


@pytest.mark.parametrize(("ridge", "largest"), [(1.0, 0.1), (0.1, 0.12), (0.01, 0.25)])
def test_what_leaves_a_datum_out_has_no_pole(ridge, largest):
    """Of their own scores data have 7, 28 and 58 per cent; 1 - u decides what is left of them."""
    X = text()
    mass = 0.25 * np.random.default_rng(1).random(len(X))
    h, true = found(X, mass, ridge).numpy(), exact(X, mass, ridge)
    error = np.log(h / (1 - mass * h)) - np.log(true / (1 - mass * true))
    assert np.sqrt((error**2).mean()) < largest
    assert abs(error.mean()) < 0.1


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_data_are_no_trouble(n):
    result = found(text(n=3)[:n], np.full(n, 0.25), 1.0)
    assert bool(result.isfinite().all())
    # One datum is its own centre. Of its own score no datum has more than all of it.
    assert bool((result >= 0).all())
    assert float(0.25 * result.max()) < 1


def test_without_a_penalty_and_with_columns_of_zeros_all_is_finite():
    X = text(n=50, d=80)
    X[:, :30] = 0.0
    result = found(X, np.ones(50), 0.0)
    assert bool(result.isfinite().all())
    # A hundredth of the diagonal keeps each row's part of its own score below 1.
    assert float(result.max()) < 1.5


@pytest.mark.parametrize("off", [0.3, 9.0])  # from far off whole Newton steps do not settle
def test_the_polynomial_is_a_penalised_logistic_regression_with_a_bend_and_no_more(off):
    """Its maximum by SciPy, from labels without spread, whose truth has a third power, too.

    Coefficients of 1, log g and its square in standard units are N(0, 1/4) beforehand, as for a
    formula that is off by a factor of e^(1/2); a datum without mass has h = g exp(polynomial).
    """
    rng = np.random.default_rng(0)
    log_g, mass = rng.normal(-0.7 - off, 1.5, 300), rng.uniform(0.1, 1.0, 300)
    u = (log_g - log_g.mean()) / log_g.std()
    t = expit(np.log(mass) + log_g + off + 0.4 * u - 0.3 * u**2 + 0.2 * u**3)
    powers = np.stack([np.ones(300), u, u**2], axis=1)

    def negative(theta):
        odds = np.log(mass) + log_g + powers @ theta
        return 32 * (np.logaddexp(0, odds) - t * odds).sum() + 0.5 * 4 * (theta**2).sum()

    theta = minimize(negative, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9}).x
    a = np.exp(log_g + powers @ theta)
    given = (torch.from_numpy(each) for each in (np.exp(log_g), t, mass))
    np.testing.assert_allclose(module._calibrated(*given, 32), a / (1 + mass * a), rtol=1e-5)


def test_what_the_polynomial_misses_is_left_to_the_labels():
    """Rows whose log a strays by tau from it: errors are those of the best weights of the two.

    The labels' own error of log a is 1 / (s u (1 - u))^1/2, s vectors: here 0.5, as is tau.
    """
    rng = np.random.default_rng(0)
    stray, g = rng.normal(0, 0.5, 20_000), np.full(20_000, 0.5)
    mass = np.ones(20_000)
    g[::2] *= 1.01  # so that there is a unit of log g
    t = rng.binomial(18, expit(np.log(g) + stray)) / 18
    found = module._calibrated(*(torch.from_numpy(each) for each in (g, t, mass)), 18).numpy()
    error = np.log(found / (1 - found)) - np.log(g) - stray
    # Half of tau^2 would be left where labels were normal: sd 0.35. Either alone leaves 0.5.
    assert np.std(error) == pytest.approx(0.35, abs=0.03)


def test_conjugate_gradients_solve_to_what_is_asked(monkeypatch):
    """Columns on scales of their own, one of them zero; steps end them one by one."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(30, 30))
    H = torch.from_numpy(root @ root.T + np.diag(np.geomspace(1, 1e4, 30)))
    b = torch.from_numpy(rng.normal(size=(30, 3)) * [1, 1e-6, 0])
    exact = torch.linalg.solve(H, b)
    steps = []
    for asked in (0.05, 1e-8):
        monkeypatch.setattr(module, "_SOLVED", asked)
        steps.clear()
        x = module._solve(lambda p: steps.append(1) or H @ p, b, H.diagonal())
        # In the norm of H^-1 after scaling, that of the right side's.
        left = (b - H @ x).div(H.diagonal().sqrt()[:, None]).norm(dim=0)
        right = b.div(H.diagonal().sqrt()[:, None]).norm(dim=0)
        assert bool((left <= asked * right + 1e-15).all())
        assert len(steps) < 100
    torch.testing.assert_close(x, exact, rtol=1e-5, atol=1e-12)
    monkeypatch.setattr(module, "_ITERATIONS", 2)
    steps.clear()
    module._solve(lambda p: steps.append(1) or H @ p, b, H.diagonal())
    assert len(steps) == 2
