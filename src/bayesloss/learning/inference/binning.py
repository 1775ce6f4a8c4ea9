r"""Many rows of smooth features of one variable, rotated into few.

Inner products of the columns are all that a squared error needs of (features(x), y), and the
triangular factor of a QR decomposition keeps them. Its cost is that of n F^2 products. On a cell
[a, b] in which the features are polynomials of degree q - 1 to the last digit,

    features(x) = T(t) C,   t = (2 x - a - b) / (b - a),

with T the q Chebyshev polynomials and C what interpolation at their q nodes gives. So the rows of
the data in a cell, with R the triangular factor of (T(t), y), are as good as the few rows

    R_T C,  R_y,

and n q^2 products suffice. Whether interpolation is exact is tried between the nodes; the rows of
cells where it is not stay as they are.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

__all__ = ["few_rows", "joined", "triangle"]

_ROWS = 4096  # data folded in at a time
_MANY = 2**16  # data from which cells pay, and that are spread over them at a time
_NODES = 16  # q
_CELLS = (64, 128, 256, 512)  # into which the range is divided, one after the other
_EXACT = 512  # rounding errors of the largest feature that interpolation may be off by: its own


def triangle(features: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """The triangular factor of the weighted rows of (features(x), y).

    Parameters
    ----------
    features : callable
        Takes x of shape (n,) to features of shape (n, F).
    x, y, weight : Tensor of shape (n,)

    Returns
    -------
    Tensor of shape (F + 1, F + 1), or fewer rows where there are fewer data
    """
    found = x.new_zeros((0, features(x[:1]).shape[1] + 1))
    for rows in few_rows(features, x, y, weight):
        found = joined([found, rows])
    return found


def joined(parts: list[Tensor]) -> Tensor:
    """The triangular factor of rows, (any, F + 1) each, such as the triangles of parts of them."""
    return torch.linalg.qr(torch.cat(parts), mode="r").R


def few_rows(
    features: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, weight: Tensor
) -> Iterator[Tensor]:
    """Blocks of rows, of shape (any, F + 1), with the inner products of all (features(x), y).

    Parameters as for :func:`triangle`.
    """
    if len(x) >= _MANY and (low := float(x.min())) < (high := float(x.max())):
        for cells in _CELLS:
            smooth, coefficients = _interpolated(features, x, low, high, cells)
            if bool(smooth.all()):
                break
        triangles: list[Tensor | None] = [None] * cells
        for part in zip(x.split(_MANY), y.split(_MANY), weight.split(_MANY), strict=True):
            rough = _spread(triangles, smooth, low, high, part)
            yield from _rows(features, *rough)
        kept = [k for k, cell in enumerate(triangles) if cell is not None]
        for some in (kept[i : i + _ROWS // _NODES] for i in range(0, len(kept), _ROWS // _NODES)):
            yield torch.cat([_unfolded(triangles[k], coefficients[k]) for k in some])
    else:
        yield from _rows(features, x, y, weight)


def _rows(
    features: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, weight: Tensor
) -> Iterator[Tensor]:
    blocks = (part.split(_ROWS) for part in (x, y, weight))
    for x_part, y_part, weight_part in zip(*blocks, strict=True):
        if len(x_part):
            rows = torch.cat([features(x_part), y_part[:, None]], dim=1)
            yield rows * weight_part.sqrt()[:, None]


def _chebyshev(t: Tensor) -> Tensor:
    """T_0, ..., T_{q - 1} at t of shape (n,): of shape (n, q)."""
    columns = [torch.ones_like(t), t]
    for _ in range(2, _NODES):
        columns.append(2 * t * columns[-1] - columns[-2])
    return torch.stack(columns, dim=1)


def _interpolated(
    features: Callable[[Tensor], Tensor], x: Tensor, low: float, high: float, cells: int
) -> tuple[Tensor, Tensor]:
    """In which cells polynomials are exact, (cells,), and their coefficients C, (cells, q, F)."""
    angles = torch.arange(0.5, _NODES, dtype=x.dtype, device=x.device) * (math.pi / _NODES)
    nodes = angles.cos()
    between = torch.cat([(angles[:-1] + angles[1:]) / 2, angles.new_tensor([0.0, math.pi])]).cos()
    half = (high - low) / cells / 2
    middle = low + half * (2 * torch.arange(cells, dtype=x.dtype, device=x.device) + 1)

    def at(t: Tensor) -> Tensor:
        values = features((middle[:, None] + half * t).flatten().clamp(low, high))
        return values.reshape(cells, len(t), -1)

    inverse = torch.linalg.inv(_chebyshev(nodes))
    coefficients = inverse @ at(nodes)
    true = at(between)
    size = true.abs().amax((0, 1)).clamp_min(torch.finfo(x.dtype).tiny)
    error = ((_chebyshev(between) @ coefficients - true).abs() / size).amax((1, 2))
    return error <= _EXACT * torch.finfo(x.dtype).eps, coefficients


def _spread(
    triangles: list[Tensor | None],
    smooth: Tensor,
    low: float,
    high: float,
    part: tuple[Tensor, Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Fold some data into the triangles of their cells; return those of cells without."""
    x, y, weight = part
    position = (x - low) * (len(triangles) / (high - low))
    cell = position.to(torch.int64).clamp_(0, len(triangles) - 1)
    t = (2 * (position - cell) - 1)[:, None]
    rows = torch.cat([_chebyshev(t[:, 0]), y[:, None]], dim=1) * weight.sqrt()[:, None]
    order = cell.argsort()
    counts = torch.bincount(cell, minlength=len(triangles)).tolist()
    for k, chosen in enumerate(order.split(counts)):
        if len(chosen) and smooth[k]:
            new, old = rows[chosen], triangles[k]
            new = new if old is None else torch.cat([old, new])
            triangles[k] = torch.linalg.qr(new, mode="r").R
    rough = ~smooth[cell]
    return x[rough], y[rough], weight[rough]


def _unfolded(cell: Tensor | None, coefficients: Tensor) -> Tensor:
    """The rows of a cell, of shape (q + 1, F + 1), from its triangle (q + 1, q + 1)."""
    if cell is None:
        raise ValueError("expected the triangle of a cell with data, got None")
    return torch.cat([cell[:, :_NODES] @ coefficients, cell[:, _NODES:]], dim=1)
