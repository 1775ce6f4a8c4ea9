"""The benchmark: every method on the same problems, judged by d_L; and what each costs."""

from typing import Any

import torch

from bayesloss_book.beyond.sparse_means.problems import draw
from bayesloss_book.beyond.sparse_means.rivals import FIXED, ORACLES, PLACED, fit
from bayesloss_book.models.gp_regression import checked_points
from bayesloss_book.models.sparse_means import sparse_mean_kl, sparse_mean_targeted
from bayesloss_book.problems.shifted_regression import DEVIATION, covariate_shift, truth
from paperledger.stores.results import Folder, run_cells

SETTINGS = (  # kind, shift, k
    ("line", 2.0, 7),
    ("line", 0.0, 7),
    ("plane", 2.0, 10),
    ("plane", 2.0, 20),
    ("plane", 2.0, 40),
    ("plane", 0.0, 20),
    ("four inputs", 2.0, 40),
    ("cars", 2.0, 10),
    ("cars", 0.0, 10),
    ("diabetes", 2.0, 10),
    ("diabetes", 0.0, 10),
)
N_SEEDS = 13
SIZES = {
    "least KL": (1_000, 2_000, 4_000, 8_000, 16_000, 64_000),
    "FITC at the targets": (1_000, 2_000, 4_000, 8_000, 16_000, 64_000),
    "targeted": (1_000, 2_000, 4_000, 8_000, 16_000, 64_000),
    "posterior mean": (1_000, 2_000, 4_000),
}


def cells(*, n_seeds: int = N_SEEDS) -> list[dict[str, Any]]:
    """Every problem with every seed: first all with the first seed, and so on."""
    return [
        {"kind": kind, "shift": shift, "k": k, "seed": seed}
        for seed in range(n_seeds)
        for kind, shift, k in SETTINGS
    ]


def run(folder: Folder, *, n_jobs: int | None = None) -> None:
    """Measure what is missing in both stores, resumable. Seconds mean little if others compute."""
    how: dict[str, Any] = {"methods": [*FIXED, *PLACED, *ORACLES], "n_points": 200}
    run_cells(measure, cells(), folder, "sparse_means", parameters=how, n_jobs=n_jobs)
    costs: list[dict[str, Any]] = [
        {"method": method, "n": n, "repeat": repeat}
        for repeat in range(3)
        for method, sizes in SIZES.items()
        for n in sizes
    ]
    how = {"k": 15, "n_points": 60}
    run_cells(measure_cost, costs, folder, "sparse_means_cost", parameters=how, n_jobs=n_jobs)


def measure(
    *, kind: str, shift: float, k: int, seed: int, methods: list[str], n_points: int
) -> dict[str, float]:
    """All methods on one problem: d_L, and squared ``error``, over the test distribution."""
    problem = draw(kind, shift, k, seed, n_points=n_points)
    model = problem.model
    fresh = problem.fresh
    masses = checked_points(fresh, problem.weights)
    posterior = model.action(fresh, model.mean)
    decisions = {"posterior mean": posterior, "zero": torch.zeros_like(posterior)}
    for method in methods:
        inputs, mean = fit(method, problem, k)
        decisions[method] = model.action(fresh, mean, inputs)
    found = {}
    for method, decision in decisions.items():
        found[f"{method}: d_L"] = float(masses @ (decision - posterior) ** 2)
        found[f"{method}: error"] = float(masses @ (decision - problem.outcomes) ** 2)
    return found


def measure_cost(*, method: str, n: int, repeat: int, k: int, n_points: int) -> dict[str, float]:
    """Find one mean; ``error``: its decision's mean squared distance from the true function."""
    problem = covariate_shift(repeat, n=n, k=k)
    model = problem.model
    generator = torch.Generator().manual_seed(repeat)
    noise = torch.randn(n_points, dtype=torch.float64, generator=generator)
    points = problem.shift + DEVIATION * noise
    if method == "posterior mean":
        inputs = model.x
        mean = model.mean
    elif method == "least KL":
        inputs = model.x[problem.support]
        mean = sparse_mean_kl(model, inputs)
    else:
        how: dict[str, Any] = {} if method == "targeted" else {"oversampling": 1.0, "n_moves": 0}
        inputs, mean = sparse_mean_targeted(model, points, k=k, **how)
    exact = torch.from_numpy(truth(problem.points.numpy()))
    gap = model.action(problem.points, mean, inputs) - exact
    return {"error": float(problem.weights @ gap**2)}
