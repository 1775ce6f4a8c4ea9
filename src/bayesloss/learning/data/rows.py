r"""Data of one input, x_n, y_n and a weight w_n, of which a fit asks sums.

A fit of one variable looks at no datum by itself. It asks for extremes, for moments, for the counts
on a grid, for a triangular factor: for what one function says of all rows, or of some and of the
others, and is then merged. Where the rows lie, here or in the blocks of a cluster
(:class:`bayesloss.learning.data.dask_rows.DaskRows`), is no matter of the fit.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesloss.learning.data.order_statistics import points_at

__all__ = ["Rows", "extremes", "largest", "size"]

Array = NDArray[np.float64]

_PART = 2**20  # rows that a function is asked of together: what it makes of them takes memory


class Rows:
    """Rows in memory.

    Parameters
    ----------
    x : ndarray of shape (n,)
    y : ndarray of shape (n,)
    weight : ndarray of shape (n,)
        Positive.
    """

    def __init__(self, x: Array, y: NDArray, weight: Array) -> None:
        self.x, self.y, self.weight = x, y, weight

    def fold(self, function: Callable, *args: Any, merge: Callable = sum) -> Any:
        """What a function of ``(x, y, weight, *args)`` says of all rows.

        Parameters
        ----------
        function : callable
        *args
            That follow the rows.
        merge : callable
            Makes one of a list of what the function says of some rows each.
        """
        parts = [slice(at, at + _PART) for at in range(0, len(self.x), _PART)] or [slice(None)]
        said = [
            function(self.x[at], self.y[at], np.ascontiguousarray(self.weight[at]), *args)
            for at in parts
        ]
        return said[0] if len(said) == 1 else merge(said)

    def map(self, function: Callable, *args: Any) -> "Rows":
        """Rows with another x and y, which a function of ``(x, y, *args)`` gives."""
        x, y = function(self.x, self.y, *args)
        return Rows(x, y, self.weight)

    def distribution(self, depths: Array) -> tuple[Array, Array]:
        """Points and their weights, (m,) each, with the weight on either side of some of them.

        Those are the points nearest to the levels ``depths`` and ``1 - depths``, their neighbours,
        and the extremes. Others may be drawn together; of fewer than a million rows none are.
        """
        if len(self.x) <= _PART:
            return self.x, np.ascontiguousarray(self.weight)
        return points_at(self.fold, depths)


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
