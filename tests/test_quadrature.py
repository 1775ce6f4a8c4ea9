"""Gauss's rules against the moments of the normal and of the uniform distribution."""

import math

import pytest
import torch

from bayesloss.quadrature import gauss_hermite, gauss_legendre


@pytest.mark.parametrize("n", [1, 3, 15, 20])
def test_polynomials_are_averaged_exactly(n):
    """E z^(2 k) = 1 * 3 * ... * (2 k - 1) for degrees below 2 n, and no more."""
    nodes, weights = gauss_hermite(n)
    for k in range(min(n, 8)):
        expected = math.prod(range(1, 2 * k, 2))
        assert float(weights @ nodes ** (2 * k)) == pytest.approx(expected, rel=1e-10)
        assert float(weights @ nodes ** (2 * k + 1)) == pytest.approx(0, abs=1e-10 * expected)
    if n < 8:
        assert abs(float(weights @ nodes ** (2 * n)) - math.prod(range(1, 2 * n, 2))) > 0.5


@pytest.mark.parametrize("n", [1, 3, 16, 40])
def test_polynomials_are_integrated_exactly(n):
    """The integral of t^(2 k) over [-1, 1] is 2 / (2 k + 1), for degrees below 2 n, and no more."""
    nodes, weights = gauss_legendre(n)
    for k in range(n):
        expected = 2 / (2 * k + 1)
        assert float(weights @ nodes ** (2 * k)) == pytest.approx(expected, rel=1e-12)
        assert float(weights @ nodes ** (2 * k + 1)) == pytest.approx(0, abs=1e-14)
    if n < 4:
        assert abs(float(weights @ nodes ** (2 * n)) - 2 / (2 * n + 1)) > 0.01


@pytest.mark.parametrize("rule", [gauss_hermite, gauss_legendre])
def test_nodes_asked_for_without_gradients_serve_with_them(rule):
    rule.cache_clear()  # another test may have asked for them with gradients
    with torch.inference_mode():
        nodes, weights = rule(7)
    shift = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (weights @ (nodes + shift) ** 2).backward()
    assert float(shift.grad) == pytest.approx(0, abs=1e-12)
