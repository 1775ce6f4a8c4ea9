"""What sparse means cost: operations counted, and seconds stored (LHG section 4.1)."""

import math
from collections.abc import Sequence
from operator import mul
from typing import Any

import torch

from bayesloss.kernels import SquaredExponential
from bayesloss_book.gp_regression import GPRegression
from bayesloss_book.shifted_regression import NOISE, SMOOTHNESS, covariate_shift, equal_ranks, truth
from bayesloss_book.sparse_means import mean_by_cg, sparse_mean_kl
from bayesloss_book.stores.results import runs

SIZES = {
    "KL": (500, 1000, 2000, 4000, 8000, 16000),
    "d_L, larger support": (500, 1000, 2000, 4000, 8000, 16000),
    "d_L, conjugate gradients": (500, 1000, 2000, 4000),
    "d_L, exact solve": (500, 1000, 2000, 4000),
}


def count_multiplications(n: int, k: int) -> dict[str, int]:
    """Multiplications and divisions of the exact and the sparse mean by textbook loops."""
    x = torch.arange(n, dtype=torch.float64)  # far enough apart for plain loops
    kernel = SquaredExponential(a=SMOOTHNESS)
    model = GPRegression(kernel, x, torch.cos(x), noise_variance=NOISE)
    K, y = model.K.tolist(), model.y.tolist()
    noisy = [[K[i][j] + (i == j) * NOISE for j in range(n)] for i in range(n)]
    steps = {"exact mean": solve_by_hand(noisy, y)[1]}
    rows = K[:k]  # K_SD
    matrix = [
        [NOISE * rows[i][j] + sum(map(mul, rows[i], rows[j])) for j in range(i + 1)]
        for i in range(k)
    ]
    right = [sum(map(mul, row, y)) for row in rows]
    steps["sparse KL"] = (n + 1) * k * (k + 1) // 2 + n * k + solve_by_hand(matrix, right)[1]
    return steps


def solve_by_hand(
    matrix: Sequence[Sequence[float]], right: Sequence[float]
) -> tuple[list[float], int]:
    """Solve a positive definite system by Cholesky's loops, of whose lower half they read."""
    n, steps = len(right), 0
    L = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            rest = matrix[i][j] - sum(L[i][m] * L[j][m] for m in range(j))
            L[i][j] = math.sqrt(rest) if i == j else rest / L[j][j]
            steps += j + 1
    z = list(right)
    for i in range(n):
        z[i] = (z[i] - sum(L[i][m] * z[m] for m in range(i))) / L[i][i]
        steps += i + 1
    for i in reversed(range(n)):
        z[i] = (z[i] - sum(L[m][i] * z[m] for m in range(i + 1, n))) / L[i][i]
        steps += n - i
    return z, steps


def cells() -> list[dict[str, Any]]:
    """Each way to a sparse mean at several N, three times."""
    return [
        {"method": method, "n": n, "repeat": repeat}
        for repeat in range(3)
        for method, sizes in SIZES.items()
        for n in sizes
    ]


def measure(
    *, method: str, n: int, repeat: int, k: int, k_larger: int, rtol: float
) -> dict[str, float]:
    """One sparse mean: mean squared ``error`` of its decision, and ``n_iter`` of the gradients."""
    problem = covariate_shift(repeat, n=n, k=k)
    model, n_iter = problem.model, 0
    if method == "KL":
        sparse = sparse_mean_kl(model, problem.support)
    else:
        target = None
        if method == "d_L, conjugate gradients":
            solved = mean_by_cg(model, rtol=rtol)
            target, n_iter = model.action(problem.points, solved.mean), solved.n_iter
        elif method == "d_L, larger support":
            larger = equal_ranks(n, k_larger)
            target = model.action(problem.points, sparse_mean_kl(model, larger), larger)
        sparse = problem.fitted(target)
    gap = model.action(problem.points, sparse, problem.support).numpy()
    gap -= truth(problem.points.numpy())
    return {"error": float(problem.weights.numpy() @ gap**2), "n_iter": n_iter}


# Seconds are only comparable if nothing else runs.
run = runs(measure, cells, "gp_regression", k=15, k_larger=60, rtol=1e-3)
