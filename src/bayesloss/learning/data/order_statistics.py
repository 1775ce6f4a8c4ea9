"""Order statistics of many rows, wherever they lie, without sorting.

The bits of a float, read as an integer, have its order. One pass counts rows by their first 16
bits; the next divide the cells around wanted levels by 8 more. Three to five give exact points.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from numpy.typing import NDArray

# Of each cell the least key, and the weight and the number of its rows.
Cells = tuple[Int[ndarray, " cells"], Float[ndarray, "2 cells"]]

_FIRST, _NEXT = 16, 8  # bits that a pass divides cells by
_FEW = 2**14  # rows whose cells are divided by all bits that are left
_SIGN = np.int64(63)
_REST = np.int64(2**63 - 1)


def points_at(
    fold: Callable, depths: Float[ndarray, " levels"]
) -> tuple[Float[ndarray, " m"], Float[ndarray, " m"]]:
    """Points nearest to ``depths`` and ``1 - depths``, their neighbours, extremes; and weights."""
    levels, bits = np.concatenate([depths, 1 - depths, [0.0, 1.0]]), 64 - _FIRST
    keys, sums = fold(_count, None, bits, bits, merge=_joined)
    while bits:
        level = sums[0].cumsum() / sums[0].sum()
        at = np.searchsorted(level, levels)
        near = np.unique((at[:, None] + [-1, 0, 1]).clip(0, len(keys) - 1))
        finer = 0 if sums[1, near].sum() <= _FEW else max(bits - _NEXT, 0)
        inside = fold(_count, keys[near] >> bits, bits, finer, merge=_joined)
        rest = np.delete(keys, near), np.delete(sums, near, axis=1)
        (keys, sums), bits = _joined([rest, inside]), finer
    return _flipped(keys).view(np.float64), sums[0]


def _flipped(bits: Int[ndarray, " n"]) -> Int[ndarray, " n"]:
    """The bits of floats to integers of the same order, and back."""
    return bits ^ ((bits >> _SIGN) & _REST)


def _count(
    x: Float[ndarray, " n"],
    y: NDArray,
    weight: Float[ndarray, " n"],
    cells: Int[ndarray, " c"] | None,
    bits: int,
    finer: int,
) -> Cells:
    keys = _flipped((x + 0.0).view(np.int64))  # one zero
    if cells is not None:
        inside = np.isin(keys >> bits, cells)
        keys, weight = keys[inside], weight[inside]
    return _summed(keys >> finer << finer, np.stack([weight, np.ones_like(weight)]))


def _joined(parts: list[tuple]) -> Cells:
    keys, sums = zip(*parts, strict=True)
    return _summed(np.concatenate(keys), np.concatenate(sums, axis=1))


def _summed(keys: Int[ndarray, " n"], sums: Float[ndarray, "2 n"]) -> Cells:
    keys, place = np.unique(keys, return_inverse=True)
    return keys, np.stack([np.bincount(place, each, minlength=len(keys)) for each in sums])
