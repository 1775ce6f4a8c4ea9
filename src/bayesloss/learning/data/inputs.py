r"""Inputs of a linear model, dense or sparse, behind the few operations that a fit asks of them.

A fit of weights never looks at an input by itself. It asks for the scores of weights, Z beta^T; for
the slopes of weights from those of scores, S Z; for means and mean squares; for squared lengths
along directions; and for some rows. Whoever answers these can be fitted.

Inputs are centred, z - m, and a sparse matrix that is centred is no longer sparse. So the mean
stays apart: (Z - 1 m^T) B = Z B - 1 (m^T B) is a product with what is stored and a correction of
rank one. Variances are sums over what is stored, and m_j^2 for the rest of column j:

    sum_n w_n (z_nj - m_j)^2 = sum_{stored} w_n (z_nj - m_j)^2 + m_j^2 (W - sum_{stored} w_n),

in which nothing cancels.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor

from bayesloss.learning.data.duplicates import equal_rows

__all__ = [
    "DenseInputs",
    "Inputs",
    "SparseInputs",
    "as_inputs",
    "canonical",
    "centred_scores",
]

_BLOCK = 2**17  # numbers in a block of rows: a megabyte, which a processor's cache holds
_ROWS = 1024  # data in a block of products
_PREDICTED = 2**21  # numbers in a block of prediction

Array = NDArray[np.float64]


class Inputs(ABC):
    """Rows z_n of a matrix of shape (n, d); what comes out are tensors on ``device``."""

    shape: tuple[int, int]
    dtype: torch.dtype = torch.float64
    device: torch.device = torch.device("cpu")

    def __len__(self) -> int:
        return self.shape[0]

    @property
    @abstractmethod
    def stored(self) -> int:
        """How many numbers the matrix takes."""

    @abstractmethod
    def largest(self) -> float:
        """The largest of all numbers, in absolute value."""

    @abstractmethod
    def sum(self, weight: Tensor) -> Tensor:
        """Weighted sums of the columns, (d,)."""

    @abstractmethod
    def squares_about(self, centre: Tensor, weight: Tensor) -> Tensor:
        """Weighted sums of the columns' squared distances from a centre, (d,)."""

    @abstractmethod
    def scores(self, beta: Tensor) -> Tensor:
        """The scores beta . z_n, (K, n), for weights of shape (K, d)."""

    @abstractmethod
    def pull_back(self, slopes: Tensor) -> Tensor:
        """Sums of slopes, (K, n), times rows: (K, d)."""

    @abstractmethod
    def along(self, directions: Tensor, centre: Tensor) -> Tensor:
        """(z_n - centre) . directions, (n, k), for directions of shape (d, k)."""

    @abstractmethod
    def squared_lengths(self, directions: Tensor, centre: Tensor, problems: int) -> Tensor:
        """Squared lengths along the directions of each problem, (problems, n).

        Parameters
        ----------
        directions : Tensor of shape (d, problems * any)
            In single precision where that is enough.
        centre : Tensor of shape (d,)
        problems : int
        """

    @abstractmethod
    def rows(self, chosen: Tensor | slice) -> "Inputs":
        """Some of the rows, by number, mask or slice, as inputs of the same kind."""

    @abstractmethod
    def dense(self, chosen: Tensor) -> Tensor:
        """Some of the rows, by number, as a new tensor of shape (m, d): for few."""

    @abstractmethod
    def equal(self) -> NDArray[np.int64]:
        """Numbers, (n,), that are equal where rows are."""


class DenseInputs(Inputs):
    """Inputs that are a tensor.

    Parameters
    ----------
    Z : Tensor of shape (n, d)
    """

    def __init__(self, Z: Tensor) -> None:
        self.Z, self.shape, self.dtype, self.device = Z, tuple(Z.shape), Z.dtype, Z.device
        self._largest: float | None = None

    @property
    def stored(self) -> int:
        """How many numbers the matrix takes."""
        return self.Z.numel()

    def largest(self) -> float:
        """The largest of all numbers, in absolute value."""
        if self._largest is None:  # a pass over all
            low, high = self.Z.aminmax()
            self._largest = max(float(high), -float(low))
        return self._largest

    def sum(self, weight: Tensor) -> Tensor:
        """Weighted sums of the columns, (d,)."""
        return weight @ self.Z

    def squares_about(self, centre: Tensor, weight: Tensor) -> Tensor:
        """Weighted sums of the columns' squared distances from a centre, (d,)."""
        total = torch.zeros_like(centre)
        rows = max(1, _BLOCK // len(centre))
        for part, share in zip(self.Z.split(rows), weight.split(rows), strict=True):
            total += share @ (part - centre).square_()
        return total

    def scores(self, beta: Tensor) -> Tensor:
        """The scores beta . z_n, (K, n), for weights of shape (K, d)."""
        return beta @ self.Z.T

    def pull_back(self, slopes: Tensor) -> Tensor:
        """Sums of slopes, (K, n), times rows: (K, d)."""
        return slopes @ self.Z

    def along(self, directions: Tensor, centre: Tensor) -> Tensor:
        """(z_n - centre) . directions, (n, k), for directions of shape (d, k)."""
        return self.Z @ directions - centre @ directions

    def squared_lengths(self, directions: Tensor, centre: Tensor, problems: int) -> Tensor:
        """Squared lengths along the directions of each problem, (problems, n)."""
        out = self.Z.new_empty((problems, len(self)))
        shape = (problems, directions.shape[1] // problems)
        narrow = directions.dtype != self.dtype
        offset = None if narrow else centre @ directions
        for part, squares in zip(self.Z.split(_ROWS), out.split(_ROWS, dim=1), strict=True):
            if narrow:
                along = (part - centre).to(directions.dtype) @ directions
            else:
                along = (part @ directions).sub_(offset)
            squares[:] = along.square_().unflatten(1, shape).sum(2).T
        return out

    def rows(self, chosen: Tensor | slice) -> "DenseInputs":
        """Some of the rows, by number, mask or slice, as inputs of the same kind."""
        return DenseInputs(self.Z[chosen].contiguous())

    def dense(self, chosen: Tensor) -> Tensor:
        """Some of the rows, by number, as a new tensor of shape (m, d): for few."""
        return self.Z[chosen]

    def equal(self) -> NDArray[np.int64]:
        """Numbers, (n,), that are equal where rows are."""
        return equal_rows(self.Z.cpu().numpy())


class SparseInputs(Inputs):
    """Inputs that are a sparse matrix, on the processor; never made dense but for blocks of rows.

    Parameters
    ----------
    Z : csr_matrix or csr_array of shape (n, d)
        In canonical format, without explicit zeros.
    """

    def __init__(self, Z: Any) -> None:
        self.Z, self.shape = Z, Z.shape

    @property
    def stored(self) -> int:
        """How many numbers the matrix takes."""
        return int(self.Z.nnz)

    def largest(self) -> float:
        """The largest of all numbers, in absolute value."""
        return max(float(self.Z.data.max(initial=0.0)), -float(self.Z.data.min(initial=0.0)))

    def sum(self, weight: Tensor) -> Tensor:
        """Weighted sums of the columns, (d,)."""
        return torch.from_numpy(self.Z.T @ weight.numpy())

    def squares_about(self, centre: Tensor, weight: Tensor) -> Tensor:
        """Weighted sums of the columns' squared distances from a centre, (d,)."""
        Z, m = self.Z, centre.numpy()
        inside = self._with(np.ones_like(Z.data)).T @ weight.numpy()
        found = self._with((Z.data - m[Z.indices]) ** 2).T @ weight.numpy()
        rest = (float(weight.sum()) - inside).clip(0)
        return torch.from_numpy(found + rest * m**2)

    def scores(self, beta: Tensor) -> Tensor:
        """The scores beta . z_n, (K, n), for weights of shape (K, d)."""
        return _product(self.Z, beta.T).T

    def pull_back(self, slopes: Tensor) -> Tensor:
        """Sums of slopes, (K, n), times rows: (K, d)."""
        return _product(self.Z.T, slopes.T).T

    def along(self, directions: Tensor, centre: Tensor) -> Tensor:
        """(z_n - centre) . directions, (n, k), for directions of shape (d, k)."""
        return _product(self.Z, directions) - centre @ directions

    def squared_lengths(self, directions: Tensor, centre: Tensor, problems: int) -> Tensor:
        """Squared lengths along the directions of each problem, (problems, n)."""
        directions = directions.to(self.dtype)
        out = torch.empty((problems, len(self)), dtype=self.dtype)
        shape = (problems, directions.shape[1] // problems)
        offset = (centre @ directions).numpy()
        for begin in range(0, len(self), _ROWS):
            along = torch.from_numpy(self.Z[begin : begin + _ROWS] @ directions.numpy() - offset)
            out[:, begin : begin + _ROWS] = along.square_().unflatten(1, shape).sum(2).T
        return out

    def scaled_lengths(self, scale: Tensor, centre: Tensor) -> Tensor:
        """Sums of scale_j (z_nj - centre_j)^2 over the columns, (n,)."""
        s, m = scale.numpy(), centre.numpy()
        # What stored numbers add to the square of the centre's distance from zero.
        sums = self._with(self.Z.data**2) @ s - 2 * (self.Z @ (s * m))
        return torch.from_numpy(sums + float(s @ m**2)).clamp_min_(0)

    def _with(self, data: Array) -> Any:
        """A matrix with other numbers in the same places."""
        return type(self.Z)((data, self.Z.indices, self.Z.indptr), shape=self.shape)

    def rows(self, chosen: Tensor | slice) -> "SparseInputs":
        """Some of the rows, by number, mask or slice, as inputs of the same kind."""
        return SparseInputs(self.Z[chosen if isinstance(chosen, slice) else chosen.numpy()])

    def dense(self, chosen: Tensor) -> Tensor:
        """Some of the rows, by number, as a new tensor of shape (m, d): for few."""
        return torch.from_numpy(self.Z[chosen.numpy()].toarray())

    def equal(self) -> NDArray[np.int64]:
        """Numbers, (n,), that are equal where rows are."""
        return equal_rows(self.Z)


def as_inputs(Z: Tensor | Inputs) -> Inputs:
    """Inputs, which a tensor of shape (n, d) becomes."""
    return Z if isinstance(Z, Inputs) else DenseInputs(Z)


def canonical(X: Any) -> Any:
    """X itself if it is an array that may be written to; else, or if sparse, a copy in good form.

    A good form of a sparse matrix has sorted indices, no number twice, and no zeros.
    """
    if not issparse(X):
        return np.require(X, requirements="W")
    if X.has_canonical_format and X.data.all():
        return X
    X = X.copy()
    X.sum_duplicates()
    X.eliminate_zeros()
    return X


def centred_scores(X: Any, coef: Array, centre: Array) -> Array:
    """Coef (z_n - centre), (K, n), of an array or a sparse matrix of shape (n, d), by blocks."""
    if issparse(X):
        return (X @ coef.T).T - (coef @ centre)[:, None]
    scores = np.empty((len(coef), len(X)))
    rows = max(1, _PREDICTED // X.shape[1])
    for begin in range(0, len(X), rows):
        part = slice(begin, begin + rows)
        scores[:, part] = coef @ (X[part] - centre).T
    return scores


def _product(Z: Any, B: Tensor) -> Tensor:
    """Z B for a sparse Z; SciPy's product with one column is twice as fast as with a matrix."""
    if B.shape[1] == 1:
        return torch.from_numpy(Z @ B[:, 0].numpy())[:, None]
    return torch.from_numpy(Z @ np.ascontiguousarray(B.numpy()))
