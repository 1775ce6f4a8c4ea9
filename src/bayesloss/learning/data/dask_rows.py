r"""Data of one input that are a Dask collection, and stay where they are.

What a function says of a block is computed where the block is, and merged there with what it says
of others; sums, counts and a few rows travel. Orders of merging are fixed, so that neither the
number of workers nor the loss of one changes a result.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesloss.learning.data.dask_inputs import aligned, array_of, folded
from bayesloss.learning.data.order_statistics import points_at
from bayesloss.learning.data.rows import Rows

__all__ = ["DaskRows"]

Array = NDArray[np.float64]


class DaskRows(Rows):
    """Rows in blocks that Dask has.

    Parameters
    ----------
    blocks : list of Delayed
        Of x, y and weight, each of shape (n_b,).
    """

    def __init__(self, blocks: list[Any]) -> None:
        self._blocks = blocks

    @classmethod
    def of(cls, X: Any, y: Any, weight: Any, name: str) -> "DaskRows":
        """From a Dask collection of one number a row, with y and weights in its blocks or here.

        Parameters
        ----------
        X : Dask array or DataFrame of shape (n,) or (n, 1)
        y : array-like or Dask collection of shape (n,)
        weight : the same, or None
            Rows of weight zero are left out.
        name : str
            Of X, for messages.

        Raises
        ------
        ValueError
            If X has another shape, blocks have unknown or different sizes, or weights are no
            weights.
        """
        from dask.delayed import delayed

        X = array_of(X, name)
        if X.ndim > 2 or X.shape[1:] not in ((), (1,)):
            raise ValueError(f"expected {name} of one number a row, got shape {X.shape}")
        given = [X.reshape(-1), aligned(y, X.chunks[0], "y", name)]
        if weight is not None:
            given.append(aligned(weight, X.chunks[0], "sample_weight", name))
        counted = delayed(_counted)
        return cls([counted(*each) for each in zip(*map(_parts, given), strict=True)])

    def fold(self, function: Callable, *args: Any, merge: Callable = sum) -> Any:
        """What a function of ``(x, y, weight, *args)`` says of all rows, see :class:`Rows`."""
        from dask.delayed import delayed

        call = delayed(_call)
        return folded([call(function, block, args) for block in self._blocks], merge)

    def map(self, function: Callable, *args: Any) -> "DaskRows":
        """Rows with another x and y, which a function of ``(x, y, *args)`` gives; lazily."""
        from dask.delayed import delayed

        call = delayed(_mapped)
        return DaskRows([call(function, block, args) for block in self._blocks])

    def distribution(self, depths: Array) -> tuple[Array, Array]:
        """Points and their weights, see :class:`Rows`: the asked ones, others drawn together."""
        return points_at(self.fold, depths)


def _parts(values: Any) -> list[Any]:
    return list(values.to_delayed().ravel())


def _counted(x: Array, y: NDArray, weight: Array | None = None) -> tuple[Array, NDArray, Array]:
    """The rows of a block that count."""
    x, y = x.astype(np.float64), np.asarray(y)
    if weight is None:
        return x, y, np.ones(len(x))
    weight = weight.astype(np.float64)
    if not (np.isfinite(weight) & (weight >= 0)).all():
        raise ValueError("expected sample weights finite and at least 0, got some that are not")
    return x[weight > 0], y[weight > 0], weight[weight > 0]


def _call(function: Callable, block: tuple[Array, NDArray, Array], args: tuple) -> Any:
    return function(*block, *args)


def _mapped(function: Callable, block: tuple[Array, NDArray, Array], args: tuple) -> Any:
    return *function(*block[:2], *args), block[2]
