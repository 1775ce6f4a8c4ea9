r"""Inputs that are a Dask collection, and stay where they are.

Rows lie in blocks, on the workers of a cluster or on a disk. Each operation of
:mod:`bayesloss.learning.data.inputs` is done block by block where the block is. What travels is
what is
put in and what comes out: weights, sums, one number for each row and problem, and the few rows that
are sampled; never the d columns of all rows. Sums of blocks are taken in a fixed order, so that
neither the number of workers nor the loss of one changes a result.

Blocks are read anew at each pass, some dozens of times. Where workers have the memory, keep them
there by ``X = X.persist()`` before the fit; where they have not, a pass costs what reading costs.

Dask is imported only where one of its collections comes in.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from bayesloss.learning.data.duplicates import hashed
from bayesloss.learning.data.inputs import DenseInputs, Inputs

__all__ = [
    "DaskInputs",
    "aligned",
    "array_of",
    "blocks_of",
    "folded",
    "is_dask",
    "on_client",
]

_LOST = {"CancelledError", "KilledWorker", "MemoryError", "NoWorkerError"}  # what Dask raises
_MERGED = 16  # blocks whose results are merged where they are, before they travel


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
    def sizes(self) -> tuple[int, ...]:
        """How many rows each block has."""
        return tuple(int(size) for size in np.diff(self._ends))

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
        return folded(self._calls(what, args, rows), sum)


def blocks_of(X: Any) -> DaskInputs:
    """The inputs of a Dask array or DataFrame.

    Raises
    ------
    ValueError
        If X has another number of dimensions than two, blocks of unknown sizes, or a value that is
        not finite.
    """
    X = array_of(X, "X")
    if X.ndim != 2:
        raise ValueError(
            "expected a Dask array or DataFrame of shape (n, n_features), got one of "
            f"{X.ndim} dimensions"
        )
    inputs = DaskInputs.of(X)
    largest = inputs.largest()
    if not np.isfinite(largest):
        raise ValueError(
            f"expected finite inputs, got one that is {'NaN' if np.isnan(largest) else 'infinity'}"
        )
    return inputs


def array_of(values: Any, name: str) -> Any:
    """A Dask collection as an array in blocks of known sizes.

    Raises
    ------
    ValueError
        If the collection is no array, or an array in blocks of unknown sizes.
    """
    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array(lengths=True)
    if not hasattr(values, "chunks"):
        raise ValueError(
            f"expected {name} to be a Dask array or DataFrame, got {type(values).__name__}"
        )
    if np.isnan(np.concatenate([np.asarray(each, dtype=float) for each in values.chunks])).any():
        raise ValueError(
            f"expected {name} in blocks of known sizes, got unknown ones: call "
            f"{name}.compute_chunk_sizes() first"
        )
    return values


def aligned(values: Any, sizes: tuple[int, ...], name: str, of: str = "X") -> Any:
    """One value a row, as a Dask array in blocks of these sizes, those of another collection.

    Raises
    ------
    ValueError
        If there are not as many, or they are a Dask collection in other blocks.
    """
    if not is_dask(values):
        from dask.array import from_array

        values = column_or_1d(values)
        if len(values) != sum(sizes):
            raise ValueError(f"expected {sum(sizes)} {name}, one a row of {of}, got {len(values)}")
        return from_array(values, chunks=(sizes,))
    values = array_of(values, name)
    if values.shape[1:] not in ((), (1,)):
        raise ValueError(f"expected one of {name} a row of {of}, got shape {values.shape}")
    if values.chunks[0] != sizes:
        raise ValueError(
            f"expected {name} in the blocks of {of}, of {_brief(sizes)} rows, got "
            f"{_brief(values.chunks[0])}: if row by row it belongs to {of}, use "
            f"{name}.rechunk(({of}.chunks[0],))"
        )
    return values.reshape(-1)


def on_client(values: Any, inputs: DaskInputs, name: str) -> Any:
    """One value a row, computed if they are a Dask collection; errors as for :func:`aligned`."""
    return _computed([aligned(values, inputs.sizes, name)])[0] if is_dask(values) else values


def folded(parts: list[Any], merge: Callable) -> Any:
    """What comes of Delayed parts: some are merged where they are, then those, in a fixed order."""
    from dask.delayed import delayed

    join = delayed(merge)
    while len(parts) > 1:
        parts = [join(parts[i : i + _MERGED]) for i in range(0, len(parts), _MERGED)]
    return _computed(parts)[0]


def _computed(parts: list[Any]) -> list[Any]:
    """Compute, and say what to do if a worker cannot.

    Raises
    ------
    RuntimeError
        If Dask gave up: workers died or ran out of memory, or none was left for a while that
        ``distributed.scheduler.no-workers-timeout`` sets.
    """
    from dask.base import compute

    try:
        return list(compute(*parts))
    except Exception as error:
        if not _LOST & {kind.__name__ for kind in type(error).__mro__}:
            raise
        raise RuntimeError(
            "workers died, or ran out of memory, on one block more often than Dask tries: cut the "
            "data into smaller blocks, as by X.rechunk(('auto', -1)), or give workers more memory; "
            f"nothing is fitted ({type(error).__name__}: {error})"
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


def _take(block: NDArray[np.float64], numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    return block[numbers]


def _brief(sizes: tuple[int, ...]) -> str:
    shown = ", ".join(str(size) for size in sizes[:4])
    return f"({shown}{', ...' if len(sizes) > 4 else ''})"
