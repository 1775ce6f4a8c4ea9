"""Many rows of smooth features of one variable, rotated into few.

Of (features(x), y) a squared error needs only the inner products of columns, which the triangular
factor of a QR decomposition keeps, by n F^2 products. On a cell [a, b] where the features are
polynomials of degree q - 1 to the last digit (this is checked),

    features(x) = T(t) C,   t = (2 x - a - b) / (b - a),

with the q Chebyshev polynomials T and C by interpolation at their nodes. The few rows R_T C, R_y, R
the triangular factor of (T(t), y), then replace the cell's data, by n q^2 products.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_ROWS = 4096  # data folded in at a time
_MANY = 2**16  # data from which cells pay, and that are spread over them at a time
_NODES = 16  # q
_CELLS = (64, 128, 256, 512)  # into which the range is divided, one after the other
# Rounding errors of the largest feature that interpolation may be off by: those that it makes.
_EXACT = 512

Features = Callable[[Tensor], Tensor]  # of x of shape (n,), in n rows
Data = Float[Tensor, " n"]


def triangle(features: Features, x: Data, y: Data, weight: Data) -> Float[Tensor, "rows columns"]:
    """The triangular factor of the weighted rows of (features(x), y)."""
    folded = x.new_zeros((0, features(x[:1]).shape[1] + 1))
    for rows in few_rows(features, x, y, weight):
        folded = joined([folded, rows])
    return folded


def joined(parts: list[Tensor]) -> Float[Tensor, "rows columns"]:
    """The triangular factor of rows, such as the triangles of parts of them."""
    return torch.linalg.qr(torch.cat(parts), mode="r").R


def few_rows(features: Features, x: Data, y: Data, weight: Data) -> Iterator[Tensor]:
    """Blocks of F + 1 columns with the inner products of all weighted (features(x), y)."""
    cells = _cells_for(features, x)
    if cells is None:
        yield from _rows(features, x, y, weight)
        return
    triangles: dict[int, Tensor] = {}
    blocks = zip(x.split(_MANY), y.split(_MANY), weight.split(_MANY), strict=True)
    for x_block, y_block, weight_block in blocks:
        rough = cells.fold(triangles, x_block, y_block, weight_block)
        yield from _rows(features, x_block[rough], y_block[rough], weight_block[rough])
    filled = sorted(triangles)
    at_a_time = _ROWS // _NODES
    for begin in range(0, len(filled), at_a_time):
        rows = [cells.rows(k, triangles[k]) for k in filled[begin : begin + at_a_time]]
        yield torch.cat(rows)


def _rows(features: Features, x: Data, y: Data, weight: Data) -> Iterator[Tensor]:
    blocks = zip(x.split(_ROWS), y.split(_ROWS), weight.split(_ROWS), strict=True)
    for x_block, y_block, weight_block in blocks:
        if len(x_block):
            rows = torch.cat([features(x_block), y_block[:, None]], dim=1)
            yield rows * weight_block.sqrt()[:, None]


@dataclass(frozen=True)
class _Cells:
    """A range in cells of equal width, and the features as polynomials on each."""

    low: float
    high: float
    smooth: Bool[Tensor, " cells"]  # where polynomials are exact
    coefficients: Float[Tensor, "cells q F"]  # C

    def fold(
        self, triangles: dict[int, Tensor], x: Data, y: Data, weight: Data
    ) -> Bool[Tensor, " n"]:
        """Fold data into the triangles of smooth cells; return which lie in others."""
        n_cells = len(self.smooth)
        position = (x - self.low) * (n_cells / (self.high - self.low))
        cell = position.to(torch.int64).clamp_(0, n_cells - 1)
        rows = torch.cat([_chebyshev(2 * (position - cell) - 1), y[:, None]], dim=1)
        rows *= weight.sqrt()[:, None]
        counts = torch.bincount(cell, minlength=n_cells).tolist()
        for k, members in enumerate(cell.argsort().split(counts)):
            if len(members) and self.smooth[k]:
                before = [triangles[k]] if k in triangles else []
                triangles[k] = joined([*before, rows[members]])
        return ~self.smooth[cell]

    def rows(self, k: int, triangle: Tensor) -> Float[Tensor, "rows columns"]:
        """The few rows R_T C, R_y that replace the data of cell k."""
        return torch.cat([triangle[:, :_NODES] @ self.coefficients[k], triangle[:, _NODES:]], dim=1)


def _cells_for(features: Features, x: Data) -> _Cells | None:
    """As wide cells as the features allow, or the narrowest; None where none would pay."""
    if len(x) < _MANY:
        return None
    low = float(x.min())
    high = float(x.max())
    if low == high:
        return None
    for n_cells in _CELLS:
        cells = _interpolated(features, x, low, high, n_cells)
        if bool(cells.smooth.all()):
            break
    return cells


def _interpolated(features: Features, x: Data, low: float, high: float, n_cells: int) -> _Cells:
    """Interpolate at Chebyshev's nodes, and compare between them and at the ends."""
    angles = torch.arange(0.5, _NODES, dtype=x.dtype, device=x.device) * (math.pi / _NODES)
    nodes = angles.cos()
    between = torch.cat([(angles[:-1] + angles[1:]) / 2, angles.new_tensor([0.0, math.pi])]).cos()
    half = (high - low) / n_cells / 2
    middle = low + half * (2 * torch.arange(n_cells, dtype=x.dtype, device=x.device) + 1)

    def features_at(t: Tensor) -> Tensor:
        values = features((middle[:, None] + half * t).flatten().clamp(low, high))
        return values.reshape(n_cells, len(t), -1)

    coefficients = torch.linalg.inv(_chebyshev(nodes)) @ features_at(nodes)
    true = features_at(between)
    size = true.abs().amax((0, 1)).clamp_min(torch.finfo(x.dtype).tiny)
    error = ((_chebyshev(between) @ coefficients - true).abs() / size).amax((1, 2))
    smooth = error <= _EXACT * torch.finfo(x.dtype).eps
    return _Cells(low=low, high=high, smooth=smooth, coefficients=coefficients)


def _chebyshev(t: Float[Tensor, " n"]) -> Float[Tensor, "n q"]:
    columns = [torch.ones_like(t), t]
    for _ in range(2, _NODES):
        columns.append(2 * t * columns[-1] - columns[-2])
    return torch.stack(columns, dim=1)
