r"""Few draws that stand for a Gaussian posterior of nu, without chance.

Where the data are, a source moves in few directions. Let F be the derivative of nu at points x with
respect to standard normal parameters z, Gamma = mode + R z, and F = U S V^T. In coordinates V^T z,
as normal as z, the first moves nu most, the second less. Points of low discrepancy (Sobol's) fill
the first few far more evenly than random ones: 64 of them give E_q u(nu(x)) as exactly as some
thousands of random draws. Every draw is a source, and an average of increasing functions increases.
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
    """A root R V of the posterior's covariance whose first columns move nu on [low, high] most.

    Each moves nu upwards where it moves it most.
    """
    prior, mode, root = posterior.prior, posterior.mode, posterior.root
    x = torch.linspace(low, high, _POINTS, dtype=mode.dtype)
    slopes = prior.features(x) @ (prior.jacobian(mode) @ root)
    left, _, right = torch.linalg.svd(slopes, full_matrices=True)
    most = left.abs().argmax(dim=0)
    signs = left[most, torch.arange(len(most))].sign()
    right[: len(signs)] *= signs[: len(right), None]
    return root @ right.T
