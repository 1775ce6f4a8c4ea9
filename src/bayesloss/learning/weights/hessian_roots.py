"""Roots of inverse Hessians, H^-1 = R R^T, where H is a sum over few or sampled rows.

H = sum_n m_n (z_n - c) (z_n - c)^T is estimated without bias from rows drawn with probabilities
proportional to mass m_n times a preference; each stands for mass in inverse proportion to these.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bayesloss.learning.data.inputs import Inputs

_ROWS = 4096  # in a block of which the products are summed


def sampled_hessian(
    inputs: Inputs,
    centre: Float[Tensor, " d"],
    mass: Float[Tensor, " n"],
    size: int,
    preference: Float[Tensor, " n"] | None = None,
    *,
    scale: Float[Tensor, " d"] | None = None,
    offset: bool = False,
    total: float = 1.0,
    single: bool = False,
) -> Tensor:
    """The sum H above over the total, from so many rows, maybe scaled and with an offset."""
    rows, mass = sampled(mass, size, preference)
    roots, width = (mass / total).sqrt(), len(centre) + offset
    H = torch.zeros((width, width), dtype=centre.dtype, device=centre.device)
    for chosen, root in zip(rows.split(_ROWS), roots.split(_ROWS), strict=True):
        part = inputs.dense(chosen).sub_(centre)
        if scale is not None:
            part.mul_(scale)
        part.mul_(root[:, None])
        if offset:
            part = torch.cat([part, root[:, None]], dim=1)
        H += gram(part.to(torch.float32) if single else part)
    return H


def inverse_root(H: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """A triangular R with R R^T = H^-1, or NaN where there is none."""
    identity = torch.eye(len(H), dtype=H.dtype, device=H.device)
    return torch.linalg.solve_triangular(factor_of(H), identity, upper=False).T


def factor_of(H: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """The Cholesky factor of H, or NaN where there is none: no need to wait for a device."""
    factor, failed = torch.linalg.cholesky_ex(H)
    return torch.where(failed == 0, factor, math.nan)


def gram(rows: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """rows^T rows; on a processor NumPy computes one half of it."""
    if rows.device.type != "cpu":
        return rows.T @ rows
    array = rows.numpy()
    return torch.from_numpy(array.T @ array)


def sampled(
    mass: Float[Tensor, " n"], size: int, preference: Float[Tensor, " n"] | None = None
) -> tuple[Int[Tensor, " m"], Float[Tensor, " m"]]:
    """Draw rows evenly along the sum of mass times preference, with the mass of each."""
    if len(mass) <= size:
        return torch.arange(len(mass), device=mass.device), mass
    upto = mass.cumsum(0) if preference is None else (mass * preference).cumsum_(0)
    steps = torch.arange(0.5, size, dtype=mass.dtype, device=mass.device) / size
    rows = torch.searchsorted(upto, steps * upto[-1]).clamp_max(len(mass) - 1)
    mass = mass[rows]
    drawn = mass if preference is None else mass * preference[rows]
    return rows, torch.where(drawn > 0, mass * upto[-1] / (size * drawn), 0.0)
