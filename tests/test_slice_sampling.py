"""Elliptical slice sampling against moments that are known, in closed form and by quadrature."""

import math

import numpy as np
import pytest
import torch
from arviz_stats.base.array import array_stats

from bayesloss.experiments import laplace as toys
from bayesloss.slice_sampling import elliptical_slice_sampling


def test_gaussian_posterior_in_closed_form():
    """A likelihood N(t; A z, s^2): the posterior is Gaussian, its moments linear algebra."""
    generator = torch.Generator().manual_seed(0)
    A = torch.randn((4, 3), dtype=torch.float64, generator=generator)
    t = torch.randn(4, dtype=torch.float64, generator=generator)
    variance = 0.3
    covariance = torch.linalg.inv(torch.eye(3, dtype=torch.float64) + A.T @ A / variance)
    mean = covariance @ A.T @ t / variance
    z = elliptical_slice_sampling(
        lambda z: -0.5 * ((z @ A.T - t) ** 2).sum(dim=1) / variance,
        3,
        n_chains=8,
        n_draws=1500,
        n_burn_in=100,
        seed=1,
    ).numpy()
    for i in range(3):
        assert array_stats.rhat(z[:, :, i]) < 1.01
        for values, truth in (
            (z[:, :, i], float(mean[i])),
            ((z[:, :, i] - float(mean[i])) ** 2, float(covariance[i, i])),
        ):
            # Four standard errors: a false alarm once in some thousand tests, with a fixed seed.
            assert abs(values.mean() - truth) < 4 * array_stats.mcse(values)


def test_twin_modes_against_quadrature():
    """The mean and second moment of nu(1) - nu_0 for two weights, from a grid of weights."""
    prior = toys.small_prior()
    x, y, likelihood = toys.regression(8, seed=0)
    scale = prior.kernel.eigenvalues.sqrt()
    psi = prior.kernel.psi(torch.ones(1, dtype=torch.float64))[0]

    def log_likelihood(z):
        log_prior = -0.5 * (z**2 + torch.log(2 * math.pi * scale**2)).sum(dim=1)
        return toys.log_density_of_weights(prior, likelihood, x, y, z * scale) - log_prior

    z = elliptical_slice_sampling(
        log_likelihood, 2, n_chains=16, n_draws=1500, n_burn_in=200, seed=2
    )
    rise = torch.einsum("...i,ij,...j->...", z * scale, psi, z * scale).numpy()
    axis = torch.linspace(-7, 7, 301, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis) * scale
    weights = torch.softmax(toys.log_density_of_weights(prior, likelihood, x, y, grid), dim=0)
    values = torch.einsum("ni,ij,nj->n", grid, psi, grid)
    for power in (1, 2):
        truth = float(weights @ values**power)
        assert abs((rise**power).mean() - truth) < 4 * array_stats.mcse(rise**power)
    right = float((z[..., 0] > 0).to(torch.float64).mean())
    assert 0.2 < right < 0.8  # both islands


def test_every_chain_goes_its_own_way_and_repeats():
    def run():
        return elliptical_slice_sampling(lambda z: -(z**4).sum(1), 2, n_chains=3, n_draws=5, seed=3)

    one, other = run(), run()
    assert torch.equal(one, other)
    assert one.shape == (3, 5, 2)
    assert not np.isclose(one[0], one[1]).any()


@pytest.mark.parametrize("bad", [{"n_chains": 0}, {"n_draws": 0}, {"n_burn_in": -1}])
def test_bad_numbers_are_refused(bad):
    with pytest.raises(ValueError, match="expected positive numbers"):
        elliptical_slice_sampling(lambda z: z.sum(1), 2, **bad)


def test_a_likelihood_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="finite log likelihoods"):
        elliptical_slice_sampling(lambda z: z.sum(1) * math.nan, 2, n_draws=1)


def test_a_likelihood_whose_rounding_errors_hide_the_height_comes_to_an_end():
    calls = 0

    def constant(points):
        nonlocal calls
        calls += 1
        assert calls < 1000, "an endless search"
        return torch.full((len(points),), -1e20, dtype=torch.float64)

    assert (
        elliptical_slice_sampling(constant, 2, n_chains=2, n_draws=5, n_burn_in=0).isfinite().all()
    )
