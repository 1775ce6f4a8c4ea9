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

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_ROWS = 4096  # data folded in at a time
_MANY = 2**16  # data from which cells pay, and that are spread over them at a time
_NODES = 16  # q
_CELLS = (64, 128, 256, 512)  # into which the range is divided, one after the other
_EXACT = 512  # rounding errors of the largest feature that interpolation may be off by: its own

Features = Callable[[Tensor], Tensor]  # of x of shape (n,), in n rows
Data = Float[Tensor, " n"]


def triangle(features: Features, x: Data, y: Data, weight: Data) -> Float[Tensor, "rows columns"]:
    """The triangular factor of the weighted rows of (features(x), y)."""
    found = x.new_zeros((0, features(x[:1]).shape[1] + 1))
    for rows in few_rows(features, x, y, weight):
        found = joined([found, rows])
    return found


def joined(parts: list[Tensor]) -> Float[Tensor, "rows columns"]:
    """The triangular factor of rows, such as the triangles of parts of them."""
    return torch.linalg.qr(torch.cat(parts), mode="r").R


def few_rows(features: Features, x: Data, y: Data, weight: Data) -> Iterator[Tensor]:
    """Blocks of F + 1 columns with the inner products of all weighted (features(x), y)."""
    if len(x) < _MANY or not (low := float(x.min())) < (high := float(x.max())):
        yield from _rows(features, x, y, weight)
        return
    for cells in _CELLS:
        smooth, coefficients = _interpolated(features, x, low, high, cells)
        if bool(smooth.all()):
            break
    triangles: dict[int, Tensor] = {}
    for part in zip(x.split(_MANY), y.split(_MANY), weight.split(_MANY), strict=True):
        yield from _rows(features, *_spread(triangles, smooth, low, high, *part))
    kept, some = sorted(triangles), _ROWS // _NODES
    for begin in range(0, len(kept), some):
        each = [(triangles[k], coefficients[k]) for k in kept[begin : begin + some]]
        yield torch.cat([torch.cat([R[:, :_NODES] @ C, R[:, _NODES:]], dim=1) for R, C in each])


def _rows(features: Features, x: Data, y: Data, weight: Data) -> Iterator[Tensor]:
    blocks = (part.split(_ROWS) for part in (x, y, weight))
    for x_part, y_part, weight_part in zip(*blocks, strict=True):
        if len(x_part):
            rows = torch.cat([features(x_part), y_part[:, None]], dim=1)
            yield rows * weight_part.sqrt()[:, None]


def _chebyshev(t: Float[Tensor, " n"]) -> Float[Tensor, "n q"]:
    columns = [torch.ones_like(t), t]
    for _ in range(2, _NODES):
        columns.append(2 * t * columns[-1] - columns[-2])
    return torch.stack(columns, dim=1)


def _interpolated(
    features: Features, x: Data, low: float, high: float, cells: int
) -> tuple[Bool[Tensor, " cells"], Float[Tensor, "cells q F"]]:
    """In which cells polynomials are exact, and their coefficients C."""
    angles = torch.arange(0.5, _NODES, dtype=x.dtype, device=x.device) * (math.pi / _NODES)
    nodes = angles.cos()
    between = torch.cat([(angles[:-1] + angles[1:]) / 2, angles.new_tensor([0.0, math.pi])]).cos()
    half = (high - low) / cells / 2
    middle = low + half * (2 * torch.arange(cells, dtype=x.dtype, device=x.device) + 1)

    def at(t: Tensor) -> Tensor:
        values = features((middle[:, None] + half * t).flatten().clamp(low, high))
        return values.reshape(cells, len(t), -1)

    coefficients = torch.linalg.inv(_chebyshev(nodes)) @ at(nodes)
    true = at(between)
    size = true.abs().amax((0, 1)).clamp_min(torch.finfo(x.dtype).tiny)
    error = ((_chebyshev(between) @ coefficients - true).abs() / size).amax((1, 2))
    return error <= _EXACT * torch.finfo(x.dtype).eps, coefficients


def _spread(
    triangles: dict, smooth: Tensor, low: float, high: float, x: Data, y: Data, weight: Data
) -> tuple[Float[Tensor, " rough"], ...]:
    """Fold data into their cells' triangles; return those of cells where this is inexact."""
    position = (x - low) * (len(smooth) / (high - low))
    cell = position.to(torch.int64).clamp_(0, len(smooth) - 1)
    rows = torch.cat([_chebyshev(2 * (position - cell) - 1), y[:, None]], dim=1)
    rows *= weight.sqrt()[:, None]
    counts = torch.bincount(cell, minlength=len(smooth)).tolist()
    for k, chosen in enumerate(cell.argsort().split(counts)):
        if len(chosen) and smooth[k]:
            before = [triangles[k]] if k in triangles else []
            triangles[k] = joined([*before, rows[chosen]])
    rough = ~smooth[cell]
    return x[rough], y[rough], weight[rough]
