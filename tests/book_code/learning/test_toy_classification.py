"""The toy classification: its bands and bounds, against independent routes."""

import math

import numpy as np
import pytest
import torch

from bayesloss_book.learning import toy_classification as toy
from bayesloss_book.problems.toys import grid


@pytest.fixture(scope="module")
def data():
    return toy.problem(60, 1)


@pytest.fixture(scope="module")
def found(data):
    return toy.fit(data, smoothness=(8.0,), n_basis=8)


def test_bands_are_of_draws(found):
    """Draws made anew, with NumPy's square root of the covariance; the page has the quantiles."""
    posterior = found.posterior
    x = grid(n=7)
    shown = toy.bands(posterior, x, 20_000, 0)
    noise = np.random.default_rng(1).normal(size=(20_000, len(posterior.mode)))
    root = np.linalg.cholesky(posterior.covariance.numpy())
    nu = posterior.prior.source(x, torch.from_numpy(posterior.mode.numpy() + noise @ root.T))
    p = (1 / (1 + np.exp(-nu.numpy()))).T
    np.testing.assert_allclose(shown["probability"], p.mean(axis=1), atol=0.005)
    for name in ("low", "median", "high"):
        np.testing.assert_allclose(shown[f"p {name}"], 1 / (1 + np.exp(-shown[name])))
    assert (shown["low"] < shown["median"]).all()
    assert (shown["median"] < shown["high"]).all()


def test_given_away_is_the_gap_of_the_bound(data, found):
    """With the expectation at each datum by quadrature in the direction of its mean: same size."""
    gap, error = toy.given_away(found.posterior, data, 20_000, 0)
    assert gap > 4 * error  # no bound is above the truth
    assert error < 0.05
    mean, variance = found.posterior.moments(data.x)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    sign = (2 * data.y - 1).numpy()[:, None]
    nu = mean.numpy()[:, None] + np.sqrt(variance.numpy())[:, None] * nodes
    gaussian = -(np.logaddexp(0, -sign * nu) @ weights).sum() / math.sqrt(2 * math.pi)
    xi = np.sqrt(mean.numpy() ** 2 + variance.numpy())
    bound = (-np.logaddexp(0, -xi) + (sign[:, 0] * mean.numpy() - xi) / 2).sum()
    # nu is nearly Gaussian here: half of the gap covers what is not.
    assert gap == pytest.approx(gaussian - bound, rel=0.5)


def test_slack_against_the_trapezoidal_rule():
    z = np.linspace(-60, 60, 40_001)  # the density is below 1e-300 beyond
    for mean, sd in ((0.0, 1.0), (-2.0, 1.5), (3.0, 0.3)):
        density = np.exp(-(((z - mean) / sd) ** 2) / 2) / (sd * np.sqrt(2 * np.pi))
        exact = -np.sum(density * np.logaddexp(0, -z)) * (z[1] - z[0])
        xi = np.hypot(mean, sd)
        bound = -np.logaddexp(0, -xi) + (mean - xi) / 2  # the lemma, by hand
        # 80 nodes do not integrate a logarithm's bend exactly.
        assert abs(toy.slack(mean, sd) - (exact - bound)) < 1e-7
    assert abs(toy.slack(1.0, 0.0)) < 1e-12  # equality where nu is certain
