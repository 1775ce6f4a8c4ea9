"""The samplers against integrals that are known."""

import math

import numpy as np
import pytest
import torch
from arviz_stats.base.array import array_stats

from bayesloss_book.learning.laplace import toys
from bayesloss_book.references.samplers import (
    annealed_importance_sampling,
    elliptical_slice_sampling,
    hamiltonian_monte_carlo,
)


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


@pytest.mark.parametrize(
    "sample",
    [
        lambda seed: (
            annealed_importance_sampling(
                lambda z: -(z**2).sum(1), 2, n_temperatures=5, seed=seed
            ).points
        ),
        lambda seed: (
            hamiltonian_monte_carlo(
                lambda z: -(z**2).sum(-1), torch.zeros(3, 2).double(), n_draws=4, seed=seed
            ).points
        ),
        lambda seed: elliptical_slice_sampling(
            lambda z: -(z**2).sum(1), 2, n_chains=3, n_draws=4, n_burn_in=1, seed=seed
        ),
    ],
    ids=["annealed", "hamiltonian", "slice"],
)
def test_another_seed_is_another_sample(sample):
    """No number in common: nothing of the draws comes from a fixed seed."""
    one = sample(3)
    other = sample(4)
    again = sample(3)
    assert torch.equal(one, again)
    assert not bool((one == other).any())


def skew(z):
    """A standard normal times Phi(4 z)^3 in every dimension."""
    return (-0.5 * z**2 + 3 * torch.special.log_ndtr(4 * z)).sum(-1)


def test_hamiltonian_monte_carlo_on_a_skew_density():
    """Against quadrature, for chains of two problems at once, within 4 standard errors."""
    shift = torch.tensor([0.0, 2.0], dtype=torch.float64)[:, None]
    start = shift + torch.ones(8, 2, 3, dtype=torch.float64)
    found = hamiltonian_monte_carlo(lambda z: skew(z - shift), start, n_draws=1500, seed=3)
    assert found.points.shape == (1500, 8, 2, 3)
    grid = torch.linspace(-8, 8, 20001, dtype=torch.float64)
    weight = torch.softmax(skew(grid[:, None]), 0)
    mean = float(weight @ grid)
    variance = float(weight @ (grid - mean) ** 2)
    skewness = float(weight @ (grid - mean) ** 3)
    centred = found.points - shift - mean
    for power, truth in ((1, 0.0), (2, variance), (3, skewness)):
        by_chain = (centred**power).mean(0)  # chains are independent
        error = by_chain.std(0) / 8**0.5
        # 4 standard errors of a mean of 8: Student's distribution with 7 degrees, p = 0.005.
        assert ((by_chain.mean(0) - truth).abs() < 5.5 * error).all()
        assert float(error.max()) < 0.03
    assert float(found.acceptance.min()) > 0.75
    assert float(found.acceptance.mean()) == pytest.approx(0.9, abs=0.05)  # as asked for
    assert (found.step_size > 0.1).all()


def test_hamiltonian_monte_carlo_finds_its_step():
    """A density a thousand times narrower in one problem than in the other."""
    scale = torch.tensor([[1.0], [1e-3]], dtype=torch.float64)

    def density(z):
        return -0.5 * ((z / scale) ** 2).sum(-1)

    start = torch.zeros(2, 4, dtype=torch.float64)
    one = hamiltonian_monte_carlo(density, start, n_draws=400, n_burn_in=600, seed=5)
    assert float(one.step_size[0] / one.step_size[1]) == pytest.approx(1000, rel=0.3)
    spread = one.points.std(dim=(0, 2)) / scale[:, 0]
    assert ((spread - 1).abs() < 0.1).all()  # 1600 nearly independent values: 2 % each


def test_hamiltonian_monte_carlo_refuses_what_cannot_work():
    start = torch.zeros(2, dtype=torch.float64)
    with pytest.raises(ValueError, match="finite log density"):
        hamiltonian_monte_carlo(lambda z: z.sum(-1).log(), start - 1, n_draws=5)


def test_slice_sampling_gaussian_posterior_in_closed_form():
    """A likelihood N(t; A z, s^2): the posterior is Gaussian, its moments linear algebra."""
    generator = torch.Generator().manual_seed(0)
    A = torch.randn((4, 3), dtype=torch.float64, generator=generator)
    t = torch.randn(4, dtype=torch.float64, generator=generator)
    variance = 0.3
    covariance = torch.linalg.inv(torch.eye(3, dtype=torch.float64) + A.T @ A / variance)
    mean = covariance @ A.T @ t / variance
    sizes = {"n_chains": 8, "n_draws": 700, "n_burn_in": 100}

    def log_likelihood(z):
        return -0.5 * ((z @ A.T - t) ** 2).sum(dim=1) / variance

    z = elliptical_slice_sampling(log_likelihood, 3, seed=1, **sizes).numpy()
    assert not np.isclose(z[0], z[1]).any()  # each chain goes its own way
    for i in range(3):
        assert array_stats.rhat(z[:, :, i]) < 1.01
        for values, truth in (
            (z[:, :, i], float(mean[i])),
            ((z[:, :, i] - float(mean[i])) ** 2, float(covariance[i, i])),
        ):
            # Four standard errors: a false alarm once in some thousand tests, with a fixed seed.
            assert abs(values.mean() - truth) < 4 * array_stats.mcse(values)


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

    draws = elliptical_slice_sampling(constant, 2, n_chains=2, n_draws=5, n_burn_in=0)
    assert draws.isfinite().all()
