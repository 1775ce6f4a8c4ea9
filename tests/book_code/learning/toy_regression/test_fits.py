"""The toy regression: its truths, its bands and its slices, against independent routes."""

import math

import numpy as np
import pytest
import torch

from bayesloss import GP, ISGP, Gaussian, laplace
from bayesloss_book.learning.toy_regression import fits as toy


@pytest.fixture(scope="module")
def data():
    return toy.problem(40, 3)


@pytest.fixture(scope="module")
def found(data):
    return toy.fit(data, n_basis=12)


def test_intercept_is_held(data, found):
    # The intercept's prior is no narrower than the targets are wide.
    assert float(found.posterior.prior.gamma) <= 1.0001 / float(data.y.var())
    free = toy.fit(data, n_basis=12, free_intercept=True)
    assert float(free.posterior.prior.gamma) > 1e3
    assert max(free.values) > max(found.values)


@pytest.mark.parametrize("kind", [ISGP, GP])
def test_bands_are_those_of_draws(data, found, kind):
    """Means and deviations within four standard errors, quantiles within 8 % of the deviation."""
    posterior = (found if kind is ISGP else toy.fit(data, kind, n_basis=12)).posterior
    x = toy.grid(n=9)
    n = 40_000
    shown = toy.bands(posterior, x)
    Gamma = posterior.sample(n, torch.Generator().manual_seed(0))
    nu = posterior.prior.source(x, Gamma).numpy()
    noisy = nu + float(posterior.likelihood.alpha) ** -0.5 * np.random.default_rng(1).normal(
        size=nu.shape
    )
    assert (np.abs(nu.mean(axis=0) - shown["nu"]) < 4 * nu.std(axis=0) / math.sqrt(n) + 1e-9).all()
    np.testing.assert_allclose(nu.std(axis=0), shown["nu_sd"], rtol=0.03)
    np.testing.assert_allclose(noisy.std(axis=0), shown["noisy_sd"], rtol=0.03)
    if kind is GP:
        assert "f" not in shown
        return
    f = posterior.prior.root(x, Gamma).numpy()
    assert (np.abs(f.mean(axis=0) - shown["f"]) < 4 * f.std(axis=0) / math.sqrt(n)).all()
    np.testing.assert_allclose(f.std(axis=0), shown["f_sd"], rtol=0.03)
    low, high = np.quantile(f**2, [0.025, 0.975], axis=0)
    scale = (f**2).std(axis=0)
    # An upper quantile of 40,000 draws is known to about 2 % of the deviation.
    assert (np.abs(shown["square_low"] - low) < 0.08 * scale).all()
    assert (np.abs(shown["square_high"] - high) < 0.08 * scale).all()
    error = (f**2).std(axis=0) / math.sqrt(n)
    assert (np.abs((f**2).mean(axis=0) - shown["square"]) < 4 * error).all()


@pytest.mark.parametrize("objective", ["bound", "laplace"])
def test_evidence_at_the_optimum_is_the_optimum(data, found, objective):
    if objective == "laplace":
        found = toy.fit(data, n_basis=12, objective=objective)
    assert toy.evidence_at(found, data, objective) == pytest.approx(max(found.values), abs=1e-7)
    moved = toy.evidence_at(found, data, objective, alpha=3.0, mu=0.4)
    kernel = found.posterior.prior.kernel
    prior = found.posterior.prior
    there = ISGP(kernel, mu=0.4, gamma=prior.gamma)
    posterior = laplace(there, Gaussian(3.0), data.x, data.y, start=found.posterior.mode)
    expected = posterior.log_evidence if objective == "laplace" else posterior.evidence_bound
    assert moved == pytest.approx(expected, abs=1e-9)


def test_slices_move_one_thing_at_a_time(data, found):
    table = toy.slices(found, data, "bound", n=5)
    assert list(table["name"].unique()) == ["a", "b", "mu", "alpha", "gamma"]
    middle = table.groupby("name", sort=False).nth(2)
    for name in ("a", "b", "mu", "alpha"):  # the middle one is the optimum itself
        value = middle.loc[middle["name"] == name, "evidence"].item()
        assert value == pytest.approx(max(found.values), abs=1e-7)
    gamma = table[table["name"] == "gamma"]
    assert gamma["value"].iloc[[0, -1]].tolist() == pytest.approx([1e-4, 1e10])
    assert (np.diff(gamma["evidence"]) > -1e-6).all()  # rises, and then stays


def test_flat_limit_does_not_depend_on_gamma(data, found):
    """It is the data's own: the same under another prior of the intercept, to the curvature."""
    prior = found.posterior.prior
    narrow = ISGP(prior.kernel, mu=prior.mu, gamma=300 * prior.gamma)
    other = laplace(narrow, found.likelihood, data.x, data.y, start=found.posterior.mode)
    one = toy.flat_limit(found.posterior)
    assert one > 10
    assert toy.flat_limit(other) == pytest.approx(one, rel=0.05)
