"""Rows that are copies of each other: found, merged, and told from rows that are alike by nature.

Oversampling, bagging and repeated measures repeat a row; counts give it a weight. Here both are the
same: equal rows become one, with their total weight, and are left out together. But where columns
take few values, rows are alike by nature. Then labels differ as often as the model expects, while
those of copies agree. With p (1 - p) the model's variance of a label,

    rho = 1 - #(pairs whose labels differ) / sum over pairs of 2 p (1 - p),

over pairs of rows with equal inputs, cut off at 0 and 1, is the part that is copies: the intraclass
correlation. Of m equal rows, 1 + (m - 1) rho count as one observation (Kish's design effect).
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped, UInt64
from numpy import ndarray
from scipy.sparse import issparse
from torch import Tensor

_CELLS = 2**16  # numbers hashed at a time, which a cache holds
_ODD = np.uint64(0xBF58476D1CE4E5B9)  # of SplitMix64


def equal_rows(rows: Any) -> Int[ndarray, " n"]:
    """Numbers 0, 1, ... that are equal where rows are; rows of one hash are compared in full."""
    sparse, hashes = issparse(rows), row_hashes(rows)
    order = np.argsort(hashes)
    ascending = hashes[order]
    new = np.append(True, ascending[1:] != ascending[:-1])
    codes, first = np.empty_like(order), order[new]
    codes[order] = new.cumsum() - 1
    if len(first) < len(hashes):
        alike = np.flatnonzero(first[codes] != np.arange(len(hashes)))
        found, same = rows[alike], rows[first[codes[alike]]]
        if sparse:
            if (found != same).nnz:
                return np.unique(row_hashes(rows, mixed=True), return_inverse=True)[1]
        elif not np.array_equal(found, same):
            return np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    return codes


def row_hashes(rows: Any, mixed: bool = False) -> UInt64[ndarray, " n"]:
    """Hashes of rows, dense or canonical sparse; if not ``mixed``, two flipped signs cancel."""
    generator = np.random.default_rng(0)
    factors = generator.integers(0, 2**63, rows.shape[1], dtype=np.uint64) * 2 + 1

    def bits(values: Float[ndarray, "..."]) -> UInt64[ndarray, "..."]:
        found = (values + 0.0).view(np.uint64)  # adding 0 makes -0 the same as 0
        if mixed:
            found ^= found >> np.uint64(32)
            found *= _ODD
            found ^= found >> np.uint64(29)
        return found

    if issparse(rows):
        upto = np.zeros(rows.nnz + 1, dtype=np.uint64)  # sums wrap around, and so do differences
        np.cumsum(bits(rows.data) * factors[rows.indices], out=upto[1:])
        return upto[rows.indptr[1:]] - upto[rows.indptr[:-1]]
    parts = np.array_split(rows, max(1, rows.size // _CELLS))
    return np.concatenate([np.einsum("nj,j->n", bits(part), factors) for part in parts])


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


def agreement(
    rows: Int[Tensor, " n"],
    labels: Int[Tensor, " n"],
    weight: Float[Tensor, " n"],
    variance: Float[Tensor, " n"],
    size: int | None = None,
) -> Float[Tensor, ""]:
    """The part of the pairs of equal rows, numbered below ``size``, that are copies: rho above."""
    size = int(rows.max()) + 1 if size is None else size
    total, ones, spread = (
        weight.new_zeros(size).scatter_add_(0, rows, values)
        for values in (weight, weight * labels, weight * variance)
    )
    differ = (ones * (total - ones)).sum()
    expected = ((total - 1).clamp_min(0) * spread).sum()
    part = torch.where(expected > 0, 1 - differ / expected, 0.0).clamp(0, 1)
    return torch.where(differ == 0, 1.0, part)
