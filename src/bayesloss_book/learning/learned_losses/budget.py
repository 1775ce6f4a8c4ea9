"""The AUC of logistic regression against the iterations that it was given."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from bayesloss_book import Array
from bayesloss_book.learning.learned_losses import table_2
from bayesloss_book.rivals.baselines import BUDGETS, fit_logistic
from paperledger.stores.results import Folder, run_cells

ITERATIONS = (1, 2, 5, 10, 20, 50, 100, 200)
_MEMORY = 10  # pairs that L-BFGS remembers, scikit-learn's choice and SciPy's


def cells() -> list[dict[str, Any]]:
    """Every reading of one problem, on both data sets, with scikit-learn's penalty and without."""
    return [
        {"data": data, "task": task, "penalty": penalty, "seed": 0}
        for penalty in (1.0, 0.0)
        for data in reversed(table_2.DATA)
        for task in reversed(table_2.TASKS[:3])
        if penalty or data == "fashion-mnist" or task == "0 vs 8"
    ]


def run(folder: Folder, *, n_jobs: int | None = None) -> None:
    """All cells at the paper's scale; resumable."""
    run_cells(measure, cells(), folder, "learned_losses_budget", n_jobs=n_jobs)
    chosen = [cell for cell in table_2.scaled_cells() if cell["method"] == "logistic"]
    scaled = [{n: cell[n] for n in ("data", "task", "penalty", "seed")} for cell in chosen]
    name = "learned_losses_budget_scaled"
    fixed = {"scaling": "mean deviation"}
    run_cells(measure, scaled, folder, name, parameters=fixed, n_jobs=n_jobs)


def measure(
    *, data: str, task: str, penalty: float, seed: int, scaling: str = "pixels"
) -> dict[str, float]:
    """Test AUC and log loss after so many iterations, and at the ``end`` of the long budget."""
    X, truth, _, X_test, truth_test = table_2.problem_data(data, task, seed, scaling)
    C = 1 / penalty if penalty else np.inf

    def describe(odds: Array, name: str) -> dict[str, float]:
        loss = float(np.logaddexp(0, -np.where(truth_test, 1.0, -1.0) * odds).mean())
        return {f"auc_{name}": table_2.mean_auc(odds, truth_test), f"log_loss_{name}": loss}

    out: dict[str, float] = {}
    for iteration, weights in logistic_path(X, truth[:, 0], penalty).items():
        odds = X_test @ weights[:-1] + weights[-1]
        out |= describe(odds[:, None], f"{iteration:04d}")
    _, end, _, converged, _ = fit_logistic(X, truth, X_test, C, BUDGETS["long"][0])
    return {**out, **describe(end, "end"), "converged": converged}


def logistic_path(X: Array, y: NDArray[np.bool_], penalty: float) -> dict[int, Array]:
    """Weights and intercept (d + 1,) after each number of iterations of `ITERATIONS`."""
    n, d = X.shape
    target = y.astype(float)

    def objective(weights: Array) -> tuple[float, Array]:
        beta = weights[:-1]
        intercept = weights[-1]
        odds = X @ beta + intercept
        value = np.logaddexp(0, odds) - target * odds
        error = (expit(odds) - target) / n
        ridge = penalty / n
        slope = np.append(X.T @ error + ridge * beta, error.sum())
        return float(value.mean() + ridge / 2 * beta @ beta), slope

    kept: dict[int, Array] = {}
    done = 0

    def keep(weights: Array) -> None:
        nonlocal done
        done += 1
        if done in ITERATIONS:
            kept[done] = weights.copy()

    end = minimize(
        objective,
        np.zeros(d + 1),
        jac=True,
        method="L-BFGS-B",
        callback=keep,
        options={"maxiter": ITERATIONS[-1], "maxcor": _MEMORY, "gtol": 1e-12, "ftol": 0.0},
    )
    return {k: kept.get(k, end.x) for k in ITERATIONS}
