"""Data of one input, x_n, y_n and a weight w_n, of which a fit needs only sums.

A fit applies functions to parts of the rows and merges the results, in a fixed order. So rows may
lie in memory or in the blocks of a Dask collection, where each block is treated in its place.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from bayesloss.learning.data.dask_inputs import aligned, array_of, folded
from bayesloss.learning.data.order_statistics import points_at

Array = NDArray[np.float64]

_PART = 2**20  # rows that a function is asked of together: what it makes of them takes memory


class Rows:
    """Rows in memory, of positive weight in fits; x may be ``Inputs`` or rows of scores."""

    groups: NDArray | None = None

    def __init__(self, x: Any, y: NDArray, weight: Array, groups: NDArray | None = None) -> None:
        self.x, self.y, self.weight, self.groups = x, y, weight, groups

    def some(self, chosen: NDArray) -> "Rows":
        """Some of the rows, by number or mask, such as those whose weight is positive."""
        groups = None if self.groups is None else np.asarray(self.groups)[chosen]
        return Rows(self.x[chosen], self.y[chosen], self.weight[chosen], groups)

    def fold(self, function: Callable, *args: Any, merge: Callable = sum) -> Any:
        """The merged results of a function of ``(x, y, weight, *args)`` on parts of the rows."""
        said = [
            function(self.x[at], self.y[at], np.ascontiguousarray(self.weight[at]), *args)
            for at in gen_batches(max(1, len(self.x)), _PART)
        ]
        return said[0] if len(said) == 1 else merge(said)

    def map(self, x: Callable | None = None, y: Callable | None = None) -> "Rows":
        """Rows with functions of x, or of y, in their place."""
        new_x, new_y = x(self.x) if x else self.x, y(self.y) if y else self.y
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
    def of(cls, X: Any, y: Any, weight: Any, name: str) -> "DaskRows":
        """From a Dask collection of x, with y and weights, one number a row; weights of zero go."""
        from dask.delayed import delayed

        X = array_of(X, name)
        if X.ndim > 2 or X.shape[1:] not in ((), (1,)):
            raise ValueError(f"expected {name} of one number a row, got shape {X.shape}")
        columns = [X.reshape(-1), aligned(y, X.chunks[0], "y", name)]
        if weight is not None:
            columns.append(aligned(weight, X.chunks[0], "sample_weight", name))
        blocks = zip(*(each.to_delayed().ravel() for each in columns), strict=True)
        return cls([delayed(_weighted_rows)(*block) for block in blocks])

    def fold(self, function: Callable, *args: Any, merge: Callable = sum) -> Any:
        """The merged results of a function of ``(x, y, weight, *args)``, block by block."""
        return folded([rows.fold(function, *args, merge=merge) for rows in self._blocks], merge)

    def map(self, x: Callable | None = None, y: Callable | None = None) -> "DaskRows":
        """Rows with functions of x, or of y, in their place; lazily."""
        return DaskRows([rows.map(x, y) for rows in self._blocks])

    def distribution(self, depths: Array) -> tuple[Array, Array]:
        """Points and their weights, exact near the levels ``depths`` and ``1 - depths``."""
        return points_at(self.fold, depths)


def _weighted_rows(x: Array, y: NDArray, weight: Array | None = None) -> Rows:
    x, y = x.astype(np.float64), np.asarray(y)
    if weight is None:
        return Rows(x, y, np.ones(len(x)))
    weight = weight.astype(np.float64)
    if not (np.isfinite(weight) & (weight >= 0)).all():
        raise ValueError("expected sample weights finite and at least 0, got some that are not")
    return Rows(x, y, weight).some(weight > 0)


def extremes(x: Array, y: Array, weight: Array) -> Array:
    """The extremes of x and y as (-min x, max x, -min y, max y); merged by :func:`largest`."""
    return np.array(
        [end for v in (x, y) for end in (-v.min(initial=np.inf), v.max(initial=-np.inf))]
    )


def largest(parts: list[Array]) -> Array:
    """Elementwise; NaN where one is."""
    return np.maximum.reduce(parts)


def size(x: Array, y: NDArray, weight: Array) -> int:
    """How many rows there are."""
    return len(x)
