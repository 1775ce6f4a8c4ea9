"""Inputs that are a Dask collection, and stay where they are.

Each operation of ``inputs`` is done where a block of rows is. Weights, sums, one number for each
row and problem, and a few sampled rows travel; never the d columns of all rows. Sums are in a fixed
order, whatever the workers. Each of some dozens of passes reads all blocks: ``persist`` them.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from bayesloss.learning.data.inputs import (
    DenseInputs,
    Directions,
    Inputs,
    PerColumn,
    PerRow,
    row_hashes,
)
from bayesloss.learning.data.rows import aligned, array_of, computed, folded, is_dask


class DaskInputs(Inputs):
    """Inputs whose rows are in Delayed blocks; row n is row ``order[n]`` of these, or row n."""

    def __init__(
        self, blocks: list[Any], sizes: Sequence[int], d: int, order: Int[Tensor, " n"] | None
    ) -> None:
        self._blocks = blocks
        self._ends = np.cumsum([0, *sizes])
        self._order = order
        self.shape = (int(self._ends[-1]), d)

    @classmethod
    def of(cls, X: Any) -> "DaskInputs":
        """From a finite Dask array or DataFrame of shape (n, d) in blocks of known sizes."""
        X = array_of(X, "X")
        if X.ndim != 2:
            raise ValueError(f"expected X of shape (n, n_features), got {X.ndim} dimensions")
        X = X.rechunk({1: -1}).astype(np.float64)
        inputs = cls(list(X.to_delayed().ravel()), X.chunks[0], X.shape[1], None)
        largest = inputs.largest()
        if np.isnan(largest):
            raise ValueError("expected finite inputs, got one that is NaN")
        if np.isinf(largest):
            raise ValueError("expected finite inputs, got one that is infinity")
        return inputs

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many rows each block has."""
        return tuple(np.diff(self._ends).tolist())

    @property
    def stored(self) -> int:
        return self.shape[0] * self.shape[1]

    def largest(self) -> float:
        return float(np.max(computed(self._calls(DenseInputs.largest))))

    def sum(self, weight: PerRow) -> PerColumn:
        return folded(self._calls(DenseInputs.sum, rows=[weight]), sum)

    def squares_about(self, centre: PerColumn, weight: PerRow) -> PerColumn:
        return folded(self._calls(DenseInputs.squares_about, centre, rows=[weight]), sum)

    def scores(self, beta: Float[Tensor, "K d"]) -> Float[Tensor, "K n"]:
        return self._gathered(self._calls(DenseInputs.scores, beta), 1)

    def pull_back(self, slopes: Float[Tensor, "K n"]) -> Float[Tensor, "K d"]:
        return folded(self._calls(DenseInputs.pull_back, rows=[slopes]), sum)

    def along(self, directions: Directions, centre: PerColumn) -> Float[Tensor, "n k"]:
        return self._gathered(self._calls(DenseInputs.along, directions, centre), 0)

    def squared_lengths(self, directions: Directions, centre: PerColumn, problems: int) -> Tensor:
        calls = self._calls(DenseInputs.squared_lengths, directions, centre, problems)
        return self._gathered(calls, 1)

    def rows(self, chosen: Tensor | slice) -> "DaskInputs":
        numbers = torch.arange(len(self))[chosen]
        if self._order is not None:
            numbers = self._order[numbers]
        numbers, asked = numbers.sort(stable=True)  # a row that is asked for twice stays twice
        order = asked.argsort()
        by_block = np.split(numbers.numpy(), np.searchsorted(numbers.numpy(), self._ends[1:-1]))
        blocks = []
        sizes = []
        for block, begin, inside in zip(self._blocks, self._ends[:-1], by_block, strict=True):
            if len(inside):
                blocks.append(block[inside - begin])
                sizes.append(len(inside))
        ascending = bool((order[1:] > order[:-1]).all())
        return DaskInputs(blocks, sizes, self.shape[1], None if ascending else order)

    def dense(self, chosen: Int[Tensor, " m"]) -> Float[Tensor, "m d"]:
        sample = self.rows(chosen)
        return sample._gathered(sample._blocks, 0)

    def equal(self) -> Int[np.ndarray, " n"]:
        plain, mixed = self._gathered(self._calls(_hashes), 1)
        _, codes = plain.unique(return_inverse=True)
        _, mixed_codes = mixed.unique(return_inverse=True)
        if codes.max() == mixed_codes.max():
            return codes.numpy()  # those of rows in memory
        return mixed_codes.numpy()  # as different rows have one plain hash

    def _calls(self, operation: Callable, *args: Any, rows: Sequence[Tensor] = ()) -> list[Any]:
        """A Delayed operation on each block as DenseInputs, with its part of ``rows`` (..., n)."""
        from dask.delayed import delayed

        if self._order is not None:
            rows = [
                torch.empty_like(values).index_copy_(-1, self._order, values) for values in rows
            ]
        if any(isinstance(arg, Tensor) and arg.numel() > self.shape[1] for arg in args):
            args = tuple(delayed(arg, traverse=False) for arg in args)  # sent to a worker once
        on_block = delayed(_on_block)
        calls = []
        for block, (begin, end) in zip(self._blocks, pairwise(self._ends.tolist()), strict=True):
            in_block = [values[..., begin:end].clone() for values in rows]
            calls.append(on_block(operation, block, *args, *in_block))
        return calls

    def _gathered(self, calls: list[Any], dim: int) -> Tensor:
        """The results of calls in the order of the rows, which run along ``dim``."""
        whole = torch.cat([torch.as_tensor(result) for result in computed(calls)], dim)
        if self._order is None:
            return whole
        return whole.index_select(dim, self._order)


def on_client(values: Any, inputs: DaskInputs, name: str) -> Any:
    """One value a row, computed if they are a Dask collection; errors as for :func:`aligned`."""
    if not is_dask(values):
        return values
    (result,) = computed([aligned(values, inputs.sizes, name)])
    return result


def _on_block(operation: Callable, block: NDArray[np.float64], *args: Any) -> Any:
    Z = torch.from_numpy(np.require(block, requirements=["C", "W"]))
    return operation(DenseInputs(Z), *args)


def _hashes(inputs: DenseInputs) -> Int[np.ndarray, "2 n"]:
    Z = inputs.Z.numpy()
    both = np.stack([row_hashes(Z), row_hashes(Z, mixed=True)])
    return (both ^ np.uint64(2**63)).view(np.int64)  # in the same order, which PyTorch knows
