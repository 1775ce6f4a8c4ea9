r"""What a prior over sources asks of its kernel: a finite Mercer expansion (W&N section 3).

    k(x, z) = phi(x)^T Lambda phi(z),   psi(x) = int_0^x phi(z) phi(z)^T dz,   eq. (9).

The eigenvalues, phi and psi are all that a new basis must bring. The rest follows in :math:`O(M^2)`
numbers a point, because whatever is linear in psi is linear in h, the upper triangle of psi in
:math:`F = M(M + 1)/2` columns. A basis whose psi consists of fewer functions overrides the five
methods that speak of h together, as the trigonometric kernel does; what stands here is then a
second route, for tests.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.autograd import forward_ad

from bayesloss.arrays import as_points

__all__ = ["Basis"]

_BLOCK = 2**20  # numbers in a block of psi matrices: 8 MB in float64


class Basis(ABC):
    """Eigenfunctions and eigenvalues of a kernel on a line, and the integrals of their products.

    A subclass sets ``n_basis`` and ``eigenvalues`` and defines :meth:`basis` and :meth:`psi`.

    Attributes
    ----------
    n_basis : int
        Number M of basis functions.
    eigenvalues : Tensor of shape (M,)
        The diagonal of Lambda, positive: the prior variances of the weights w.
    edge : float
        The functions serve on [-edge, edge], in the units of x; a GP is held there.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import ISGP, Basis
    >>> class Constant(Basis):
    ...     n_basis, eigenvalues = 1, torch.ones(1, dtype=torch.float64)
    ...     def basis(self, x):
    ...         return torch.ones_like(x)[:, None]
    ...     def psi(self, x):
    ...         return x[:, None, None]
    >>> x, Gamma = torch.tensor([[0.0, 1.0], [3.0, 0.5]], dtype=torch.float64)
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
        """The derivatives phi'(x), (n,) to (n, M), here by forward differentiation."""
        x = as_points(x)
        with torch.inference_mode(False), forward_ad.dual_level():
            phi = self.basis(forward_ad.make_dual(x.clone(), torch.ones_like(x)))
            slope = forward_ad.unpack_dual(phi).tangent
        return torch.zeros_like(phi) if slope is None else slope

    def variance_at(self, x: Tensor) -> Tensor:
        """The prior variance k(x, x) of f(x), of shape (n,)."""
        return self.basis(x) ** 2 @ self.eigenvalues  # eq. (7)

    def integrated_variance(self, x: Tensor) -> Tensor:
        """The integral of k(z, z) from 0 to x, tr(psi(x) Lambda), of shape (n,)."""
        # eq. (10)
        return self.integrals(x) @ self.square_coefficients(torch.diag(self.eigenvalues))

    def integrals(self, x: Tensor) -> Tensor:
        """The functions h(x) that the entries of psi(x) are made of: (n,) to (n, F)."""
        row, column = self._triangle(x.device)
        rows = max(1, _BLOCK // self.n_basis**2)
        return torch.cat([self.psi(part)[:, row, column] for part in as_points(x).split(rows)])

    def square_coefficients(self, moment: Tensor) -> Tensor:
        """The p with p^T h(x) = tr(psi(x) moment), for symmetric moments: (..., M, M) to (..., F).

        With ``moment = w w^T`` they are the coefficients of the integral of (w^T phi)^2, eq. (8).
        """
        row, column = self._triangle(moment.device)
        return moment[..., row, column] * (2 - (row == column).to(moment.dtype))

    def combine(self, s: Tensor) -> Tensor:
        """The symmetric C with w^T C w = s^T square_coefficients(w w^T): (..., F) to (..., M, M).

        ``combine(integrals(x))`` is psi(x); ``combine(weights @ integrals(x))`` is a weighted sum
        of psi over many points without any psi.
        """
        row, column = self._triangle(s.device)
        out = s.new_zeros((*s.shape[:-1], self.n_basis, self.n_basis))
        out[..., row, column] = out[..., column, row] = s
        return out

    def squares(self) -> tuple[Tensor, Tensor]:
        """Vectors v_t and a matrix P with square_coefficients(w w^T) = P (v w)^2 for every w.

        Of shape (T, M) and (F, T); here by 2 w_i w_j = (w_i + w_j)^2 - w_i^2 - w_j^2.
        """
        row, column = self._triangle(self.eigenvalues.device)
        unit = torch.eye(self.n_basis, dtype=torch.float64, device=row.device)
        pair, place = row != column, torch.arange(len(row), device=row.device)
        alone = place[~pair]  # where w_i^2 stands
        P = torch.eye(len(row), dtype=torch.float64, device=row.device)
        P[place[pair], alone[row[pair]]] = -1
        P[place[pair], alone[column[pair]]] = -1
        return unit[row] + pair[:, None] * unit[column], P

    def jacobian(self, w: Tensor) -> Tensor:
        """The derivative of square_coefficients(w w^T) with respect to w: (M,) to (F, M)."""
        row, column = self._triangle(w.device)
        unit = torch.eye(self.n_basis, dtype=w.dtype, device=w.device)
        slope = w[row, None] * unit[column] + w[column, None] * unit[row]
        return slope * (2 - (row == column).to(w.dtype))[:, None]

    def integrated_square(self, x: Tensor, w: Tensor) -> Tensor:
        """The integral of (w^T phi)^2 from 0 to x, eq. (8).

        Parameters
        ----------
        x : Tensor of shape (n,)
        w : Tensor of shape (M,) or (S, M)

        Returns
        -------
        Tensor of shape (n,) or (S, n)
        """
        rows = max(1, _BLOCK // self.n_basis**2)
        parts = [((w @ self.psi(part)) * w).sum(dim=-1) for part in as_points(x).split(rows)]
        return torch.cat(parts).movedim(0, -1)

    def _triangle(self, device: torch.device) -> tuple[Tensor, Tensor]:
        row, column = torch.triu_indices(self.n_basis, self.n_basis, device=device)
        return row, column
