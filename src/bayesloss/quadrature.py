"""Gauss and Hermite's rule: E f(z) for z ~ N(0, 1) as a weighted sum over a few nodes."""

from functools import cache

import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor


@cache
@torch.inference_mode(False)  # the numbers are kept, for gradients, too
def gauss_hermite(n: int) -> tuple[Tensor, Tensor]:
    """Nodes z and weights, which sum to 1: exact for polynomials of degree below 2 n."""
    nodes, weights = hermegauss(n)
    return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())
