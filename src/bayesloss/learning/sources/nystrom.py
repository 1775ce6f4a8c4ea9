"""The Nyström approximation with the squared-exponential kernel (W&N appendix F).

For M points X drawn from a density p, the eigenvectors e_i and eigenvalues l_i of k(X, X) give
approximate eigenfunctions of the kernel's integral operator, exact for p replaced by the draws:

    phi_i(z) = sqrt(M) / l_i k(z, X) e_i,   lambda_i = l_i / M.

Their products integrate in closed form, eq. (20): the product of two Gaussians is a Gaussian.
"""

import math

import torch
from torch import Tensor

from bayesloss.kernels import SquaredExponential
from bayesloss.learning.sources.basis import BLOCK, Basis
from bayesloss.tensors import as_number, as_points


class NystromBasis(Basis):
    """Eigenfunctions of a squared-exponential kernel, approximated from points.

    ``eigenvalues`` descend; column i of ``weights`` has phi_i's coefficients in the k(., x_j).

    Parameters
    ----------
    kernel : SquaredExponential
    points : Tensor of shape (M,)
        The draws X; they need not be random.
    jitter : float, default=1e-8
        Added to the diagonal of k(X, X), in units of b: more costs accuracy, less adds rounding
        errors.

    Raises
    ------
    ValueError
        If points or jitter are not finite, the jitter is negative, or k(X, X) numerically singular.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import NystromBasis, SquaredExponential
    >>> basis = NystromBasis(SquaredExponential(a=9.0), torch.linspace(-1, 1, 8))
    >>> basis.variance_at(torch.zeros(1)).round(decimals=2).tolist()  # k(0, 0) is 1
    [1.0]
    """

    def __init__(self, kernel: SquaredExponential, points: Tensor, *, jitter: float = 1e-8) -> None:
        points = as_points(points, "points")
        if not len(points) or not torch.isfinite(points).all():
            raise ValueError(f"expected finite points, at least one, got {points}")
        if not 0 <= jitter < math.inf:
            raise ValueError(f"expected a finite jitter >= 0, got jitter={jitter}")
        self.kernel = kernel
        self.points = points
        self.jitter = jitter
        self.n_basis = len(points)
        noise = torch.full_like(points, jitter).diag() * kernel.b
        values, vectors = torch.linalg.eigh(kernel(points, points) + noise)
        least = as_number(values[0])
        largest = as_number(values[-1])
        # Rounding errors grow with the number of points; 4 leaves a margin.
        if least <= 4 * self.n_basis * torch.finfo(torch.float64).eps * largest:
            raise ValueError(
                f"expected k(X, X) with jitter={jitter:g} to be positive definite, got a least "
                f"eigenvalue of {least:.1e}, no more than rounding errors; raise the jitter, or "
                "take fewer points"
            )
        values = values.flip(0)
        vectors = vectors.flip(1)
        self.eigenvalues = values / self.n_basis  # appendix F
        self.weights = math.sqrt(self.n_basis) * vectors / values

    def __repr__(self) -> str:
        return f"NystromBasis({self.kernel!r}, {self.n_basis} points, jitter={self.jitter:g})"

    def basis(self, x: Tensor) -> Tensor:
        return self.kernel(as_points(x), self.points) @ self.weights

    def psi(self, x: Tensor) -> Tensor:
        return self.weights.T @ product_integrals(self.kernel, self.points, x) @ self.weights

    def integrated_square(self, x: Tensor, w: Tensor) -> Tensor:
        v = self.weights @ w.movedim(-1, 0)
        blocks = as_points(x).split(max(1, BLOCK // self.n_basis**2))
        values = [
            ((product_integrals(self.kernel, self.points, block) @ v) * v).sum(dim=1)
            for block in blocks
        ]
        return torch.cat(values).movedim(0, -1)


def product_integrals(kernel: SquaredExponential, points: Tensor, x: Tensor) -> Tensor:
    """The integrals of k(x_i, z) k(x_j, z) over z from 0 to x: (M,) and (n,) to (n, M, M).

    The key term of eq. (20). It has -a in the exponential, where the print has a, and erf, where
    the print has erfi. With s = sqrt(a) (x_i + x_j) / 2,

        b^2 sqrt(pi / a) / 2 exp(-a (x_i - x_j)^2 / 4) (erf(s) - erf(s - sqrt(a) x)).
    """
    points = as_points(points, "points")
    x = as_points(x)
    root = kernel.a.sqrt()
    total = points[:, None] + points
    gap = points[:, None] - points
    scale = kernel.b**2 * math.sqrt(math.pi) / (2 * root) * torch.exp(-0.25 * kernel.a * gap**2)
    upper = 0.5 * root * total
    return scale * _erf_difference(upper, upper - root * x[:, None, None])  # eq. (20)


def _erf_difference(u: Tensor, v: Tensor) -> Tensor:
    """The difference erf(u) - erf(v), accurate also where both are near 1 or near -1."""
    # Reflect so that u + v >= 0: erf is odd, so (-v, -u) has the same difference.
    negative = u + v < 0
    upper = torch.where(negative, -v, u)
    lower = torch.where(negative, -u, v)
    by_tails = torch.special.erfc(lower) - torch.special.erfc(upper)
    near_one = torch.minimum(upper, lower) > 0.5  # erfc is below erf from 0.48 on
    return torch.where(near_one, by_tails, torch.erf(upper) - torch.erf(lower))
