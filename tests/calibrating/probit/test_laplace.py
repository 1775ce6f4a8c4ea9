"""Modes of probit posteriors, against SciPy's optimiser on SciPy's normal distribution.

No derivative of the module enters: the log density is written anew, the mode is sought without
gradients, and the Hessian comes from central differences.
"""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from bayesloss.calibrating.probit.laplace import laplace_probit, log_joint


def problem(m=3, n=12, r=2, seed=0):
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(m, n, r))
    y = np.where(features[..., 0] + generator.normal(size=(m, n)) > 0, 1.0, -1.0)
    return torch.from_numpy(features), torch.from_numpy(y)


class Pull:
    """A term with two humps in the first weight: log(1 + height exp(-(z - place)^2 / 2 width))."""

    def __init__(self, height, place=4.0, width=0.1):
        self.height = height
        self.place = place
        self.width = width

    def share(self, z):
        log_odds = math.log(self.height) - (z[..., 0] - self.place) ** 2 / (2 * self.width)
        return torch.sigmoid(log_odds), torch.nn.functional.softplus(log_odds)

    def value(self, z):
        return self.share(z)[1]

    def derivatives(self, z):
        share = self.share(z)[0]
        slope = -(z[..., 0] - self.place) / self.width
        gradient = torch.zeros_like(z)
        minus_hessian = z.new_zeros((*z.shape, z.shape[-1]))
        gradient[..., 0] = share * slope
        minus_hessian[..., 0, 0] = share / self.width - share * (1 - share) * slope**2
        return gradient, minus_hessian, minus_hessian.clamp_min(0)

    def select(self, rows):
        return self


def log_density(z, features, y, term=None):
    """By SciPy, of one data set, without the constant of the prior."""
    value = norm.logcdf(y.numpy() * (features.numpy() @ z)).sum() - 0.5 * z @ z
    return value + (float(term.value(torch.from_numpy(z))) if term else 0.0)


def reference(features, y, term=None, start=None):
    """Mode, covariance and Laplace's log evidence."""
    r = features.shape[-1]
    found = minimize(
        lambda z: -log_density(z, features, y, term),
        np.zeros(r) if start is None else start,
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000},
    )
    step = 1e-3 * np.eye(r)

    def value(shift):
        return log_density(found.x + shift, features, y, term)

    H = -np.array(
        [
            [(value(e + f) - value(e - f) - value(f - e) + value(-e - f)) / 4e-6 for f in step]
            for e in step
        ]
    )
    return found.x, np.linalg.inv(H), -found.fun - 0.5 * np.linalg.slogdet(H)[1]


@pytest.mark.parametrize("term", [None, Pull(0.5, place=1.0, width=2.0)])
def test_mode_curvature_and_evidence(term):
    features, y = problem()
    found = laplace_probit(features, y, term=term)
    assert bool(found.converged.all())
    for i in range(3):
        mode, covariance, evidence = reference(features[i], y[i], term)
        # Nelder-Mead sees a flat top: the square root of the value's 1e-14, a few times.
        np.testing.assert_allclose(found.mean[i], mode, atol=3e-6)
        # Central differences: truncation 1e-6, rounding 1e-14 / 1e-6.
        np.testing.assert_allclose(found.covariance[i], covariance, atol=1e-5)
        assert float(found.log_evidence[i]) == pytest.approx(evidence, abs=1e-5)


def test_a_step_is_newtons_where_the_density_is_concave():
    """Even where a term bends upwards; its stand-in is for where the whole does (LHG eq. (27))."""
    features, y = problem(m=1)
    term = Pull(0.5, place=1.0, width=2.0)
    start = torch.tensor([[-1.5, 0.4]], dtype=torch.float64)
    _, minus_hessian, safe = term.derivatives(start)
    assert float((safe - minus_hessian).max()) > 0.05  # the two differ here

    def value(z):
        return log_joint(z[None], features, y, term)[0]

    gradient = torch.autograd.functional.jacobian(value, start[0])
    H = -torch.autograd.functional.hessian(value, start[0])
    assert float(torch.linalg.eigvalsh(H)[0]) > 0
    with pytest.warns(ConvergenceWarning):
        found = laplace_probit(features, y, term=term, start=start, max_iter=1)
    expected = start[0] + torch.linalg.solve(H, gradient)
    torch.testing.assert_close(found.mean[0], expected, rtol=1e-6, atol=0)


def test_the_start_decides_between_two_modes():
    """A high narrow hump far out: from zero one stays, from near it one finds it."""
    features, y = problem(m=1)
    term = Pull(1e9)
    far = torch.tensor([[4.1, 0.0]], dtype=torch.float64)
    modes = [laplace_probit(features, y, term=term, start=start) for start in (None, far)]
    for found in modes:
        assert bool(found.converged.all())
        nearby = found.mean[0].numpy() + 0.02  # Nelder and Mead's first simplex is small
        mode, _, _ = reference(features[0], y[0], term, nearby)
        np.testing.assert_allclose(found.mean[0], mode, atol=1e-5)
    assert abs(float(modes[0].mean[0, 0] - modes[1].mean[0, 0])) > 1


def test_the_start_is_left_as_it_was():
    features, y = problem()
    start = torch.ones((3, 2), dtype=torch.float64)
    laplace_probit(features, y, start=start)
    assert torch.equal(start, torch.ones((3, 2), dtype=torch.float64))


def test_an_unfinished_search_is_reported():
    features, y = problem()
    with pytest.warns(ConvergenceWarning, match="the mode of 3 of 3 data sets was not found in 1"):
        found = laplace_probit(features, y, max_iter=1)
    assert not bool(found.converged.any())


def test_a_saddle_is_reported():
    """Between two humps at +-2, symmetric in z: zero is stationary, and no mode."""

    class Saddle(Pull):
        def value(self, z):
            return torch.log(torch.cosh(2 * z[..., 0]))

        def derivatives(self, z):
            tanh = torch.tanh(2 * z[..., 0])
            gradient = torch.zeros_like(z)
            minus_hessian = z.new_zeros((*z.shape, z.shape[-1]))
            gradient[..., 0] = 2 * tanh
            minus_hessian[..., 0, 0] = -4 * (1 - tanh**2)
            return gradient, minus_hessian, torch.zeros_like(minus_hessian)

    features = torch.tensor([[[1e-3, 0.0], [1e-3, 0.0]]], dtype=torch.float64)
    y = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    with pytest.warns(ConvergenceWarning, match="or is a saddle"):
        found = laplace_probit(features, y, term=Saddle(1.0))
    assert not bool(found.converged.any())
