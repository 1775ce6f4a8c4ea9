"""Tests of the ISGP with a mean by quadrature, automatic differentiation and Monte Carlo."""

import pytest
import torch

from bayesloss import TrigonometricKernel
from bayesloss.learning.sources.centred_isgp import CentredISGP

PRIOR = CentredISGP(
    TrigonometricKernel(a=1.5, c=0.2, n_basis=8).scaled(0.3), tau=0.4, mu=-0.2, gamma=2.0
)
ANY = torch.linspace(-0.7, 1.1, 10, dtype=torch.float64)


def draws(n):
    return PRIOR.sample(n, torch.Generator().manual_seed(0))


def test_source_is_the_integral_of_the_squared_root():
    """nu = nu_0 + the integral of (w_0 + w^T phi)^2, by the trapezoidal rule."""
    w, level, nu_0 = ANY[:-2], ANY[-2], ANY[-1]
    z = torch.linspace(0, 2, 20_001, dtype=torch.float64)
    f = PRIOR.kernel.basis(z) @ w + level
    # The rule's error is h^2 / 12 times the range times the largest second derivative.
    expected = nu_0 + torch.trapezoid(f**2, z)
    assert PRIOR.source(z[-1:], ANY)[0] == pytest.approx(float(expected), abs=1e-7)
    torch.testing.assert_close(PRIOR.derivative(z, ANY), f**2)


def test_derivatives_are_those_of_the_coefficients():
    jacobian = torch.autograd.functional.jacobian(PRIOR.coefficients, ANY)
    torch.testing.assert_close(PRIOR.jacobian(ANY), jacobian)
    s = torch.linspace(1, -2, 18, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(lambda Gamma: s @ PRIOR.coefficients(Gamma), ANY)
    torch.testing.assert_close(PRIOR.curvature(s), hessian)


def test_prior_mean_is_the_line():
    x = torch.linspace(-4, 4, 5, dtype=torch.float64)
    nu = PRIOR.source(x, draws(40_000))
    error = nu.std(dim=0) / 200
    assert ((nu.mean(dim=0) - PRIOR.mean(x)).abs() < 4 * error).all()


def test_moments_of_the_coefficients_are_those_of_draws():
    generator = torch.Generator().manual_seed(1)
    root = 0.3 * torch.randn((10, 10), dtype=torch.float64, generator=generator)
    noise = torch.randn((200_000, 10), dtype=torch.float64, generator=generator)
    rows = torch.randn((4, 18), dtype=torch.float64, generator=generator)
    values = PRIOR.coefficients(ANY + noise @ root.T) @ rows.T
    mean = rows @ PRIOR.mean_coefficients(ANY, root)
    error = values.std(dim=0) / 200_000**0.5
    assert ((values.mean(dim=0) - mean).abs() < 4 * error).all()
    Z = PRIOR.fluctuations(ANY, root, rows)
    scale = values.std(dim=0)
    # Correlations from 200,000 draws with heavy tails are off by about 0.005.
    wrong = (torch.cov(values.T) - Z @ Z.T) / torch.outer(scale, scale)
    assert wrong.abs().max() < 0.02


@pytest.mark.parametrize(("variance", "tau"), [(0.9, 0.5), (0.3, 0.0)])
def test_a_prior_that_leaves_no_level_is_refused(variance, tau):
    kernel = TrigonometricKernel(a=2.0, c=1.0, n_basis=4).scaled(variance)
    with pytest.raises(ValueError, match=r"expected tau > 0 and kernel\.variance"):
        CentredISGP(kernel, tau=tau)
