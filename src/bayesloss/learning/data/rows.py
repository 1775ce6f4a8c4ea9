"""Data of one input, x_n, y_n and a weight w_n, of which a fit needs only sums.

A fit applies functions to parts of the rows and merges the results, in a fixed order. So rows may
lie in memory or in the blocks of a Dask collection, where each block is treated in its place.

Order statistics need no sorting: the bits of a float, read as an integer, have its order. One pass
counts rows by their first 16 bits; the next divide the cells around wanted levels by 8 more. Three
to five give exact points.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_consistent_length, column_or_1d

from bayesloss.arrays import Array, as_scores, read_labels, refuse_missing
from bayesloss.learning.data.checks import check_weights, group_numbers, warn_of_single_cases

_PART = 2**20  # rows that a function is asked of together: what it makes of them takes memory
_LOST = {"CancelledError", "KilledWorker", "MemoryError", "NoWorkerError"}  # what Dask raises
_MERGED = 16  # blocks whose results are merged where they are, before they travel
_FIRST = 16  # bits that the first pass divides rows by: at most 65,536 cells travel
_NEXT = 8  # bits that a later pass divides each cell by that is near a wanted level
_FEW = 2**14  # rows whose cells are divided by all bits that are left


class Rows:
    """Rows in memory, of positive weight in fits; x may be ``Inputs`` or rows of scores."""

    groups: NDArray | None = None

    def __init__(self, x: Any, y: NDArray, weight: Array, groups: NDArray | None = None) -> None:
        self.x = x
        self.y = y
        self.weight = weight
        self.groups = groups

    @classmethod
    def of(cls, x: NDArray, y: Any, sample_weight: ArrayLike | None, groups: Any) -> "Rows":
        """The cases whose weight is positive, after a check of labels, weights and groups."""
        labels = read_labels(y)
        check_consistent_length(x, labels)
        weight = check_weights(sample_weight, x)
        rows = cls(x, labels, weight).some(weight > 0)
        warn_of_single_cases(rows.y)
        rows.groups = group_numbers(groups, weight > 0)
        return rows

    def some(self, chosen: NDArray) -> "Rows":
        """Some of the rows, by number or mask, such as those whose weight is positive."""
        groups = None if self.groups is None else np.asarray(self.groups)[chosen]
        return Rows(self.x[chosen], self.y[chosen], self.weight[chosen], groups)

    def fold(self, function: Callable, *args: Any, merge: Callable = sum) -> Any:
        """The merged results of a function of ``(x, y, weight, *args)`` on parts of the rows."""
        results = [
            function(self.x[part], self.y[part], np.ascontiguousarray(self.weight[part]), *args)
            for part in gen_batches(max(1, len(self.x)), _PART)
        ]
        if len(results) == 1:
            return results[0]
        return merge(results)

    def map(self, x: Callable | None = None, y: Callable | None = None) -> "Rows":
        """Rows with functions of x, or of y, in their place."""
        new_x = self.x if x is None else x(self.x)
        new_y = self.y if y is None else y(self.y)
        return Rows(new_x, new_y, self.weight, self.groups)

    def distribution(self, depths: Array) -> tuple[Array, Array]:
        """Points and weights, exact near ``depths`` and ``1 - depths``; all, up to a million."""
        if len(self.x) <= _PART:
            return self.x, np.ascontiguousarray(self.weight)
        return points_at(self.fold, depths)


class DaskRows(Rows):
    """Rows in the blocks of a Dask collection: a list of Delayed :class:`Rows`."""

    def __init__(self, blocks: list[Any]) -> None:
        self._blocks = blocks

    @classmethod
    def in_blocks(cls, X: Any, y: Any, weight: Any, name: str) -> "DaskRows":
        """From a Dask collection of x, with y and weights, one number a row; weights of zero go."""
        from dask.delayed import delayed

        X = array_of(X, name)
        if X.ndim > 2 or X.shape[1:] not in ((), (1,)):
            raise ValueError(f"expected {name} of one number a row, got shape {X.shape}")
        columns = [X.reshape(-1), aligned(y, X.chunks[0], "y", name)]
        if weight is not None:
            columns.append(aligned(weight, X.chunks[0], "sample_weight", name))
        in_blocks = [column.to_delayed().ravel() for column in columns]
        weighted_rows = delayed(_weighted_rows)
        return cls([weighted_rows(*parts) for parts in zip(*in_blocks, strict=True)])

    def fold(self, function: Callable, *args: Any, merge: Callable = sum) -> Any:
        return folded([rows.fold(function, *args, merge=merge) for rows in self._blocks], merge)

    def map(self, x: Callable | None = None, y: Callable | None = None) -> "DaskRows":
        return DaskRows([rows.map(x, y) for rows in self._blocks])

    def distribution(self, depths: Array) -> tuple[Array, Array]:
        return points_at(self.fold, depths)


def _weighted_rows(x: Array, y: NDArray, weight: Array | None = None) -> Rows:
    if weight is None:
        weight = np.ones(len(x))
    weight = weight.astype(np.float64)
    if not (np.isfinite(weight) & (weight >= 0)).all():
        raise ValueError("expected sample weights finite and at least 0, got some that are not")
    labels = np.asarray(y)
    refuse_missing(labels, "y")
    return Rows(x.astype(np.float64), labels, weight).some(weight > 0)


def read_scores(scores: Any, y: Any, sample_weight: Any, groups: Any) -> Rows:
    """The cases that count, of one score each, in memory or of Dask."""
    if not is_dask(scores):
        scores = as_scores(scores).astype(np.float64, copy=False)
        return Rows.of(scores, y, sample_weight, groups)
    if groups is not None:
        raise ValueError(
            "expected no groups where scores are a Dask collection, got some: compute the scores, "
            "and give them as an array"
        )
    return DaskRows.in_blocks(scores, y, sample_weight, "scores")


def is_dask(values: Any) -> bool:
    """Whether values are a Dask collection, without importing Dask."""
    dask = sys.modules.get("dask")
    return dask is not None and dask.is_dask_collection(values)


def array_of(values: Any, name: str) -> Any:
    """A Dask collection as an array in blocks of known sizes, or a ValueError."""
    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array(lengths=True)
    if not hasattr(values, "chunks"):
        raise ValueError(f"expected {name} as an array or DataFrame, got {type(values).__name__}")
    if np.isnan(sum(map(sum, values.chunks))):
        raise ValueError(
            f"expected {name} in blocks of known sizes, got unknown ones: call "
            f"{name}.compute_chunk_sizes() first"
        )
    return values


def aligned(values: Any, sizes: tuple[int, ...], name: str, of: str = "X") -> Any:
    """One value a row, as a Dask array in blocks of these sizes, or a ValueError."""
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
            f"expected {name} in the blocks of {of}, which begin with {sizes[:4]} rows, got "
            f"{values.chunks[0][:4]}: if row by row it belongs to {of}, use "
            f"{name}.rechunk(({of}.chunks[0],))"
        )
    return values.reshape(-1)


def folded(parts: list[Any], merge: Callable) -> Any:
    """Merge the results of Delayed parts, some of them where they are, in a fixed order."""
    from dask.delayed import delayed

    join = delayed(merge)
    while len(parts) > 1:
        parts = [join(parts[i : i + _MERGED]) for i in range(0, len(parts), _MERGED)]
    return computed(parts)[0]


def computed(parts: list[Any]) -> list[Any]:
    """The results of Delayed parts, or a RuntimeError that says how to keep workers alive."""
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


@dataclass(frozen=True)
class _Cells:
    """Cells of the line of floats, ascending: which, and what rows lie in each."""

    keys: Int[ndarray, " cells"]  # the least of each, as by _flipped
    weight: Float[ndarray, " cells"]
    count: Float[ndarray, " cells"]

    @classmethod
    def of(
        cls,
        keys: Int[ndarray, " n"],
        weight: Float[ndarray, " n"],
        count: Float[ndarray, " n"],
    ) -> "_Cells":
        """Cells that may come several times, each once."""
        distinct, place = np.unique(keys, return_inverse=True)
        return cls(
            keys=distinct,
            weight=np.bincount(place, weight, minlength=len(distinct)),
            count=np.bincount(place, count, minlength=len(distinct)),
        )

    @classmethod
    def merged(cls, parts: list["_Cells"]) -> "_Cells":
        """The cells of several parts of the rows."""
        return cls.of(
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.weight for part in parts]),
            np.concatenate([part.count for part in parts]),
        )

    def without(self, places: Int[ndarray, " k"]) -> "_Cells":
        """All but some cells."""
        return _Cells(
            keys=np.delete(self.keys, places),
            weight=np.delete(self.weight, places),
            count=np.delete(self.count, places),
        )


def points_at(fold: Callable, depths: Array) -> tuple[Array, Array]:
    """Points nearest to ``depths`` and ``1 - depths``, their neighbours, extremes; and weights."""
    levels = np.concatenate([depths, 1 - depths, [0.0, 1.0]])
    bits = 64 - _FIRST  # that cells near the levels do not tell apart as yet
    cells = fold(_count, None, bits, bits, merge=_Cells.merged)
    while bits > 0:
        upto = cells.weight.cumsum() / cells.weight.sum()
        at_levels = np.searchsorted(upto, levels)
        around = at_levels[:, None] + [-1, 0, 1]
        near = np.unique(around.clip(0, len(cells.keys) - 1))
        finer = max(bits - _NEXT, 0)
        if cells.count[near].sum() <= _FEW:
            finer = 0
        divided = fold(_count, cells.keys[near] >> bits, bits, finer, merge=_Cells.merged)
        cells = _Cells.merged([cells.without(near), divided])
        bits = finer
    return _flipped(cells.keys).view(np.float64), cells.weight


def _flipped(bits: Int[ndarray, " n"]) -> Int[ndarray, " n"]:
    """The bits of floats to integers of the same order, keys, and back."""
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


def _count(x: Array, y: NDArray, weight: Array, chosen: Any, bits: int, finer: int) -> _Cells:
    """Rows in cells of the last ``finer`` bits: all, or those in chosen cells of ``bits``."""
    keys = _flipped((x + 0.0).view(np.int64))  # one zero
    if chosen is not None:
        inside = np.isin(keys >> bits, chosen)
        keys = keys[inside]
        weight = weight[inside]
    return _Cells.of(keys >> finer << finer, weight, np.ones_like(weight))


def extremes(x: Array, y: Array, weight: Array) -> Array:
    """The extremes of x and y as (-min x, max x, -min y, max y); merged by :func:`largest`."""
    return np.array(
        [
            -x.min(initial=np.inf),
            x.max(initial=-np.inf),
            -y.min(initial=np.inf),
            y.max(initial=-np.inf),
        ]
    )


def largest(parts: list[Array]) -> Array:
    """Elementwise; NaN where one is."""
    return np.maximum.reduce(parts)
