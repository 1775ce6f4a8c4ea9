"""Inputs of a linear model, dense or sparse, behind the few operations that a fit needs.

Centring would fill a sparse Z. So the mean m stays apart, by (Z - 1 m^T) B = Z B - 1 (m^T B), and
for variances, without cancellation, by

    sum_n w_n (z_nj - m_j)^2 = sum_{stored} w_n (z_nj - m_j)^2 + m_j^2 (W - sum_{stored} w_n).
"""

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import gen_batches
from torch import Tensor

from bayesloss.learning.data.duplicates import equal_rows

_BLOCK = 2**17  # numbers in a block of rows: a megabyte, which a processor's cache holds
_ROWS = 1024  # data in a block of products
_PREDICTED = 2**21  # numbers in a block of prediction

PerRow = Float[Tensor, " n"]
PerColumn = Float[Tensor, " d"]
Directions = Float[Tensor, "d k"]


@runtime_checkable
class Inputs(Protocol):
    """Rows z_n of a matrix of shape (n, d); what comes out are tensors on ``device``."""

    shape: tuple[int, int]
    dtype: torch.dtype = torch.float64
    device: torch.device = torch.device("cpu")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, chosen: Shaped[np.ndarray, " m"]) -> "Inputs":
        return self.rows(torch.from_numpy(chosen))

    @property
    def stored(self) -> int:
        """How many numbers the matrix takes."""

    def largest(self) -> float:
        """The largest of all numbers, in absolute value."""

    def sum(self, weight: PerRow) -> PerColumn:
        """Weighted sums of the columns."""

    def squares_about(self, centre: PerColumn, weight: PerRow) -> PerColumn:
        """Weighted sums of the columns' squared distances from a centre."""

    def scores(self, beta: Float[Tensor, "K d"]) -> Float[Tensor, "K n"]:
        """The scores beta . z_n."""

    def pull_back(self, slopes: Float[Tensor, "K n"]) -> Float[Tensor, "K d"]:
        """Sums of slopes times rows."""

    def along(self, directions: Directions, centre: PerColumn) -> Float[Tensor, "n k"]:
        """(z_n - centre) . directions, dense ones in these' precision."""

    def squared_lengths(self, directions: Directions, centre: PerColumn, problems: int) -> Tensor:
        """Squared lengths (problems, n) along the k / problems directions of each problem."""
        out = torch.empty((problems, len(self)), dtype=self.dtype, device=self.device)
        shape = (problems, directions.shape[1] // problems)
        for at in gen_batches(max(1, len(self)), _ROWS):
            along = self.rows(at).along(directions, centre)
            out[:, at] = along.square_().unflatten(1, shape).sum(2).T
        return out

    def rows(self, chosen: Tensor | slice) -> "Inputs":
        """Some of the rows, by number, mask or slice, as inputs of the same kind."""

    def dense(self, chosen: Int[Tensor, " m"]) -> Float[Tensor, "m d"]:
        """Some of the rows, by number, as a new tensor: for few."""

    def equal(self) -> Int[np.ndarray, " n"]:
        """Numbers that are equal where rows are."""


class DenseInputs(Inputs):
    """Inputs that are a tensor."""

    def __init__(self, Z: Float[Tensor, "n d"]) -> None:
        self.Z, self.shape, self.dtype, self.device = Z, tuple(Z.shape), Z.dtype, Z.device
        self._largest: float | None = None

    @property
    def stored(self) -> int:
        return self.Z.numel()

    def largest(self) -> float:
        if self._largest is None:  # a pass over all
            low, high = self.Z.aminmax() if self.stored else (0.0, 0.0)
            self._largest = max(float(high), -float(low))
        return self._largest

    def sum(self, weight: PerRow) -> Tensor:
        return weight @ self.Z

    def squares_about(self, centre: PerColumn, weight: PerRow) -> PerColumn:
        total = torch.zeros_like(centre)
        rows = max(1, _BLOCK // len(centre))
        for part, share in zip(self.Z.split(rows), weight.split(rows), strict=True):
            total += share @ (part - centre).square_()
        return total

    def scores(self, beta: Float[Tensor, "K d"]) -> Float[Tensor, "K n"]:
        return beta @ self.Z.T

    def pull_back(self, slopes: Float[Tensor, "K n"]) -> Float[Tensor, "K d"]:
        return slopes @ self.Z

    def along(self, directions: Directions, centre: PerColumn) -> Float[Tensor, "n k"]:
        if directions.dtype != self.dtype:
            return (self.Z - centre).to(directions.dtype) @ directions
        return (self.Z @ directions).sub_(centre @ directions)

    def rows(self, chosen: Tensor | slice) -> "DenseInputs":
        return DenseInputs(self.Z[chosen].contiguous())

    def dense(self, chosen: Int[Tensor, " m"]) -> Float[Tensor, "m d"]:
        return self.Z[chosen]

    def equal(self) -> Int[np.ndarray, " n"]:
        return equal_rows(self.Z.cpu().numpy())


class SparseInputs(Inputs):
    """A sparse matrix, as from :func:`canonical`, on the CPU; dense only in blocks of rows."""

    def __init__(self, Z: Any) -> None:
        self.Z, self.shape = Z, Z.shape

    @property
    def stored(self) -> int:
        return int(self.Z.nnz)

    def largest(self) -> float:
        return max(float(self.Z.data.max(initial=0.0)), -float(self.Z.data.min(initial=0.0)))

    def sum(self, weight: PerRow) -> PerColumn:
        return torch.from_numpy(self.Z.T @ weight.numpy())

    def squares_about(self, centre: PerColumn, weight: PerRow) -> PerColumn:
        Z, m = self.Z, centre.numpy()
        inside = self._with(np.ones_like(Z.data)).T @ weight.numpy()
        found = self._with((Z.data - m[Z.indices]) ** 2).T @ weight.numpy()
        rest = (float(weight.sum()) - inside).clip(0)
        return torch.from_numpy(found + rest * m**2)

    def scores(self, beta: Float[Tensor, "K d"]) -> Float[Tensor, "K n"]:
        return _product(self.Z, beta.T).T

    def pull_back(self, slopes: Float[Tensor, "K n"]) -> Float[Tensor, "K d"]:
        return _product(self.Z.T, slopes.T).T

    def along(self, directions: Directions, centre: PerColumn) -> Float[Tensor, "n k"]:
        directions = directions.to(self.dtype)
        return _product(self.Z, directions).sub_(centre @ directions)

    def scaled_lengths(self, scale: PerColumn, centre: PerColumn) -> PerRow:
        """Sums of scale_j (z_nj - centre_j)^2 over the columns."""
        s, m = scale.numpy(), centre.numpy()
        # What stored numbers add to the square of the centre's distance from zero.
        sums = self._with(self.Z.data**2) @ s - 2 * (self.Z @ (s * m))
        return torch.from_numpy(sums + float(s @ m**2)).clamp_min_(0)

    def _with(self, data: NDArray[np.float64]) -> Any:
        return type(self.Z)((data, self.Z.indices, self.Z.indptr), shape=self.shape)

    def rows(self, chosen: Tensor | slice) -> "SparseInputs":
        return SparseInputs(self.Z[chosen if isinstance(chosen, slice) else chosen.numpy()])

    def dense(self, chosen: Int[Tensor, " m"]) -> Float[Tensor, "m d"]:
        return torch.from_numpy(self.Z[chosen.numpy()].toarray())

    def equal(self) -> Int[np.ndarray, " n"]:
        return equal_rows(self.Z)


def as_inputs(Z: Float[Tensor, "n d"] | Inputs) -> Inputs:
    """Inputs, made from a tensor if need be."""
    return Z if isinstance(Z, Inputs) else DenseInputs(Z)


def canonical(X: Any) -> Any:
    """A sparse copy with sorted indices and no repeats or zeros; or an array that is writeable."""
    if not issparse(X):
        return np.require(X, requirements="W")
    if X.has_canonical_format and X.data.all():
        return X
    X = X.copy()
    X.sum_duplicates()
    X.eliminate_zeros()
    return X


def centred_scores(
    X: Any, coef: Float[np.ndarray, "K d"], centre: Float[np.ndarray, " d"]
) -> Float[np.ndarray, "K n"]:
    """Coef (z_n - centre) of a dense or sparse matrix of shape (n, d), by blocks."""
    if issparse(X):
        return (X @ coef.T).T - (coef @ centre)[:, None]
    scores = np.empty((len(coef), len(X)))
    for part in gen_batches(len(X), max(1, _PREDICTED // X.shape[1])):
        scores[:, part] = coef @ (X[part] - centre).T
    return scores


def _product(Z: Any, B: Float[Tensor, "d k"]) -> Float[Tensor, "n k"]:
    """Z B for a sparse Z; SciPy's product with one column is twice as fast as with a matrix."""
    if B.shape[1] == 1:
        return torch.from_numpy(Z @ B[:, 0].numpy())[:, None]
    return torch.from_numpy(Z @ np.ascontiguousarray(B.numpy()))
