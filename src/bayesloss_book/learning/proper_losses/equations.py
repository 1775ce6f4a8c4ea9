"""Equations (1) and (2) of W&N as they are written: automatic differentiation, no limits."""

from collections.abc import Callable

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from bayesloss.tensors import as_float64


def bregman(
    generator: Callable[[Tensor], Tensor], x: ArrayLike | Tensor, x0: ArrayLike | Tensor
) -> Tensor:
    """The Bregman divergence D_G(x || x0) = G(x) - G(x0) - (x - x0) G'(x0), elementwise."""
    x = as_float64(x)
    x0 = as_float64(x0).detach().requires_grad_()
    value = generator(x0)
    (slope,) = torch.autograd.grad(value.sum(), x0)
    return (generator(x) - value - (x - x0) * slope).detach()


def margin_representation(
    margin: Callable[[Tensor], Tensor], x: ArrayLike | Tensor
) -> tuple[Tensor, Tensor]:
    """Which inverse link equation (2) gives to a margin loss G at scores x, and the total slope S.

    q(x) = G'(-x) / S(x), ``nan`` where both slopes vanish, and S(x) = G'(x) + G'(-x). The
    conditional risk at probability pi has the derivative S(x) (pi - q(x)). So if q increases, q is
    the inverse link of a proper loss where S is negative; where S is positive the risk is not least
    at pi = q(x), but greatest.
    """
    x = as_float64(x).detach()
    slopes = []
    for point in (x, -x):
        at = point.clone().requires_grad_()
        (slope,) = torch.autograd.grad(margin(at).sum(), at)
        slopes.append(slope)
    total = slopes[0] + slopes[1]
    return slopes[1] / total, total
