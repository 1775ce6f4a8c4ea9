"""The long runs are right where the truth is known."""

from functools import partial

import numpy as np
import pytest
import torch
from arviz_stats.base.array import array_stats
from scipy.stats import norm

from bayesloss.learning.inference.laplace import laplace
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss_book.learning.laplace import chains as laplace_mcmc
from bayesloss_book.learning.laplace import toys
from bayesloss_book.problems import source_problems


def problem(task, n, n_basis):
    prior, likelihood = source_problems.prior_and_likelihood(task, n_basis)
    x, y = source_problems.data_set(task, n, 0)
    joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))
    return joint, laplace(prior, likelihood, x, y)


def test_long_run_against_quadrature():
    """Evidence and mean of nu(1) - nu(0) for two weights; the intercept integrates out."""
    prior = toys.small_prior()
    x, y, likelihood = toys.regression(16, seed=0)
    joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))
    found = laplace_mcmc.long_run(
        joint, laplace(prior, likelihood, x, y), n_draws=300, n_annealed=64, n_temperatures=50
    )
    truth = toys.true_log_evidence(prior, likelihood, x, y)
    assert abs(found.annealed.log_evidence - truth) < 4 * found.annealed.error
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    nu = source_problems.source_of_chains(prior, ends, found.Gamma)
    rise = nu[:, :, 1] - nu[:, :, 0]
    axis = torch.linspace(-7, 7, 301, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis) * prior.kernel.eigenvalues.sqrt()
    weights = torch.softmax(toys.log_density_of_weights(prior, likelihood, x, y, grid), dim=0)
    expected = float(weights @ prior.kernel.integrated_square(ends[1:], grid)[:, 0])
    assert abs(rise.mean() - expected) < 4 * array_stats.mcse(rise)


def test_modes_are_modes_and_twins_count_once():
    joint, _ = problem("regression", 50, 16)
    found, share = laplace_mcmc.modes(joint, 20, seed=0)
    assert 0 < share <= 1
    values = [float(joint(mode.mode)) for mode in found]
    assert values == sorted(values, reverse=True)
    assert np.all(np.diff(values) < -1e-5)
    for mode in found:
        slope = joint.derivatives(mode.mode)[0] * joint.prior.precision.rsqrt()
        assert slope.abs().max() < 1e-4  # the square of it is what is left to gain
        assert mode.least_curvature > 0


def test_mixture_moments_against_draws():
    joint, _ = problem("regression", 10, 8)
    found, _ = laplace_mcmc.modes(joint, 20, seed=0)
    assert len(found) > 1
    mean, variance = laplace_mcmc.mixture_moments(found, source_problems.grid())
    weights = np.exp([mode.log_evidence for mode in found])
    counts = np.round(40_000 * weights / weights.sum()).astype(int)
    generator = torch.Generator().manual_seed(0)
    nu = torch.cat(
        [
            mode.prior.source(source_problems.grid(), mode.sample(int(count), generator))
            for mode, count in zip(found, counts, strict=True)
        ]
    )
    assert ((nu.mean(0) - mean).abs() < 5 * nu.std(0) / len(nu) ** 0.5 + 1e-9).all()
    assert (nu.var(0) / variance - 1).abs().max() < 0.1  # of 40,000 draws with heavy tails


def test_log_loss_is_of_the_averaged_density():
    nu = torch.tensor([[0.0, 1.0], [2.0, -1.0]]).double()
    y = torch.tensor([0.5, 0.0]).double()
    _, likelihood = source_problems.prior_and_likelihood("regression", 2)
    densities = norm(nu.numpy(), 0.3).pdf(y.numpy()).mean(axis=0)
    found = source_problems.log_loss(nu, y, likelihood)
    assert found == pytest.approx(-np.log(densities).mean(), rel=1e-10)
    _, bernoulli = source_problems.prior_and_likelihood("classification", 2)
    found = source_problems.log_loss(nu[:, 1:], y[1:], bernoulli)
    assert found == pytest.approx(-np.log((1 / (1 + np.exp([1.0, -1.0]))).mean()), rel=1e-10)


def test_a_small_cell_can_be_measured(monkeypatch):
    short = partial(
        laplace_mcmc.long_run, n_draws=200, n_burn_in=100, n_annealed=64, n_temperatures=50
    )
    monkeypatch.setattr(laplace_mcmc, "long_run", short)
    found = laplace_mcmc.measure(task="regression", n=10, seed=0, n_basis=2)
    assert found["r_hat"] < 1.05
    assert found["bound"] <= found["annealed"] + 4 * found["annealed_error"]
