"""What sparse means cost: operations counted, and seconds stored (LHG section 4.1)."""

from typing import Any

import numpy as np

from bayesloss_book.models.sparse_means import mean_by_cg, sparse_mean_kl
from bayesloss_book.problems.shifted_regression import covariate_shift, equal_ranks, truth
from bayesloss_book.references.multiplications import Counted, gram, objects, problem, solve
from paperledger.stores.results import runs

SIZES = {
    "KL": (500, 1000, 2000, 4000, 8000, 16000),
    "d_L, larger support": (500, 1000, 2000, 4000, 8000, 16000),
    "d_L, conjugate gradients": (500, 1000, 2000, 4000),
    "d_L, exact solve": (500, 1000, 2000, 4000),
}


def count_multiplications(n: int, k: int) -> dict[str, int]:
    """Multiplications and divisions of the exact and the sparse mean by textbook loops."""
    model, _ = problem(n, 1)
    K = objects(model.K)
    y = objects(model.y)
    noise = Counted(model.noise_variance)
    Counted.steps = 0
    solve(K + np.diag(np.full(n, noise)), y)
    exact = Counted.steps
    Counted.steps = 0
    rows = K[:, :k]
    half = np.tril_indices(k)
    matrix = gram(rows)
    matrix[half] += K[half] * noise
    solve(matrix, rows.T @ y)
    return {"exact mean": exact, "sparse KL": Counted.steps}


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
    model = problem.model
    n_iter = 0
    if method == "KL":
        sparse = sparse_mean_kl(model, problem.support)
    else:
        target = None
        if method == "d_L, conjugate gradients":
            solved = mean_by_cg(model, rtol=rtol)
            target = model.action(problem.points, solved.mean)
            n_iter = solved.n_iter
        elif method == "d_L, larger support":
            larger = equal_ranks(n, k_larger)
            target = model.action(problem.points, sparse_mean_kl(model, larger), larger)
        sparse = problem.fitted(target)
    gap = model.action(problem.points, sparse, problem.support).numpy()
    gap -= truth(problem.points.numpy())
    return {"error": float(problem.weights.numpy() @ gap**2), "n_iter": n_iter}


# Seconds are only comparable if nothing else runs.
run = runs(measure, cells, "gp_regression", k=15, k_larger=60, rtol=1e-3)
