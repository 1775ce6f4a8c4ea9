"""What a prior over sources asks of its kernel: a finite Mercer expansion (W&N section 3).

    k(x, z) = phi(x)^T Lambda phi(z),   psi(x) = int_0^x phi(z) phi(z)^T dz,   eq. (9).

The integral of a squared f = w^T phi combines functions h of x, the upper triangle of psi, with
squares of linear functions of w:

    int_0^x f(z)^2 dz = w^T psi(x) w = h(x)^T P (V w)^2.

A basis that needs fewer functions, such as the trigonometric kernel, overrides
:meth:`Basis.integrals` and :meth:`Basis.squares` together.
"""

import math
from abc import ABC, abstractmethod
from functools import lru_cache

import torch
from torch import Tensor
from torch.autograd import forward_ad

from bayesloss.tensors import as_points

BLOCK = 2**20  # numbers in a block of rows: 8 MB in float64, near the processor's cache


class Basis(ABC):
    """Eigenfunctions and eigenvalues of a kernel on a line, and the integrals of their products.

    A subclass defines :meth:`basis`, :meth:`psi` and these attributes.

    Attributes
    ----------
    n_basis, eigenvalues : int, Tensor of shape (M,)
        The number M of basis functions, and their weights' prior variances: the diagonal of Lambda.
    edge : float
        The functions serve on [-edge, edge], infinite by default; beyond, a GP is constant.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import ISGP, Basis
    >>> class Constant(Basis):
    ...     n_basis = 1
    ...     eigenvalues = torch.ones(1, dtype=torch.float64)
    ...     def basis(self, x):
    ...         return torch.ones_like(x)[:, None]
    ...     def psi(self, x):
    ...         return x[:, None, None]
    >>> x = torch.tensor([0.0, 1.0], dtype=torch.float64)
    >>> Gamma = torch.tensor([3.0, 0.5], dtype=torch.float64)  # w, nu_0
    >>> ISGP(Constant()).source(x, Gamma).tolist()  # a line: nu_0 + w^2 x
    [0.5, 9.5]
    """

    n_basis: int
    eigenvalues: Tensor
    edge: float = math.inf

    @abstractmethod
    def basis(self, x: Tensor) -> Tensor:
        """The functions phi(x): (n,) to (n, M)."""

    @abstractmethod
    def psi(self, x: Tensor) -> Tensor:
        """The matrix psi(x) of eq. (9): (n,) to (n, M, M)."""

    def slopes(self, x: Tensor) -> Tensor:
        """The derivatives phi'(x), (n,) to (n, M), by forward differentiation."""
        x = as_points(x)
        with torch.inference_mode(False), forward_ad.dual_level():
            phi = self.basis(forward_ad.make_dual(x.clone(), torch.ones_like(x)))
            slope = forward_ad.unpack_dual(phi).tangent
        if slope is None:  # phi does not depend on x
            return torch.zeros_like(phi)
        return slope

    def variance_at(self, x: Tensor) -> Tensor:
        """The prior variance k(x, x) of f(x), of shape (n,)."""
        return self.basis(x) ** 2 @ self.eigenvalues  # eq. (7)

    def integrals(self, x: Tensor) -> Tensor:
        """The functions h(x) that the entries of psi(x) are made of: (n,) to (n, F)."""
        row, column = torch.triu_indices(self.n_basis, self.n_basis, device=x.device)
        blocks = as_points(x).split(max(1, BLOCK // self.n_basis**2))
        return torch.cat([self.psi(block)[:, row, column] for block in blocks])

    def squares(self) -> tuple[Tensor, Tensor]:
        """V (T, M) and P (F, T), which may be sparse and best cached: w^T psi w = h^T P (V w)^2."""
        return _polarisation(self.n_basis, self.eigenvalues.device)

    def square_coefficients(self, w: Tensor) -> Tensor:
        """The p with h(x)^T p = w^T psi(x) w, eq. (8): (M,) to (F,), or (S, M) to (S, F)."""
        V, P = self.squares()
        return (P @ (V @ w.movedim(-1, 0)) ** 2).movedim(0, -1)

    def integrated_square(self, x: Tensor, w: Tensor) -> Tensor:
        """The integral of (w^T phi)^2 from 0 to x, eq. (8): w of (M,) to (n,), (S, M) to (S, n)."""
        blocks = as_points(x).split(max(1, BLOCK // self.n_basis**2))
        values = [((w @ self.psi(block)) * w).sum(dim=-1) for block in blocks]
        return torch.cat(values).movedim(0, -1)


@lru_cache(maxsize=4)
@torch.inference_mode(False)  # or else what is kept there could not be differentiated elsewhere
def _polarisation(n_basis: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """V, and P by 2 w_i w_j = (w_i + w_j)^2 - w_i^2 - w_j^2.

    V w has the w_i and the sums w_i + w_j, in the order of the upper triangle of psi.
    """
    row, column = torch.triu_indices(n_basis, n_basis, device=device)
    unit = torch.eye(n_basis, dtype=torch.float64, device=device)
    off_diagonal = row != column
    V = unit[row] + off_diagonal[:, None] * unit[column]
    position = torch.arange(len(row), device=device)
    of_sum = position[off_diagonal]  # where V w has w_i + w_j,
    of_single = position[~off_diagonal]  # and where it has w_i
    P = torch.eye(len(row), dtype=torch.float64, device=device)
    P[of_sum, of_single[row[off_diagonal]]] = -1
    P[of_sum, of_single[column[off_diagonal]]] = -1
    return V, P.to_sparse()
