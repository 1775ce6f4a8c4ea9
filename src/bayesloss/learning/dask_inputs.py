r"""Inputs that are a Dask collection, and stay where they are.

Rows lie in blocks, on the workers of a cluster or on a disk. Each operation of
:mod:`bayesloss.learning.inputs` is done block by block where the block is. What travels is what is
put in and what comes out: weights, sums, one number for each row and problem, and the few rows that
are sampled; never the d columns of all rows. Sums of blocks are taken in a fixed order, so that
neither the number of workers nor the loss of one changes a result.

Blocks are read anew at each pass, some dozens of times. Where workers have the memory, keep them
there by ``X = X.persist()`` before the fit; where they have not, a pass costs what reading costs.

Dask is imported only where one of its collections comes in.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesloss.learning.copies import hashed
from bayesloss.learning.inputs import DenseInputs, Inputs

__all__ = ["DaskInputs", "blocks_of", "by_blocks", "is_dask", "on_client"]

_SUMMED = 16  # blocks whose results are summed where they are, before they travel


def is_dask(values: Any) -> bool:
    """Whether values are a Dask collection; Dask is not imported for the question."""
    dask = sys.modules.get("dask")
    return dask is not None and dask.is_dask_collection(values)


class DaskInputs(Inputs):
    """Inputs whose blocks of rows Dask has.

    Parameters
    ----------
    blocks : list of Delayed
        Arrays of float64 of shape (n_b, d).
    sizes : list of int
        The n_b.
    d : int
    order : Tensor of int64 of shape (n,), optional
        Where in the blocks row n of these inputs is; without it they have the blocks' order.
    """

    def __init__(
        self, blocks: list[Any], sizes: list[int], d: int, order: Tensor | None = None
    ) -> None:
        self._blocks, self._ends = blocks, np.concatenate([[0], np.cumsum(sizes)])
        self.shape, self._order = (int(self._ends[-1]), d), order

    @classmethod
    def of(cls, X: Any) -> "DaskInputs":
        """From an array of shape (n, d) in blocks of known sizes."""
        X = X.rechunk({1: -1}).astype(np.float64)
        return cls(list(X.to_delayed().ravel()), list(X.chunks[0]), X.shape[1])

    @property
    def stored(self) -> int:
        """How many numbers the matrix takes."""
        return self.shape[0] * self.shape[1]

    def largest(self) -> float:
        """The largest of all numbers, in absolute value; NaN or infinite if one is."""
        return float(np.max(self._each(_largest)))

    def sum(self, weight: Tensor) -> Tensor:
        """Weighted sums of the columns, (d,)."""
        return self._total("sum", rows=(weight,))

    def squares_about(self, centre: Tensor, weight: Tensor) -> Tensor:
        """Weighted sums of the columns' squared distances from a centre, (d,)."""
        return self._total("squares_about", centre, rows=(weight,))

    def scores(self, beta: Tensor) -> Tensor:
        """The scores beta . z_n, (K, n), for weights of shape (K, d)."""
        return self._all(self._each("scores", beta))

    def pull_back(self, slopes: Tensor) -> Tensor:
        """Sums of slopes, (K, n), times rows: (K, d)."""
        return self._total("pull_back", rows=(slopes,))

    def along(self, directions: Tensor, centre: Tensor) -> Tensor:
        """(z_n - centre) . directions, (n, k), for directions of shape (d, k)."""
        parts = self._each("along", directions, centre)
        return self._all([part.T for part in parts]).T

    def squared_lengths(self, directions: Tensor, centre: Tensor, problems: int) -> Tensor:
        """Squared lengths along the directions of each problem, (problems, n)."""
        return self._all(self._each("squared_lengths", directions, centre, problems))

    def rows(self, chosen: Tensor | slice) -> "DaskInputs":
        """Some of the rows, by different numbers, mask or slice, as inputs of the same kind."""
        from dask.delayed import delayed

        numbers = torch.arange(len(self))[chosen]
        if self._order is not None:
            numbers = self._order[numbers]
        numbers, order = numbers.unique(return_inverse=True)
        cuts = np.searchsorted(numbers.numpy(), self._ends[1:-1])
        split = np.split(numbers.numpy(), cuts)
        parts = [part - begin for part, begin in zip(split, self._ends[:-1], strict=True)]
        ascending = bool((order[1:] > order[:-1]).all())
        kept = [b for b, part in enumerate(parts) if len(part)]
        take = delayed(_take)
        blocks = [take(self._blocks[b], parts[b]) for b in kept]
        sizes = [len(parts[b]) for b in kept]
        return DaskInputs(blocks, sizes, self.shape[1], None if ascending else order)

    def dense(self, chosen: Tensor) -> Tensor:
        """Some of the rows, by number, as a new tensor of shape (m, d): for few."""
        numbers, back = chosen.unique(return_inverse=True)
        some = self.rows(numbers)
        parts = [torch.from_numpy(part).T for part in _computed(some._blocks)]
        return some._all(parts).T[back]

    def equal(self) -> NDArray[np.int64]:
        """Numbers, (n,), that are equal where the hashes of rows are, 64 bits long."""
        plain, mixed = self._all([torch.from_numpy(part) for part in self._each(_hashes)])
        codes, others = (each.unique(return_inverse=True)[1] for each in (plain, mixed))
        # Those of rows in memory, unless different rows have one.
        return (codes if codes.max() == others.max() else others).numpy()

    def _all(self, parts: list[Tensor]) -> Tensor:
        """What blocks say of their rows, (any, n_b), in the order of these inputs."""
        whole = torch.cat(parts, dim=1)
        return whole if self._order is None else whole[:, self._order]

    def _calls(self, what: str | Callable, args: tuple, rows: tuple[Tensor, ...] = ()) -> list[Any]:
        """An operation on each block, not yet done; of `rows` each block gets its own."""
        from dask.delayed import delayed

        call = delayed(_call)
        if self._order is not None:
            placed = [torch.empty_like(each) for each in rows]
            for each, place in zip(rows, placed, strict=True):
                place[..., self._order] = each
            rows = tuple(placed)
        if any(isinstance(each, Tensor) and each.numel() > self.shape[1] for each in args):
            args = tuple(delayed(each, traverse=False) for each in args)  # sent to a worker once
        spans = zip(self._ends[:-1], self._ends[1:], strict=True)
        return [
            call(what, block, *args, *(each[..., a:b].clone() for each in rows))
            for block, (a, b) in zip(self._blocks, spans, strict=True)
        ]

    def _each(self, what: str | Callable, *args: Any) -> list[Any]:
        return _computed(self._calls(what, args))

    def _total(self, what: str, *args: Any, rows: tuple[Tensor, ...]) -> Tensor:
        from dask.delayed import delayed

        parts, add = self._calls(what, args, rows), delayed(sum)
        while len(parts) > 1:
            parts = [add(parts[i : i + _SUMMED]) for i in range(0, len(parts), _SUMMED)]
        return _computed(parts)[0]


def blocks_of(X: Any) -> tuple[DaskInputs, list[str] | None]:
    """The inputs, and the names of the columns, of a Dask array or DataFrame.

    Raises
    ------
    ValueError
        If X has another number of dimensions than two, blocks of unknown sizes, or a value that is
        not finite.
    """
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    if hasattr(X, "to_dask_array"):
        X = X.to_dask_array(lengths=True)
    if getattr(X, "ndim", None) != 2:
        raise ValueError(
            f"expected a Dask array or DataFrame of shape (n, n_features), got {type(X).__name__} "
            f"with {getattr(X, 'ndim', 'no')} dimensions"
        )
    _check_sizes(X, "X")
    inputs = DaskInputs.of(X)
    largest = inputs.largest()
    if not np.isfinite(largest):
        raise ValueError(
            f"expected finite inputs, got one that is {'NaN' if np.isnan(largest) else 'infinity'}"
        )
    return inputs, names


def on_client(values: Any, inputs: DaskInputs, name: str) -> Any:
    """One value a row, computed if they are a Dask collection.

    Raises
    ------
    ValueError
        If their blocks are not those of the inputs.
    """
    if not is_dask(values):
        return values
    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array(lengths=True)
    _check_sizes(values, name)
    expected = tuple(int(size) for size in np.diff(inputs._ends))
    if tuple(values.chunks[0]) != expected:
        raise ValueError(
            f"expected {name} in the blocks of X, of {_brief(expected)} rows, got "
            f"{_brief(values.chunks[0])}: if row by row it belongs to X, use "
            f"{name}.rechunk((X.chunks[0],))"
        )
    return _computed([values])[0]


def by_blocks(method: Callable, X: Any, columns: int | None, dtype: Any) -> Any:
    """What a method says of each block of rows, lazily, as a Dask array.

    Parameters
    ----------
    method : callable
        Takes an array of shape (n_b, d).
    X : Dask array or DataFrame
    columns : int or None
        Of what comes out; None for one value a row.
    dtype : dtype
    """
    if hasattr(X, "to_dask_array"):
        method, X = partial(_named, method, list(X.columns)), X.to_dask_array()
    X = X.rechunk({1: -1})
    if columns is None:
        return X.map_blocks(method, drop_axis=1, dtype=dtype, meta=np.empty(0, dtype))
    meta = np.empty((0, 0), dtype)
    return X.map_blocks(method, chunks=(X.chunks[0], (columns,)), dtype=dtype, meta=meta)


def _computed(parts: list[Any]) -> list[Any]:
    """Compute, and say what to do if a worker cannot.

    Raises
    ------
    RuntimeError
        If Dask gave up: workers died, or ran out of memory.
    """
    from dask.base import compute

    try:
        return list(compute(*parts))
    except Exception as error:
        if type(error).__name__ not in ("KilledWorker", "MemoryError", "CancelledError"):
            raise
        raise RuntimeError(
            "workers died, or ran out of memory, on one block more often than Dask tries: cut X "
            "into smaller blocks, X.rechunk(('auto', -1)), or give workers more memory; nothing "
            f"is fitted ({type(error).__name__}: {error})"
        ) from error


def _call(what: str | Callable, block: NDArray[np.float64], *args: Any) -> Any:
    """On a worker: a method of the block as inputs, or a function of it."""
    if callable(what):
        return what(np.ascontiguousarray(block))
    Z = torch.from_numpy(np.require(block, requirements=["C", "W"]))
    return getattr(DenseInputs(Z), what)(*args)


def _hashes(block: NDArray[np.float64]) -> NDArray[np.int64]:
    """Both hashes of each row, (2, n_b), as numbers that sort alike."""
    both = np.stack([hashed(block), hashed(block, mixed=True)])
    return (both ^ np.uint64(2**63)).view(np.int64)


def _largest(block: NDArray[np.float64]) -> float:
    return float(np.abs(block).max(initial=0.0))


def _named(method: Callable, names: list[str], block: NDArray[np.float64]) -> Any:
    from pandas import DataFrame

    return method(DataFrame(block, columns=names))


def _take(block: NDArray[np.float64], numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    return block[numbers]


def _check_sizes(values: Any, name: str) -> None:
    if np.isnan(np.concatenate([np.asarray(each, dtype=float) for each in values.chunks])).any():
        raise ValueError(
            f"expected {name} in blocks of known sizes, got unknown ones: call "
            f"{name}.compute_chunk_sizes() first"
        )


def _brief(sizes: tuple[int, ...]) -> str:
    shown = ", ".join(str(size) for size in sizes[:4])
    return f"({shown}{', ...' if len(sizes) > 4 else ''})"
