"""Zeros, slopes, costs and origins of the ISGP prior, each by a second route."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import minimize

from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book.learning.isgp import prior as isgp


def drawn(prior, n, seed=0):
    return prior.sample(n, torch.Generator().manual_seed(seed))


def plain_f(w, c):
    """The path f written out, one harmonic at a time."""
    half = len(w) // 2

    def f(x):
        angles = [math.pi * m * c * x for m in range(1, half + 1)]
        return sum(
            p * math.cos(t) + q * math.sin(t)
            for p, q, t in zip(w[:half], w[half:], angles, strict=True)
        )

    return f


def test_counted_zeros_are_the_roots_on_the_unit_circle():
    """Times z^(M/2), f is a polynomial of degree M in z = exp(i pi c x): its roots by numpy."""
    prior = isgp.make_prior(a=1.5, n_basis=12)
    paths = drawn(prior, 40)
    for Gamma, count in zip(paths, isgp.count_zeros(prior, paths), strict=True):
        p = Gamma[:6].numpy()
        q = Gamma[6:12].numpy()
        upper = (p - 1j * q) / 2  # the coefficients of z, ..., z^6
        roots = np.roots(np.concatenate([upper[::-1], [0.0], upper.conj()]))
        assert np.sum(np.abs(np.abs(roots) - 1) < 1e-7) == count


def test_rice_formula_against_the_kernel_by_finite_differences():
    kernel = TrigonometricKernel(a=1.4, c=0.7, n_basis=20)
    h = 1e-4
    ends = torch.tensor([0.0, h, -h], dtype=torch.float64)
    k = kernel(ends, torch.zeros(1, dtype=torch.float64))
    curvature = float(k[1] + k[2] - 2 * k[0]) / h**2
    rate = math.sqrt(-curvature / float(k[0])) / math.pi  # zeros a unit of x
    assert isgp.expected_zeros(kernel) == pytest.approx(rate * 2 / 0.7, rel=1e-5)


def test_a_constant_lowers_the_number_of_zeros():
    kernel = isgp.make_prior().kernel
    free = isgp.expected_zeros(kernel)
    half = isgp.expected_zeros(kernel, constant=1.0)
    assert half == pytest.approx(free / math.sqrt(2))


@pytest.mark.parametrize("constant", [0.0, 0.3])
def test_least_penalty_against_a_general_optimiser(constant):
    kernel = isgp.make_prior(a=2.0, n_basis=6).kernel
    fraction = 0.4
    tolerance = 0.1
    x = np.linspace(-fraction, fraction, 4001)
    basis = kernel.basis(torch.from_numpy(x)).numpy() * kernel.eigenvalues.sqrt().numpy()
    if constant:
        basis = np.column_stack([np.full(len(x), math.sqrt(constant)), basis])
    found = minimize(
        lambda v: v @ v,
        np.linalg.lstsq(basis, np.ones(len(x)), rcond=None)[0],
        jac=lambda v: 2 * v,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda v: tolerance**2 - np.mean((basis @ v - 1) ** 2)},
        options={"maxiter": 500, "ftol": 1e-10},
    )
    cost = isgp.least_penalty(kernel, fraction, tolerance=tolerance, constant=constant)
    assert cost == pytest.approx(found.fun / 2, rel=1e-3)


def test_a_whole_period_near_one_is_out_of_reach_without_a_constant():
    kernel = isgp.make_prior(n_basis=8).kernel
    assert isgp.least_penalty(kernel, 1.0, tolerance=0.5) == math.inf
    # With one, w = (1 - tolerance, 0, ...) does it.
    cost = isgp.least_penalty(kernel, 1.0, tolerance=0.1, constant=0.5)
    assert cost == pytest.approx(0.9**2 / 0.5 / 2, rel=1e-6)


def line(x):
    return np.ones_like(x)


def test_a_root_that_flips_comes_near_on_a_whole_period():
    """A square wave: (4 / pi) sum sin(m pi x) / m over odd m; the error of nu by quadrature."""
    kernel = isgp.make_prior(c=1.0, n_basis=8).kernel

    def f(x):
        return 4 / math.pi * sum(math.sin(m * math.pi * x) / m for m in range(1, 5, 2))

    gaps = [abs(quad(lambda z: f(z) ** 2 - 1, 0, x)[0]) for x in np.linspace(0, 1, 201)]
    assert isgp.flipped_root(line, kernel) == pytest.approx(max(gaps), rel=2e-3)


def test_cumulants_against_samples():
    prior = isgp.make_prior(c=0.25, n_basis=8)
    matrix, shift = isgp.origin_quadratic(prior, 1.5, -1.0, "paths")
    w = drawn(prior, 200_000)[:, :-1]
    q = ((w @ matrix) * w).sum(dim=1).numpy()
    mean, sd, skewness = isgp.cumulants(prior, matrix)
    assert q.mean() == pytest.approx(mean, abs=4 * sd / math.sqrt(len(q)))
    assert q.std() == pytest.approx(sd, rel=0.02)
    assert ((q - mean) ** 3).mean() / sd**3 == pytest.approx(skewness, rel=0.1)
    assert mean + shift == pytest.approx(1.5)  # unbiased


def test_the_origin_forms_against_quadrature():
    prior = isgp.make_prior(c=0.3, n_basis=6)
    w = drawn(prior, 1)[0, :-1]
    f = plain_f(w.numpy(), 0.3)
    matrix, shift = isgp.origin_quadratic(prior, 0.8, -0.6, "paths")
    integral = quad(lambda z: f(z) ** 2, -0.6, 0.8, epsabs=1e-13)[0]
    assert float(w @ matrix @ w) + shift == pytest.approx(integral - 0.6, abs=1e-11)
