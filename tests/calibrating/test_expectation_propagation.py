"""EP and Laplace against brute force on two and three points."""

import math

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from bayesloss.calibrating.expectation_propagation import _site, expectation_propagation
from bayesloss.calibrating.probit import WhitenedGP
from bayesloss.calibrating.probit_mode import laplace_probit, log_joint
from bayesloss.kernels import SquaredExponential
from bayesloss_book.calibrating.gp_classification import brute_force


def toy(inputs, labels, amplitude):
    kernel = SquaredExponential(a=0.3**-2, b=amplitude**2)
    prior = WhitenedGP.at(kernel, torch.tensor(inputs, dtype=torch.float64)[None], batch_dims=1)
    return prior, torch.tensor(labels, dtype=torch.float64)[None]


CASES = [
    ([0.1, 0.3], [1, 1]),
    ([0.1, 0.9], [1, -1]),
    ([0.1, 0.4, 0.6], [1, 1, -1]),
    ([0.0, 0.5, 1.0], [-1, -1, -1]),
]


@pytest.mark.parametrize(("inputs", "labels"), CASES)
def test_ep_is_near_the_truth(inputs, labels):
    """EP's own error is not zero; where the posterior is nearly Gaussian it is below 1e-3."""
    prior, y = toy(inputs, labels, amplitude=0.5)
    ep = expectation_propagation(prior.features, y)
    mean, covariance, log_evidence = brute_force(prior.features[0], y[0])
    assert ep.converged.all()
    assert (ep.mean[0] - mean).abs().max() < 1e-3
    assert (ep.covariance[0] - covariance).abs().max() < 1e-3
    assert float(ep.log_evidence) == pytest.approx(log_evidence, abs=1e-3)


@pytest.mark.parametrize(("inputs", "labels"), CASES)
def test_ep_against_a_plain_one(inputs, labels):
    """All sites at once, with damping, moments by quadrature, evidence by scaled sites."""
    prior, y = toy(inputs, labels, amplitude=3.0)
    ep = expectation_propagation(prior.features, y)
    A, n = prior.features[0].numpy(), len(labels)
    K = A @ A.T
    tau, nu = np.zeros(n), np.zeros(n)
    log_scale = np.zeros(n)
    for _ in range(300):
        cov = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
        mean = cov @ nu
        for i in range(n):
            v = 1 / (1 / cov[i, i] - tau[i])
            m = v * (mean[i] / cov[i, i] - nu[i])
            grid, weight = np.polynomial.hermite_e.hermegauss(180)
            mass = weight * ndtr(labels[i] * (m + v**0.5 * grid)) / weight.sum()
            total = mass.sum()
            first = (mass * (m + v**0.5 * grid)).sum() / total
            second = (mass * (m + v**0.5 * grid - first) ** 2).sum() / total
            tau[i] += 0.5 * (1 / second - 1 / v - tau[i])
            nu[i] += 0.5 * (first / second - m / v - nu[i])
            site = weight * np.exp(
                nu[i] * (m + v**0.5 * grid) - tau[i] / 2 * (m + v**0.5 * grid) ** 2
            )
            log_scale[i] = np.log(total) - np.log(site.sum() / weight.sum())
    log_evidence = (
        log_scale.sum() - 0.5 * np.linalg.slogdet(np.eye(n) + K @ np.diag(tau))[1] + 0.5 * nu @ mean
    )
    # Gauss-Hermite with 180 nodes is exact to 1e-9 for these integrands.
    assert (A @ ep.mean[0].numpy()) == pytest.approx(mean, abs=1e-7)
    assert (A @ ep.covariance[0].numpy() @ A.T) == pytest.approx(cov, abs=1e-7)
    assert float(ep.log_evidence) == pytest.approx(log_evidence, abs=1e-7)


def test_one_point_is_exact():
    """With one site EP matches the moments of the posterior itself."""
    prior, y = toy([0.3], [-1], amplitude=3.0)
    ep = expectation_propagation(prior.features, y)
    mean, covariance, log_evidence = brute_force(prior.features[0], y[0])
    assert float(ep.mean) == pytest.approx(float(mean), abs=1e-9)
    assert float(ep.covariance) == pytest.approx(float(covariance), abs=1e-9)
    assert float(ep.log_evidence) == pytest.approx(math.log(0.5), abs=1e-12)
    assert log_evidence == pytest.approx(math.log(0.5), abs=1e-9)


@pytest.mark.parametrize(("inputs", "labels"), CASES)
def test_laplace_is_its_definition(inputs, labels):
    """Mode, inverse Hessian and integral of the quadratic, by automatic differentiation."""
    prior, y = toy(inputs, labels, amplitude=3.0)
    found = laplace_probit(prior.features, y)
    r = prior.features.shape[-1]

    def joint(z):
        margin = y[0] * (prior.features[0] @ z)
        return torch.special.ndtr(margin).log().sum() - 0.5 * z @ z

    z = found.mean[0]
    hessian = -torch.func.hessian(joint)(z)
    assert torch.func.grad(joint)(z).abs().max() < 1e-8
    assert torch.allclose(found.covariance[0] @ hessian, torch.eye(r).double(), atol=1e-8)
    integral = joint(z) - 0.5 * torch.logdet(hessian)
    assert float(found.log_evidence) == pytest.approx(float(integral), abs=1e-8)
    assert float(log_joint(z, prior.features[0], y[0])) == pytest.approx(float(joint(z)))


def test_sites_match_moments_by_quadrature():
    """The exact tilted moments, with a cavity far on the wrong side."""
    for y, m, v in ((1.0, -6.0, 2.0), (-1.0, 0.3, 9.0), (1.0, 5.0, 0.5)):
        grid = torch.linspace(m - 14 * v**0.5, m + 14 * v**0.5, 400_001, dtype=torch.float64)
        density = (torch.special.log_ndtr(y * grid) - 0.5 * (grid - m) ** 2 / v).exp()
        density = density / density.sum()
        mean = float((density * grid).sum())
        variance = float((density * (grid - mean) ** 2).sum())
        tau, nu = (float(t) for t in _site(*(torch.tensor(t).double() for t in (y, m, v))))
        assert 1 / (1 / v + tau) == pytest.approx(variance, rel=1e-8)
        assert (m / v + nu) * variance == pytest.approx(mean, rel=1e-8)


@pytest.mark.parametrize("gap", [40.0, -40.0])
def test_margins_of_forty(gap):
    """Labels that the prior all but excludes: finite, and sites stay positive."""
    tau, nu = _site(*(torch.tensor(t).double() for t in (1.0, gap, 0.1)))
    assert torch.isfinite(nu)
    assert float(tau) >= 0.0


def test_single_class_duplicates_and_many_sets():
    """Fifty equal labels at one input: a singular K, and all the weight on one side."""
    kernel = SquaredExponential(a=1.0, b=100.0)
    prior = WhitenedGP.at(kernel, torch.zeros(2, 50, dtype=torch.float64), batch_dims=1)
    y = torch.ones(2, 50, dtype=torch.float64)
    y[1] = -1
    for infer in (laplace_probit, expectation_propagation):
        q = infer(prior.features, y)
        assert q.converged.all()
        assert float(q.mean[0, 0]) == pytest.approx(-float(q.mean[1, 0]), rel=1e-6)
        truth = brute_force(prior.features[0], y[0])[0]
        if infer is expectation_propagation:
            # Fifty sites that are one and the same function are hard for EP: 4 % off.
            assert float(q.mean[0, 0]) == pytest.approx(float(truth), rel=0.06)
