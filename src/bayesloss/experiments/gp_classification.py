"""The toys of the page on GP classification: brute-force truths, and its figures."""

import math

import torch
from torch import Tensor

from bayesloss.calibrating.probit_mode import log_joint

__all__ = ["brute_force"]


def brute_force(
    features: Tensor, y: Tensor, *, half: float = 8.0, n: int = 161
) -> tuple[Tensor, Tensor, float]:
    """The exact posterior of up to three whitened weights, by the trapezoidal rule.

    Parameters
    ----------
    features : Tensor of shape (n, r)
    y : Tensor of shape (n,)
    half, n : float and int
        The grid: from -half to half prior standard deviations, n points a dimension.

    Returns
    -------
    mean : Tensor of shape (r,)
    covariance : Tensor of shape (r, r)
    log_evidence : float
    """
    r = features.shape[-1]
    axis = torch.linspace(-half, half, n, dtype=torch.float64)
    grid = torch.cartesian_prod(*[axis] * r).reshape(-1, r)
    log_density = log_joint(grid, features, y) - 0.5 * r * math.log(2 * math.pi)
    log_mass = torch.logsumexp(log_density, 0)
    weight = (log_density - log_mass).exp()
    mean = weight @ grid
    centred = grid - mean
    covariance = centred.mT @ (centred * weight[:, None])
    return mean, covariance, float(log_mass) + r * math.log(2 * half / (n - 1))
