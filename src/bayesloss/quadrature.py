"""Gauss's rules: E f(z) for z ~ N(0, 1), and the integral of f over [-1, 1], by a few nodes."""

from functools import cache

import torch
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss
from torch import Tensor


@cache
@torch.inference_mode(False)  # the numbers are kept, for gradients, too
def gauss_hermite(n: int) -> tuple[Tensor, Tensor]:
    """Nodes z and weights, which sum to 1: exact for polynomials of degree below 2 n."""
    nodes, weights = hermegauss(n)
    return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())


@cache
@torch.inference_mode(False)
def gauss_legendre(n: int) -> tuple[Tensor, Tensor]:
    """Nodes in [-1, 1] and weights, which sum to 2: exact for the same polynomials."""
    nodes, weights = leggauss(n)
    return torch.from_numpy(nodes), torch.from_numpy(weights)
