"""Inputs of a linear model, dense or sparse, behind the few operations that a fit needs.

Centring would fill a sparse Z. So the mean m stays apart, by (Z - 1 m^T) B = Z B - 1 (m^T B), and
for variances, without cancellation, by

    sum_n w_n (z_nj - m_j)^2 = sum_{stored} w_n (z_nj - m_j)^2 + m_j^2 (W - sum_{stored} w_n).

Oversampling, bagging and repeated measures repeat a row; counts give it a weight. Here both are the
same: equal rows become one, with their total weight. How far they are held out together, as rows
may be alike by nature, is said by :mod:`bayesloss.learning.data.folds`.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped, UInt64
from numpy import ndarray
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import gen_batches
from torch import Tensor

from bayesloss.threads import in_parts, threads_for

_BLOCK = 2**17  # numbers in a block of rows: a megabyte, which a processor's cache holds
_CELLS = 2**16  # numbers hashed at a time: half a megabyte
_ODD = np.uint64(0xBF58476D1CE4E5B9)  # a factor of SplitMix64, which spreads each bit over all
_ROWS = 1024  # whose products with directions are made together
_PREDICTED = 2**21  # numbers in a block of prediction: 16 megabytes

PerRow = Float[Tensor, " n"]
PerColumn = Float[Tensor, " d"]
Directions = Float[Tensor, "d k"]


class Inputs(ABC):
    """Rows z_n of a matrix of shape (n, d); what comes out are tensors on ``device``."""

    shape: tuple[int, int]
    dtype: torch.dtype = torch.float64
    device: torch.device = torch.device("cpu")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, chosen: Shaped[np.ndarray, " m"]) -> "Inputs":
        return self.rows(torch.from_numpy(chosen))

    @property
    @abstractmethod
    def stored(self) -> int:
        """How many numbers the matrix takes."""

    @abstractmethod
    def largest(self) -> float:
        """The largest of all numbers, in absolute value."""

    @abstractmethod
    def sum(self, weight: PerRow) -> PerColumn:
        """Weighted sums of the columns."""

    @abstractmethod
    def squares_about(self, centre: PerColumn, weight: PerRow) -> PerColumn:
        """Weighted sums of the columns' squared distances from a centre."""

    @abstractmethod
    def scores(self, beta: Float[Tensor, "K d"]) -> Float[Tensor, "K n"]:
        """The scores beta . z_n."""

    @abstractmethod
    def pull_back(self, slopes: Float[Tensor, "K n"]) -> Float[Tensor, "K d"]:
        """Sums of slopes times rows."""

    @abstractmethod
    def along(self, directions: Directions, centre: PerColumn) -> Float[Tensor, "n k"]:
        """(z_n - centre) . directions, dense ones in these' precision."""

    def squared_lengths(self, directions: Directions, centre: PerColumn, problems: int) -> Tensor:
        """Squared lengths (problems, n) along the k / problems directions of each problem."""
        shape = (problems, directions.shape[1] // problems)

        def squares(at: slice) -> Tensor:
            along = self.rows(at).along(directions, centre)
            return along.square_().unflatten(1, shape).sum(2).T.to(self.dtype)

        parts = gen_batches(max(1, len(self)), _ROWS)
        return torch.cat(in_parts(squares, parts, len(self), *directions.shape), dim=1)

    @abstractmethod
    def rows(self, chosen: Tensor | slice) -> "Inputs":
        """Some of the rows, by number, mask or slice, as inputs of the same kind."""

    @abstractmethod
    def dense(self, chosen: Int[Tensor, " m"]) -> Float[Tensor, "m d"]:
        """Some of the rows, by number, as a new tensor: for few."""

    @abstractmethod
    def equal(self) -> Int[np.ndarray, " n"]:
        """Numbers that are equal where rows are."""


class DenseInputs(Inputs):
    """Inputs that are a tensor."""

    def __init__(self, Z: Float[Tensor, "n d"]) -> None:
        self.Z = Z
        self.shape = tuple(Z.shape)
        self.dtype = Z.dtype
        self.device = Z.device
        self._largest: float | None = None

    @property
    def stored(self) -> int:
        return self.Z.numel()

    def largest(self) -> float:
        if self.stored == 0:
            return 0.0
        if self._largest is None:  # a pass over all
            low, high = self.Z.aminmax()
            self._largest = max(float(high), -float(low))
        return self._largest

    def sum(self, weight: PerRow) -> Tensor:
        with threads_for(1, *self.shape):
            return weight @ self.Z

    def squares_about(self, centre: PerColumn, weight: PerRow) -> PerColumn:
        total = torch.zeros_like(centre)
        rows = max(1, _BLOCK // len(centre))
        for block, block_weight in zip(self.Z.split(rows), weight.split(rows), strict=True):
            total += block_weight @ (block - centre).square_()
        return total

    def scores(self, beta: Float[Tensor, "K d"]) -> Float[Tensor, "K n"]:
        with threads_for(len(beta), self.shape[1], len(self)):
            return beta @ self.Z.T

    def pull_back(self, slopes: Float[Tensor, "K n"]) -> Float[Tensor, "K d"]:
        with threads_for(len(slopes), *self.shape):
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
        self.Z = Z
        self.shape = Z.shape

    @property
    def stored(self) -> int:
        return int(self.Z.nnz)

    def largest(self) -> float:
        return max(float(self.Z.data.max(initial=0.0)), -float(self.Z.data.min(initial=0.0)))

    def sum(self, weight: PerRow) -> PerColumn:
        return torch.from_numpy(self.Z.T @ weight.numpy())

    def squares_about(self, centre: PerColumn, weight: PerRow) -> PerColumn:
        Z = self.Z
        m = centre.numpy()
        w = weight.numpy()
        of_stored = self._with((Z.data - m[Z.indices]) ** 2).T @ w
        stored_weight = self._with(np.ones_like(Z.data)).T @ w
        rest = (float(weight.sum()) - stored_weight).clip(0)
        return torch.from_numpy(of_stored + rest * m**2)

    def scores(self, beta: Float[Tensor, "K d"]) -> Float[Tensor, "K n"]:
        return _product(self.Z, beta.T).T

    def pull_back(self, slopes: Float[Tensor, "K n"]) -> Float[Tensor, "K d"]:
        return _product(self.Z.T, slopes.T).T

    def along(self, directions: Directions, centre: PerColumn) -> Float[Tensor, "n k"]:
        directions = directions.to(self.dtype)
        return _product(self.Z, directions).sub_(centre @ directions)

    def _with(self, data: NDArray[np.float64]) -> Any:
        """The matrix with other numbers where some are stored."""
        return type(self.Z)((data, self.Z.indices, self.Z.indptr), shape=self.shape)

    def rows(self, chosen: Tensor | slice) -> "SparseInputs":
        if isinstance(chosen, slice):
            return SparseInputs(self.Z[chosen])
        return SparseInputs(self.Z[chosen.numpy()])

    def dense(self, chosen: Int[Tensor, " m"]) -> Float[Tensor, "m d"]:
        return torch.from_numpy(self.Z[chosen.numpy()].toarray())

    def equal(self) -> Int[np.ndarray, " n"]:
        return equal_rows(self.Z)


def as_inputs(Z: Float[Tensor, "n d"] | Inputs) -> Inputs:
    """Inputs, made from a tensor if need be."""
    if isinstance(Z, Inputs):
        return Z
    return DenseInputs(Z)


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
    for block in gen_batches(len(X), max(1, _PREDICTED // X.shape[1])):
        scores[:, block] = coef @ (X[block] - centre).T
    return scores


def _product(Z: Any, B: Float[Tensor, "d k"]) -> Float[Tensor, "n k"]:
    """Z B for a sparse Z; SciPy's product with one column is twice as fast as with a matrix."""
    if B.shape[1] == 1:
        return torch.from_numpy(Z @ B[:, 0].numpy())[:, None]
    return torch.from_numpy(Z @ np.ascontiguousarray(B.numpy()))


def equal_rows(rows: Any) -> Int[ndarray, " n"]:
    """Numbers 0, 1, ... that are equal where rows are; rows of one hash are compared in full."""
    hashes = row_hashes(rows)
    order = np.argsort(hashes)
    ascending = hashes[order]
    new = np.append(True, ascending[1:] != ascending[:-1])
    first = order[new]  # a row of each hash
    codes = np.empty_like(order)
    codes[order] = new.cumsum() - 1
    if len(first) == len(hashes):
        return codes
    alike = np.flatnonzero(first[codes] != np.arange(len(hashes)))
    copies = rows[alike]
    originals = rows[first[codes[alike]]]
    if issparse(rows):
        if (copies != originals).nnz:
            return np.unique(row_hashes(rows, mixed=True), return_inverse=True)[1]
    elif not np.array_equal(copies, originals):
        return np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    return codes


def row_hashes(rows: Any, mixed: bool = False) -> UInt64[ndarray, " n"]:
    """Hashes of rows, dense or canonical sparse; if not ``mixed``, two flipped signs cancel."""
    generator = np.random.default_rng(0)
    factors = generator.integers(0, 2**63, rows.shape[1], dtype=np.uint64) * 2 + 1

    def bits(values: Float[ndarray, "..."]) -> UInt64[ndarray, "..."]:
        pattern = (values + 0.0).view(np.uint64)  # adding 0 makes -0 the same as 0
        if mixed:
            pattern ^= pattern >> np.uint64(32)
            pattern *= _ODD
            pattern ^= pattern >> np.uint64(29)
        return pattern

    if issparse(rows):
        upto = np.zeros(rows.nnz + 1, dtype=np.uint64)  # sums wrap around, and so do differences
        np.cumsum(bits(rows.data) * factors[rows.indices], out=upto[1:])
        return upto[rows.indptr[1:]] - upto[rows.indptr[:-1]]
    blocks = np.array_split(rows, max(1, rows.size // _CELLS))
    return np.concatenate([np.einsum("nj,j->n", bits(block), factors) for block in blocks])


def merge_duplicates(
    rows: Any, weight: Float[ndarray, " n"], *keys: Shaped[ndarray, " n"]
) -> tuple[Int[ndarray, " m"], Float[ndarray, " m"]]:
    """One of each set of rows that are equal, also in ``keys``, and the set's total weight."""
    numbers = rows if rows.ndim == 1 else equal_rows(rows)
    light = weight.max() <= 1
    if light and numbers.max() == len(weight) - 1:  # no row has a copy, whatever its labels
        return np.arange(len(weight)), weight
    together = np.stack([numbers, *keys], axis=1)
    _, first, codes = np.unique(together, axis=0, return_index=True, return_inverse=True)
    if light and len(first) == len(weight):
        return np.arange(len(weight)), weight
    return first, np.bincount(codes.ravel(), weight).astype(np.float64)
