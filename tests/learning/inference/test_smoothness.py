"""Tests of the average over the smoothness against single posteriors, Monte Carlo and theory."""

import math

import numpy as np
import pytest
import torch

from bayesloss import GP, ISGP, Gaussian, LogLoss, MatsushitaLoss, TrigonometricKernel, laplace
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.smoothness import NormalBernoulli, average_smoothness

VALUES = (1.3, 2.0, 6.0)


def data_of(n=300, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.uniform(-3, 3, n))
    p = torch.sigmoid(torch.where(x > 0, 2.5 * x, 0.3 * x))
    return x, (torch.from_numpy(rng.random(n)) < p).to(torch.float64)


def average(kind=ISGP, likelihood=None, n=300, values=VALUES):
    x, y = data_of(n)
    prior = kind(TrigonometricKernel(a=1.5, c=1 / 6, n_basis=12).scaled(0.8), mu=0.1, gamma=0.5)
    likelihood = likelihood or Bernoulli()
    data = likelihood.condense(prior.features, x, y)
    fit = average_smoothness(prior, likelihood, data, start=prior.start(x), smoothness=values)
    return fit, prior, likelihood, x, y


@pytest.mark.parametrize("kind", [ISGP, GP])
@pytest.mark.parametrize("likelihood", [Bernoulli(), Gaussian(alpha=4.0)], ids=repr)
def test_every_posterior_is_the_one_fitted_alone(kind, likelihood):
    """Fitted to the data themselves, from another start on the same hill: the same posterior.

    From afar an ISGP may end at another mode, where f changes its sign.
    """
    fit, _, _, x, y = average(kind, likelihood)
    assert fit.smoothness.tolist() == list(VALUES)
    for a, bound, posterior in zip(VALUES, fit.bounds, fit.posteriors, strict=True):
        kernel = TrigonometricKernel(a=a, c=1 / 6, n_basis=12).scaled(0.8)
        near = 0.9 * posterior.mode
        alone = laplace(kind(kernel, mu=0.1, gamma=0.5), likelihood, x, y, start=near)
        # Two modes known to half the digits; -w is as good as w.
        assert bound == pytest.approx(alone.evidence_bound, abs=1e-7)
        at = torch.linspace(-2, 2, 5, dtype=torch.float64)
        torch.testing.assert_close(posterior.mean(at), alone.mean(at), atol=1e-7, rtol=0)


def test_weights_are_the_exponentials_of_the_bounds():
    fit, *_ = average()
    expected = [math.exp(b - float(fit.bounds.max())) for b in fit.bounds]
    np.testing.assert_allclose(fit.weights, np.array(expected) / sum(expected), rtol=1e-12)
    assert fit.best is fit.posteriors[int(fit.bounds.argmax())]
    assert fit.converged


def test_moments_are_those_of_the_draws():
    fit, prior, *_ = average(n=40)
    assert (fit.weights > 0.05).sum() >= 2  # or else there is no mixture to test
    x = torch.linspace(-5, 5, 7, dtype=torch.float64)
    mean, variance = fit.moments(x)
    draws = fit.draws(
        torch.randn((20_000, 13), generator=torch.Generator().manual_seed(0)).double()
    )
    nu = prior.source(x, draws)
    error = nu.std(dim=0) / math.sqrt(20_000)
    assert ((mean - nu.mean(dim=0)).abs() < 4 * error).all()
    # The standard error of a variance from the fourth moment.
    squares = (nu - nu.mean(dim=0)) ** 2
    error = squares.std(dim=0) / math.sqrt(20_000)
    assert ((variance - squares.mean(dim=0)).abs() < 4 * error).all()


def test_draws_go_to_the_components_by_weight():
    fit, *_ = average(n=40)
    draws = fit.draws(torch.zeros((50, 13), dtype=torch.float64))
    for weight, posterior in zip(fit.weights, fit.posteriors, strict=True):
        share = (draws == posterior.mode).all(dim=1).sum()
        assert abs(int(share) - 50 * float(weight)) <= 1


def test_rough_truths_get_rough_fits():
    """Data of a straight source prefer the smoothest prior, data of stairs a rougher one."""
    prior = ISGP(TrigonometricKernel(a=1.5, c=0.125, n_basis=24), gamma=0.1)
    x = torch.linspace(-4, 4, 20_000, dtype=torch.float64)
    chosen = []
    for nu in (x, x + 0.95 * torch.sin(3 * x) / 3):
        nodes = torch.linspace(-4, 4, 400).double()
        shares = Bernoulli().shares(x, torch.sigmoid(nu), torch.ones_like(x), nodes)
        data = Bernoulli().on_grid(prior.features, nodes, shares)
        fit = average_smoothness(prior, Bernoulli(), data, start=prior.start(x))
        chosen.append(float(fit.weights @ fit.smoothness.log()))
    assert chosen[0] > 2 * chosen[1]


def test_a_likelihood_without_a_bound_is_refused():
    with pytest.raises(ValueError, match="expected a likelihood with a bound"):
        average(likelihood=Bernoulli(MatsushitaLoss()))


@pytest.mark.parametrize("loss", [LogLoss(), MatsushitaLoss()], ids=repr)
def test_quadrature_averages_over_normal_sources(loss):
    """Against a sum over a fine grid of the normal density."""
    likelihood = NormalBernoulli(loss)
    y = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
    data = likelihood.condense(lambda x: x[:, None], torch.ones_like(y), y)
    mean = torch.tensor([-1.0, 0.3, 2.0], dtype=torch.float64)
    variance = torch.tensor([0.0, 0.5, 4.0], dtype=torch.float64)
    z = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    expected = sum(
        float(density @ loss.log_likelihood(2 * y[k] - 1, mean[k] + variance[k].sqrt() * z)[0])
        for k in range(3)
    )
    found = float(likelihood.expected_log_density(mean, variance, data))
    assert found == pytest.approx(expected, abs=2e-3)  # 15 points, a standard deviation of 2
    if isinstance(loss, LogLoss):
        assert found > Bernoulli().expected_log_density(mean, variance, data)
