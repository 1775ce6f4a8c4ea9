"""Few deterministic draws that represent a Gaussian posterior of nu.

Let F = U S V^T be the derivative of nu at points x by the z of Gamma = mode + R z. The first few
coordinates of V^T z, standard normal too, move nu most, and Sobol's points are most even in these:
64 give E_q u(nu(x)) as exactly as thousands of random draws, and every one is a source.
"""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.inference.laplace import Posterior

_POINTS = 64  # at which the derivative is taken


@lru_cache(maxsize=8)
def even_normals(n: int, width: int) -> Float[Tensor, "{n} {width}"]:
    """Standard normal points of low discrepancy; the same at each call."""
    points = torch.quasirandom.SobolEngine(width, scramble=True, seed=0).draw(
        n, dtype=torch.float64
    )
    least = 2.0**-31  # half of the points' resolution: 0 would be infinite
    return torch.special.ndtri(points.clamp(least, 1 - least))


def ordered_root(posterior: Posterior, low: float, high: float) -> Float[Tensor, "p p"]:
    """A root R V of the covariance; its first columns move nu on [low, high] most, and upwards."""
    prior, mode, root = posterior.prior, posterior.mode, posterior.root
    x = torch.linspace(low, high, _POINTS, dtype=mode.dtype)
    slopes = prior.features(x) @ (prior.jacobian(mode) @ root)
    left, _, right = torch.linalg.svd(slopes, full_matrices=True)
    most = left.abs().argmax(dim=0)
    signs = left[most, torch.arange(len(most))].sign()
    right[: len(signs)] *= signs[: len(right), None]
    return root @ right.T
