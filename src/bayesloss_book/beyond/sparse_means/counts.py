"""What a targeted mean costs: multiplications, counted by the numbers that are multiplied."""

import numpy as np
import torch
from numpy.typing import NDArray

from bayesloss_book.models.gp_regression import GPRegression
from bayesloss_book.references.multiplications import (
    Array,
    Counted,
    forward,
    gram,
    objects,
    problem,
    solve,
)

_BACKWARD = 5  # the cost of a value and its gradient in units of the value, at most (Griewank)


def count(n: int, k: int, m: int, *, oversampling: int = 2, n_moves: int = 20) -> dict[str, int]:
    """Multiplications of each method, and of each part of the targeted mean."""
    parts, _ = by_hand(*problem(n, m), k=k, size=oversampling * k)
    parts["moves, at most"] *= _BACKWARD * n_moves
    return parts


def by_hand(
    model: GPRegression, points: torch.Tensor, *, k: int, size: int
) -> tuple[dict[str, int], tuple[list[int], NDArray[np.float64]]]:
    """Counts of the parts, and the targeted mean: indices of points, and coefficients."""
    noise = Counted(model.noise_variance)
    y = objects(model.y)
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
    explained = forward(factor, wide.T.copy()).T
    unexplained = np.array([Counted(float(model.kernel.b)) - row @ row for row in explained])
    weighted = wide * np.array([noise / (noise + u) for u in unexplained])[:, None]
    teacher = solve(gram(wide, weighted) + K[np.ix_(order, order)] * noise, weighted.T @ y)
    lap("teacher")
    target = K[:, order] @ teacher
    columns = K[:, order]
    chosen = []
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
        rows = np.vstack([rows, new[None]])
        order = [*order, best]
    return order, rows[:, order].T


def _gain(column: Array, target: Array) -> Counted:
    product = column @ target
    return product * product / (column @ column)
