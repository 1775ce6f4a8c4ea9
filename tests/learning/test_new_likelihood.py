"""Likelihoods from outside the package: counts, by the two methods that one must define.

Independent routes: the trapezoidal rule over all parameters of a small prior for the evidence and
the mean, and SciPy on a dense log joint density with psi for the mode.
"""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import nbinom, poisson

from bayesloss import (
    GP,
    ISGP,
    Likelihood,
    TrigonometricKernel,
    laplace,
    maximise_evidence,
    variational,
)

KINDS = pytest.mark.parametrize("kind", [ISGP, GP])


class Poisson(Likelihood):
    """Counts whose rate has the logarithm nu."""

    def log_density(self, nu, data):
        return data.weights @ (data.targets * nu - nu.exp() - torch.lgamma(data.targets + 1))

    def derivatives(self, nu, data):
        return data.weights * (data.targets - nu.exp()), -data.weights * nu.exp()


class NegativeBinomial(Likelihood):
    """Counts of mean exp(nu) and variance exp(nu) + exp(2 nu) / shape."""

    hyper_parameters = {"shape": (1e-2, 1e4)}  # noqa: RUF012

    def __init__(self, shape, name="counts"):
        self.shape = torch.as_tensor(shape, dtype=torch.float64)
        self.name = name

    def log_density(self, nu, data):
        y = data.targets
        r = self.shape
        each = torch.lgamma(y + r) - torch.lgamma(r) - torch.lgamma(y + 1)
        each = each + r * r.log() + y * nu - (y + r) * torch.log(r + nu.exp())
        return data.weights @ each

    def derivatives(self, nu, data):
        y = data.targets
        r = self.shape
        share = torch.sigmoid(nu - self.shape.log())
        first = y - (y + r) * share
        second = -(y + r) * share * (1 - share)
        return data.weights * first, data.weights * second


def counts(n=80, shape=None, seed=0):
    """Of a rate that rises from 1 to 8."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, n)
    rate = np.exp(1 + np.tanh(2 * x))
    if shape:
        rate = rate * generator.gamma(shape, 1 / shape, n)
    weight = generator.integers(1, 3, n).astype(float)
    return tuple(map(torch.from_numpy, (x, generator.poisson(rate).astype(float), weight)))


def log_pmf(likelihood, y, nu):
    """SciPy's, of shape (n,), on NumPy arrays."""
    if isinstance(likelihood, Poisson):
        return poisson.logpmf(y, np.exp(nu))
    shape = float(likelihood.shape)
    return nbinom.logpmf(y, shape, shape / (shape + np.exp(nu)))


@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(2.5)])
def test_what_the_test_defines_is_right(likelihood):
    x, y, weight = counts(5)
    data = likelihood.condense(lambda x: x[:, None], x, y, weight)
    nu = torch.linspace(-1, 2, 5, dtype=torch.float64, requires_grad=True)
    value = likelihood.log_density(nu, data)
    expected = weight.numpy() @ log_pmf(likelihood, y.numpy(), nu.detach().numpy())
    assert float(value.detach()) == pytest.approx(expected, rel=1e-12)
    (first,) = torch.autograd.grad(value, nu, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), nu)
    found = likelihood.derivatives(nu.detach(), data)
    torch.testing.assert_close(found, (first.detach(), second), rtol=1e-10, atol=1e-12)


@KINDS
@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(2.5)])
def test_laplace_against_quadrature(kind, likelihood):
    """Two weights and the intercept on a grid: the mean of nu, and the evidence."""
    prior = kind(TrigonometricKernel(a=2.0, c=0.25, n_basis=2), mu=0.3, gamma=0.7)
    x, y, weight = counts()
    posterior = laplace(prior, likelihood, x, y, sample_weight=weight)
    assert posterior.converged
    assert math.isnan(posterior.evidence_bound)  # neither gives an expectation
    scale = torch.linalg.cholesky(posterior.covariance)
    axis = torch.linspace(-7, 7, 36, dtype=torch.float64)  # steps of two fifths
    Gamma = posterior.mode + torch.cartesian_prod(axis, axis, axis) @ scale.T
    log_joint = torch.from_numpy(
        sum(
            w * log_pmf(likelihood, float(v), nu.numpy())
            for w, v, nu in zip(weight.tolist(), y, prior.source(x, Gamma).T, strict=True)
        )
    )
    quadratic = prior.precision * (Gamma - prior.location) ** 2
    log_joint += 0.5 * (torch.log(prior.precision / (2 * math.pi)) - quadratic).sum(dim=1)
    cell = 3 * math.log(0.4) + float(torch.logdet(scale))
    truth = float(torch.logsumexp(log_joint, dim=0)) + cell
    if kind is ISGP:  # the grid sees one of two twins
        truth += math.log(2)
    # 120 counts: the posterior is nearly Gaussian, and the next order is 1/120 of a few terms.
    assert posterior.log_evidence == pytest.approx(truth, abs=0.15)
    at = torch.linspace(-0.9, 0.9, 5, dtype=torch.float64)
    share = torch.softmax(log_joint, dim=0)
    mean = share @ prior.source(at, Gamma)
    gap = (posterior.mean(at) - mean) / (share @ (prior.source(at, Gamma) - mean) ** 2).sqrt()
    assert float(gap.abs().max()) < 0.25  # and an error of that order in standard deviations


def test_the_nearest_gaussian_averages_as_if_nu_were_normal():
    """By the closed form of E exp(nu), and the textbook's KL(q || prior)."""
    prior = ISGP(TrigonometricKernel(a=1.5, c=0.25, n_basis=6), mu=0.2, gamma=0.7)
    x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    y = (1 + x).exp().round()
    q = variational(prior, Poisson(), x, y)
    mean, variance = q.moments(x)
    fit = y * mean - (mean + variance / 2).exp() - torch.lgamma(y + 1)
    away = prior.precision * (q.covariance.diagonal() + (q.mode - prior.location) ** 2) - 1
    log_dets = torch.logdet(q.covariance) + prior.precision.log().sum()
    expected = fit.sum() - 0.5 * (away.sum() - log_dets) + math.log(2)  # with the twin's share
    assert q.log_evidence == pytest.approx(float(expected), abs=1e-3)
    assert math.isnan(q.evidence_bound)


def dense_evidence(kind, theta, likelihood, x, y, start):
    """Laplace's evidence with psi, SciPy's mode and automatic differentiation's Hessian."""
    kernel = TrigonometricKernel(a=theta["a"], c=0.5, n_basis=6).scaled(theta["b"])
    scale = torch.cat([kernel.eigenvalues.sqrt(), torch.tensor([theta["gamma"]]).double() ** -0.5])
    psi = kernel.psi(x)
    phi = kernel.basis(x)
    data = likelihood.condense(lambda x: x[:, None], x, y)

    def negative(z):
        w = (scale * z)[:-1]
        nu_0 = theta["mu"] + (scale * z)[-1]
        nu = nu_0 + (phi @ w if kind is GP else torch.einsum("i,nij,j->n", w, psi, w))
        return 0.5 * (z @ z) - likelihood.log_density(nu, data)

    def with_slope(vector):
        z = torch.from_numpy(vector.copy()).requires_grad_()
        value = negative(z)
        return float(value.detach()), torch.autograd.grad(value, z)[0].numpy()

    location = torch.cat([torch.zeros(6), torch.tensor([theta["mu"]])]).double()
    begin = ((start - location) / scale).numpy()
    found = minimize(with_slope, begin, jac=True, options={"gtol": 1e-8})
    H = torch.autograd.functional.hessian(negative, torch.from_numpy(found.x))
    return -found.fun - 0.5 * float(torch.logdet(H))


@KINDS
def test_evidence_chooses_the_likelihoods_own_hyper_parameter(kind):
    """At the end, no move of any hyper-parameter raises a dense Laplace evidence."""
    x, y, _ = counts(150, shape=2.0)
    prior = kind(TrigonometricKernel(a=3.0, c=0.5, n_basis=6))
    begin = NegativeBinomial(20.0, name="mine")
    found = maximise_evidence(
        prior, begin, x, y, objective="laplace",
        smoothness=(4.0,), bounds={"gamma": (1e-2, 1.0), "shape": (0.1, 100.0)},
    )  # fmt: skip
    assert found.converged
    assert "shape" not in found.at_bound
    assert (found.likelihood.name, float(begin.shape)) == ("mine", 20.0)
    there = found.posterior.prior
    theta = {"a": there.kernel.a, "b": there.kernel.variance, "gamma": there.gamma, "mu": there.mu}
    theta = {name: float(value) for name, value in theta.items()}

    def value(shape=float(found.likelihood.shape), **moved):
        other = NegativeBinomial(shape)
        return dense_evidence(kind, theta | moved, other, x, y, found.posterior.mode)

    best = value()
    for factor in (0.97, 1.03):
        assert value(shape=factor * float(found.likelihood.shape)) < best + 4e-4
        for name, start in theta.items():
            if name not in found.at_bound:
                # A slope below 0.01 nats a unit is left, and the move is 0.03 units.
                assert value(**{name: factor * start}) < best + 4e-4
    assert value(shape=20.0) < best - 1  # it was worth choosing


def test_without_a_bound_the_objective_must_be_laplaces():
    x, y, _ = counts(20)
    prior = GP(TrigonometricKernel(a=3.0, c=0.5, n_basis=4))
    with pytest.raises(ValueError, match='objective="laplace": no bound is known for .*Poisson'):
        maximise_evidence(prior, Poisson(), x, y)
    message = r"expected bounds for some of \['a', 'b', 'gamma', 'mu', 'shape'\], got \['alpha'\]"
    with pytest.raises(ValueError, match=message):
        maximise_evidence(prior, NegativeBinomial(1.0), x, y, bounds={"alpha": (1, 2)})


def test_a_name_that_the_prior_has_is_refused():
    class Twice(NegativeBinomial):
        hyper_parameters = {"mu": (1.0, 2.0)}  # noqa: RUF012

    x, y, _ = counts(20)
    prior = GP(TrigonometricKernel(a=3.0, c=0.5, n_basis=4))
    with pytest.raises(ValueError, match=r"with other names than \['a', .*\], got \['mu'\]"):
        maximise_evidence(prior, Twice(1.0), x, y, objective="laplace")


def test_an_unfinished_likelihood():
    with pytest.raises(TypeError, match="abstract"):
        type("Half", (Likelihood,), {"log_density": lambda self, nu, data: nu.sum()})()
