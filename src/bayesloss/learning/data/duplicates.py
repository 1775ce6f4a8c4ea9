r"""Rows that are copies of each other: found, merged, and told from rows that are alike by nature.

Oversampling, bagging and repeated measures put a row into the data several times; counts put it in
once, with a weight. Both are one thing here: equal rows become one row that weighs as much as they
do together. What is to be held out can then be held out whole.

Where columns take few values, though, rows are alike by nature. Labels tell the two apart: copies
share theirs, rows that are merely alike have labels that differ as often as the model says. Among
pairs of rows with equal inputs, let p (1 - p) be the model's variance of a label. Then

    rho = 1 - #(pairs whose labels differ) / sum over pairs of 2 p (1 - p),

cut off at 0 and 1, is the part of the pairs that are copies: the intraclass correlation of the
labels. Of m equal rows, 1 + (m - 1) rho are one observation's, which is Kish's design effect.
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
    """Numbers 0, 1, ... that are equal where rows, a dense or sparse matrix of n, are.

    Rows of one hash are compared in full.
    """
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
    """Hashes of rows, dense or sparse and in canonical format: sums of bits times odd numbers.

    Zeros add nothing. Unless bits are mixed first, rows that differ by the signs of two numbers
    have one hash.
    """
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
    """One row of each set of equal rows, and what each set weighs together.

    ``rows`` are a matrix, or numbers as of :func:`equal_rows`; equal rows have to agree in
    ``keys``, too: labels, groups. The order is that of the hashes: data that are the same as
    weights and as copies, in whatever order, become the same to the last bit. Where there is
    neither copy nor weight above 1, all stays as it is.
    """
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
    """The part of the pairs of rows with equal inputs that are copies: rho above.

    ``rows`` are equal for equal inputs, and below ``size``: where that is known, nothing waits for
    the device. ``labels`` are 0 or 1, and p (1 - p) is their ``variance``.
    """
    size = int(rows.max()) + 1 if size is None else size
    total, ones, spread = (
        weight.new_zeros(size).scatter_add_(0, rows, values)
        for values in (weight, weight * labels, weight * variance)
    )
    differ = (ones * (total - ones)).sum()
    expected = ((total - 1).clamp_min(0) * spread).sum()
    part = torch.where(expected > 0, 1 - differ / expected, 0.0).clamp(0, 1)
    return torch.where(differ == 0, 1.0, part)
