"""Gauss and Hermite's rule against the moments of the normal distribution."""

import math

import pytest
import torch

from bayesloss.quadrature import gauss_hermite


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


def test_nodes_asked_for_without_gradients_serve_with_them():
    with torch.inference_mode():
        nodes, weights = gauss_hermite(7)
    shift = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (weights @ (nodes + shift) ** 2).backward()
    assert float(shift.grad) == pytest.approx(0, abs=1e-12)
