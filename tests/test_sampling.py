"""Annealed importance sampling against integrals that are known."""

import math

import pytest
import torch

from bayesloss.experiments import laplace as toys
from bayesloss.sampling import annealed_importance_sampling


def test_gaussian_likelihood_in_closed_form():
    """A likelihood N(t; z, s^2) per dimension: the evidence is a normal density, and so is all."""
    t = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
    variance = 0.05

    def log_likelihood(z):
        return (-0.5 * (z - t) ** 2 / variance - 0.5 * math.log(2 * math.pi * variance)).sum(dim=1)

    found = annealed_importance_sampling(log_likelihood, 3, n_temperatures=60, seed=1)
    total = 1 + variance
    expected = float((-0.5 * t**2 / total - 0.5 * math.log(2 * math.pi * total)).sum())
    assert abs(found.log_evidence - expected) < 4 * found.error
    assert found.error < 0.1
    mean = found.weights @ found.points
    error = math.sqrt(variance / total / found.effective_size)
    assert ((mean - t / total).abs() < 4 * error).all()


def test_isgp_with_twin_modes():
    """The evidence of the toy of the Laplace page, which a grid knows to six digits."""
    prior = toys.small_prior()
    x, y, likelihood = toys.regression(12, seed=0)
    truth = toys.true_log_evidence(prior, likelihood, x, y)

    def log_likelihood(z):
        # The intercept is integrated out; in units of the prior the density is left to divide.
        w = z * prior.kernel.eigenvalues.sqrt()
        log_prior = (
            -0.5 * (z**2).sum(1) - 0.5 * torch.log(2 * math.pi * prior.kernel.eigenvalues).sum()
        )
        return toys.log_density_of_weights(prior, likelihood, x, y, w) - log_prior

    found = annealed_importance_sampling(log_likelihood, 2, n_temperatures=60, seed=2)
    assert abs(found.log_evidence - truth) < 4 * found.error
    assert found.error < 0.1
    right = found.weights @ (found.points[:, 0] > 0).to(torch.float64)
    assert 0.25 < float(right) < 0.75  # both modes, four standard errors of a fair coin


def test_same_seed_same_sample():
    one, other = (
        annealed_importance_sampling(lambda z: -(z**2).sum(1), 2, n_temperatures=5, seed=3)
        for _ in range(2)
    )
    assert torch.equal(one.points, other.points)


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match="two chains"):
        annealed_importance_sampling(lambda z: z.sum(1), 2, n_chains=1)
