"""Table 2 of W&N: test AUC on binary problems from two image sets, eight methods.

The text does not say which classes make the problems: readings are in the cells. The standard error
of an AUC, and of two methods' difference, is a jackknife's over `BLOCKS` parts of the test images.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import rankdata
from sklearn.exceptions import ConvergenceWarning

from bayesloss_book import Array
from bayesloss_book.data.image_sets import inputs, one_vs_rest
from bayesloss_book.rivals.baselines import BUDGETS, fit_logistic, recipe
from bayesloss_book.rivals.generalised_isotonic import BregmanTron, GLMTron, SLIsotron
from paperledger.stores.results import Folder, run_cells

DATA = ("mnist", "fashion-mnist")
SIZES = {"mnist": 60_000, "fashion-mnist": 60_000, "digits": 1_200}
TASKS = ("0 vs 8", "0 vs rest", "odd vs even", "each vs rest")
BLOCKS = 20
# Grey values as parts of white; or centred, in units of the mean of the pixels' standard
# deviations, as the public code of a later paper has them (Lam et al. 2023).
SCALINGS = ("pixels", "mean deviation")
METHODS = {  # in the order of the paper's rows
    "ISGP": "isgp_linkgistic",
    "GP": "gp_linkgistic",
    "logistic": "logistic_regression",
    "GLMTron": "glmtron",
    "BregmanTron": "bregmantron",
    "BregmanTron label": "bregmantron_label",
    "BregmanTron approx": "bregmantron_approx",
    "SLIsotron": "slisotron",
}
LINEAR = tuple(METHODS)[:3]
TRONS = tuple(METHODS)[3:]

# Largest number of rounds, and gradient steps a round of the BregmanTron.
_TRON_ROUNDS = {
    "short": {"GLMTron": 100, "SLIsotron": 30, "BregmanTron": 10},
    "default": {"GLMTron": 1_000, "SLIsotron": 100, "BregmanTron": 20},
    "long": {"GLMTron": 5_000, "SLIsotron": 500, "BregmanTron": 100},
}
_TRON_STEPS = {"short": 10, "default": 50, "long": 50}


def cells(
    data: str, task: str, methods: Sequence[str] = tuple(METHODS), **setting: Any
) -> list[dict[str, Any]]:
    """The cells of some methods on one problem; penalised as in scikit-learn, unless said."""
    chosen = {"penalty": 1.0, "budget": "default", "seed": 0} | setting
    found = [{"data": data, "task": task, "method": method, **chosen} for method in methods]
    return [cell | ({"penalty": 0.0} if cell["method"] in TRONS else {}) for cell in found]


def paper_cells() -> list[dict[str, Any]]:
    """All cells at the paper's scale, what tells most first."""
    eight, rest, odd, each = TASKS
    mnist, fashion = DATA
    main = [(fashion, odd), (mnist, eight), (fashion, rest)]
    other = [(mnist, rest), (fashion, eight), (mnist, odd)]
    budgets: list[dict[str, Any]] = [
        {"penalty": 0.0},
        {"budget": "short"},
        {"budget": "long"},
        {"penalty": 0.0, "budget": "short"},
        {"penalty": 0.0, "budget": "long"},
    ]
    out = [cell for problem in main for cell in cells(*problem, LINEAR)]
    out += [cell for problem in main[:2] for cell in cells(*problem, TRONS)]
    out += [cell for setting in budgets for cell in cells(*main[0], LINEAR, **setting)]
    out += [cell for problem in other for cell in cells(*problem, LINEAR)]
    for budget in ("short", "long"):
        out += cells(*main[1], LINEAR, budget=budget)
    for budget in ("default", "short"):
        out += cells(*main[1], LINEAR, penalty=0.0, budget=budget)
    out += cells(*other[1], LINEAR, penalty=0.0)
    out += cells(*other[1], TRONS)
    out += cells(*main[2], TRONS)
    out += cells(*main[1], ("GLMTron", "BregmanTron label"), budget="long")
    out += [cell for problem in main for cell in cells(*problem, TRONS, budget="short")]
    out += [cell for data in (fashion, mnist) for cell in cells(data, each, LINEAR)]
    out += [cell for problem in other[::2] for cell in cells(*problem, LINEAR, penalty=0.0)]
    out += cells(*other[0], TRONS)
    return out + [cell for setting in budgets for cell in cells(*main[2], LINEAR, **setting)]


def scaled_cells() -> list[dict[str, Any]]:
    """The linear models in another unit, on the problems that fit the print best."""
    best = (("fashion-mnist", "odd vs even"), ("mnist", "0 vs 8"))
    return [c for penalty in (1.0, 0.0) for p in best for c in cells(*p, LINEAR, penalty=penalty)]


def run(folder: Folder, *, n_jobs: int | None = None) -> None:
    """All cells at the paper's scale; resumable."""
    run_cells(measure, paper_cells(), folder, "learned_losses", n_jobs=n_jobs)
    name = "learned_losses_scaled"
    fixed = {"scaling": "mean deviation"}
    run_cells(measure, scaled_cells(), folder, name, parameters=fixed, n_jobs=n_jobs)


def problems(task: str, labels: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which images a task keeps, (n,), and which of those kept are positive, (kept, K)."""
    if task not in TASKS:
        raise ValueError(f"expected a task of {TASKS}, got {task!r}")
    keep = np.isin(labels, (0, 8)) if task == "0 vs 8" else np.ones(len(labels), dtype=bool)
    kept = labels[keep]
    if task == "each vs rest":
        return keep, one_vs_rest(kept)
    positive = kept % 2 == 1 if task == "odd vs even" else kept == 0
    return keep, positive[:, None]


def problem_data(
    data: str, task: str, seed: int, scaling: str = "pixels"
) -> tuple[Array, NDArray[np.bool_], NDArray[np.int64], Array, NDArray[np.bool_]]:
    """A task on a data set: inputs (n, d), which are positive (n, K), labels (n,); test ones."""
    if scaling not in SCALINGS:
        raise ValueError(f"expected a scaling of {SCALINGS}, got {scaling!r}")
    X, labels, X_test, test_labels = inputs(data, SIZES[data], "pixels", seed)
    keep, truth = problems(task, labels)
    keep_test, truth_test = problems(task, test_labels)
    X = X[keep]
    X_test = X_test[keep_test]
    if scaling == "mean deviation":
        centre = X.mean(axis=0)
        unit = X.std(axis=0).mean()
        X = (X - centre) / unit
        X_test = (X_test - centre) / unit
    return X, truth, labels[keep], X_test, truth_test


def measure(
    *,
    data: str,
    task: str,
    method: str,
    penalty: float,
    budget: str,
    seed: int,
    scaling: str = "pixels",
) -> dict[str, float]:
    """Fit one method to one problem, or to ten, and measure it on the test set.

    The measures of "each vs rest" are means over its ten problems. "logistic" is the fit with the
    fixed link where EM begins; the penalty is 1/C, 0 for none. ``auc`` of the predicted
    probabilities and ``auc_score`` of the linear scores beneath them, fractions; ``without_00``,
    ...: ``auc`` without each block of test images; ``log_loss`` (nats) and ``brier``; ``rounds``,
    ``converged``; ``holdout``: mean squared error on the part of the training data that a tron
    holds out, else NaN.
    """
    X, truth, labels, X_test, truth_test = problem_data(data, task, seed, scaling)
    C = 1 / penalty if penalty else np.inf
    holdout = np.nan
    if method in TRONS:
        if truth.shape[1] > 1:
            raise ValueError(f"expected one problem for {method}, got the task {task!r}")
        odds, scores, rounds, converged, holdout = _fit_tron(
            method, X, truth[:, 0], X_test, budget, seed
        )
    elif method == "logistic":
        _, odds, rounds, converged, _ = fit_logistic(X, truth, X_test, C, BUDGETS[budget][0])
        scores = odds
    else:
        y = truth[:, 0] if truth.shape[1] == 1 else labels
        odds, scores, rounds, converged = _fit_linkgistic(method, X, y, X_test, C, budget, seed)
    sign = np.where(truth_test, 1.0, -1.0)
    probability = expit(odds)
    out: dict[str, float] = {
        "auc": mean_auc(odds, truth_test),
        "auc_score": mean_auc(scores, truth_test),
        "log_loss": float(np.logaddexp(0, -sign * odds).mean()),
        "brier": float(np.mean((probability - truth_test) ** 2)),
        "rounds": rounds,
        "converged": converged,
        "holdout": holdout,
    }
    block = np.arange(len(odds)) % BLOCKS
    for b in range(BLOCKS):
        out[f"without_{b:02d}"] = mean_auc(odds[block != b], truth_test[block != b])
    return out


def mean_auc(odds: Array, truth: NDArray[np.bool_]) -> float:
    """The area under the ROC curve by ranks, a mean over the columns of arrays (n, K)."""
    ranks = rankdata(odds, axis=0)
    ones = truth.sum(axis=0)
    below = (ranks * truth).sum(axis=0) - ones * (ones + 1) / 2
    return float(np.mean(below / (ones * (len(truth) - ones))))


def jackknife(row: pd.Series, baseline: pd.Series | None = None) -> tuple[float, float]:
    """AUC of a stored row, or its gap over another row's, with the jackknife's standard error."""
    names = [f"without_{b:02d}" for b in range(BLOCKS)]
    value = float(row["auc"])
    parts = row[names].to_numpy(dtype=float)
    if baseline is not None:
        value = value - float(baseline["auc"])
        parts = parts - baseline[names].to_numpy(dtype=float)
    variance = (BLOCKS - 1) / BLOCKS * float(((parts - parts.mean()) ** 2).sum())
    return value, variance**0.5


def _fit_tron(
    method: str, X: Array, y: NDArray[np.bool_], X_test: Array, budget: str, seed: int
) -> tuple[Array, Array, int, bool, float]:
    """Log odds and scores of the test images, rounds, converged, squared error on the hold-out."""
    kind, _, variant = method.partition(" ")
    rounds = _TRON_ROUNDS[budget][kind]
    model: GLMTron | SLIsotron | BregmanTron
    if kind == "GLMTron":
        model = GLMTron(max_iter=rounds, random_state=seed)
    elif kind == "SLIsotron":
        model = SLIsotron(max_iter=rounds, random_state=seed)
    else:
        model = BregmanTron(
            variant or None, n_steps=_TRON_STEPS[budget], max_iter=rounds, random_state=seed
        )
    # It is in the measures.
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        model.fit(X.astype(np.float32), y)
    thin = X_test.astype(np.float32)
    with np.errstate(divide="ignore"):  # a learned link does reach 0 and 1
        odds = logit(model.predict_proba(thin)[:, 1:])
    scores = model.linear_score(thin)[:, None]
    return odds, scores, model.n_iter_, model.converged_, float(model.holdout_errors_.min())


def _fit_linkgistic(
    method: str, X: Array, y: NDArray[Any], X_test: Array, C: float, budget: str, seed: int
) -> tuple[Array, Array, int, bool]:
    """Log odds and scores of the test images, rounds, converged."""
    tol, max_rounds = BUDGETS[budget]
    model = recipe(method, C=C, tol=tol, max_iter=max_rounds, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is in the measures
        warnings.filterwarnings("ignore", ".*outside", UserWarning)
        odds = model.fit(X, y).decision_function(X_test)
    scores = (X_test - model.centre_) @ model.coef_.T
    return odds.reshape(len(X_test), -1), scores, model.n_iter_, model.converged_
