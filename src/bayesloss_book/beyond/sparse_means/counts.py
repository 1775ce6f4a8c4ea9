"""What a targeted mean costs: multiplications, counted by the numbers that are multiplied."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bayesloss.kernels import SquaredExponential
from bayesloss_book.gp_regression import GPRegression

_NOISE = 0.04
_BACKWARD = 5  # the cost of a value and its gradient in units of the value, at most (Griewank)


class Counted(float):
    """A number; `steps` is how often such numbers were multiplied, divided or their root taken."""

    steps = 0

    def __mul__(self, other: Any) -> "Counted":
        Counted.steps += 1
        return Counted(float(self) * float(other))

    def __truediv__(self, other: Any) -> "Counted":
        Counted.steps += 1
        return Counted(float(self) / float(other))

    def __add__(self, other: Any) -> "Counted":
        return Counted(float(self) + float(other))

    def __sub__(self, other: Any) -> "Counted":
        return Counted(float(self) - float(other))

    def sqrt(self) -> "Counted":
        """The square root, which NumPy asks its objects for."""
        Counted.steps += 1
        return Counted(math.sqrt(self))


Array = NDArray[np.object_]


def problem(n: int, m: int) -> tuple[GPRegression, torch.Tensor]:
    """A model of n data and m test inputs, far enough apart for plain loops."""
    x = torch.arange(n, dtype=torch.float64)
    model = GPRegression(SquaredExponential(a=1.0), x, torch.cos(x), noise_variance=_NOISE)
    return model, n / 2 + 1.3 * torch.arange(m, dtype=torch.float64)


def count(n: int, k: int, m: int, *, oversampling: int = 2, n_moves: int = 20) -> dict[str, int]:
    """Multiplications of each method, and of each part of the targeted mean."""
    parts, _ = by_hand(*problem(n, m), k=k, size=oversampling * k)
    parts["moves, at most"] *= _BACKWARD * n_moves
    return parts


def by_hand(
    model: GPRegression, points: torch.Tensor, *, k: int, size: int
) -> tuple[dict[str, int], tuple[list[int], NDArray[np.float64]]]:
    """Counts of the parts, and the targeted mean: indices of points, and coefficients."""
    noise, y = Counted(model.noise_variance), objects(model.y)
    K = objects(model.kernel(points, points))
    cross = objects(model.kernel(model.x, points))
    parts: dict[str, int] = {}

    def lap(name: str) -> None:
        parts[name] = Counted.steps
        Counted.steps = 0

    Counted.steps = 0
    S = list(range(k))  # any k training points
    rows = objects(model.kernel(model.x, model.x[S]))
    prior = objects(model.kernel(model.x[S], model.x[S]))
    solve(gram(rows) + prior * noise, rows.T @ y)  # LHG eq. (34)
    lap("least KL")
    order, factor = _pivots(K, size, Counted(float(model.kernel.b)))
    lap("spread")
    wide = cross[:, order]
    explained = _forward(factor, wide.T.copy()).T
    unexplained = np.array([Counted(float(model.kernel.b)) - row @ row for row in explained])
    weighted = wide * np.array([noise / (noise + u) for u in unexplained])[:, None]
    teacher = solve(gram(wide, weighted) + K[np.ix_(order, order)] * noise, weighted.T @ y)
    lap("teacher")
    target = K[:, order] @ teacher
    columns, chosen = K[:, order], []
    for _ in range(k):
        gains = [-1.0 if j in chosen else _gain(columns[:, j], target) for j in range(len(order))]
        best = int(np.argmax([float(gain) for gain in gains]))
        chosen.append(best)
        unit = columns[:, best] / np.sqrt(columns[:, best] @ columns[:, best])
        columns = columns - unit[:, None] * (unit @ columns)
    kept = [order[j] for j in chosen]
    lap("choice")
    functions = K[:, kept]
    found = solve(gram(functions), functions.T @ target)
    lap("fit")
    parts["moves, at most"] = parts["fit"]
    return parts, (kept, found.astype(np.float64))


def objects(values: torch.Tensor) -> Array:
    """The same numbers, counted."""
    flat = np.array([Counted(v) for v in values.flatten().tolist()], dtype=object)
    return flat.reshape(tuple(values.shape))


def gram(rows: Array, others: Array | None = None) -> Array:
    """The lower half of rows.T @ others."""
    others = rows if others is None else others
    k = rows.shape[1]
    out = np.full((k, k), Counted(0.0), dtype=object)
    for i in range(k):
        for j in range(i + 1):
            out[i, j] = rows[:, i] @ others[:, j]
    return out


def solve(A: Array, right: Array) -> Array:
    """By Cholesky's factor of the lower half and two substitutions."""
    k = len(A)
    L = np.full((k, k), Counted(0.0), dtype=object)
    for j in range(k):
        L[j, j] = (A[j, j] - L[j, :j] @ L[j, :j]).sqrt() if j else A[j, j].sqrt()
        for i in range(j + 1, k):
            L[i, j] = (A[i, j] - L[i, :j] @ L[j, :j] if j else A[i, j]) / L[j, j]
    z = _forward(L, right.copy())
    for i in reversed(range(k)):
        z[i] = (z[i] - L[i + 1 :, i] @ z[i + 1 :] if i + 1 < k else z[i]) / L[i, i]
    return z


def _forward(L: Array, right: Array) -> Array:
    for i in range(len(L)):
        right[i] = (right[i] - L[i, :i] @ right[:i] if i else right[i]) / L[i, i]
    return right


def _pivots(K: Array, size: int, b: Counted) -> tuple[list[int], Array]:
    """The order, and the Cholesky factor of K in it."""
    m = len(K)
    rows = np.empty((0, m), dtype=object)
    variance = np.full(m, b, dtype=object)
    order: list[int] = []
    for _ in range(size):
        best = int(np.argmax(variance.astype(np.float64)))
        new = (K[best] - rows[:, best] @ rows if order else K[best]) / np.sqrt(variance[best])
        variance = variance - new * new
        rows, order = np.vstack([rows, new[None]]), [*order, best]
    return order, rows[:, order].T


def _gain(column: Array, target: Array) -> Counted:
    product = column @ target
    return product * product / (column @ column)
