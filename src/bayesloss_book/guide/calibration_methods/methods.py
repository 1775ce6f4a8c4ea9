"""Learned links against calibration: which is better, by how much, and at what cost.

A cell is a method on one binary problem; all see the same inputs and have the same L2 penalty 1/C.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from betacal import BetaCalibration
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from bayesloss import CalibratedClassifier, LinkgisticClassifier
from bayesloss_book import Array
from bayesloss_book.data.data_sets import IMAGE_DATASETS
from bayesloss_book.guide.calibration_methods import problems
from bayesloss_book.rivals.baselines import (
    CALIBRATION_BINS,
    HELD_OUT,
    calibration_error,
    log_loss,
    recipe,
)
from paperledger.stores.results import runs

CALIBRATED = ("sigmoid", "isotonic", "beta", "our calibrator")
METHODS = ("base rate", "logistic", *CALIBRATED, "GP", "ISGP", HELD_OUT)
STRONG = 0.01  # C of a penalty that is a hundred times the default

_FOLDS = 5
_MAX_ITER = 1_000


def cells() -> list[dict[str, Any]]:
    """All cells that the page shows."""
    seeds = {300: 10, 3_000: 10, 30_000: 5}
    simulated = [
        cell for size, n in seeds.items() for cell in simulated_cells(size=size, n_seeds=n)
    ]
    return [*embedded_cells(n_seeds=10), *simulated, *image_cells(n_seeds=4)]


def simulated_cells(*, size: int, n_seeds: int) -> list[dict[str, Any]]:
    """Every link with either distribution of the inputs, and a fit that knows the true link."""
    tasks = [(link, kind) for link in problems.LINKS for kind in problems.INPUTS]
    return _cross(tasks, size, n_seeds, (*METHODS, "true link"))


def embedded_cells(*, n_seeds: int) -> list[dict[str, Any]]:
    """Random splits of scikit-learn's sets, two thirds to train on; a size of 0 stands for that."""
    tasks = [(name, entry[0]) for name, entry in problems.EMBEDDED.items()]
    return _cross(tasks, 0, n_seeds, METHODS)


def image_cells(*, n_seeds: int) -> list[dict[str, Any]]:
    """An easy and a hard problem for each of the image sets, the hard one with two penalties."""
    both = [(name, task) for name in IMAGE_DATASETS for task in problems.IMAGE_TASKS]
    hard = [(name, problems.IMAGE_TASKS[1]) for name in IMAGE_DATASETS]
    return [
        *_cross(both, problems.N_IMAGES, n_seeds, METHODS),
        *_cross(hard, problems.N_IMAGES, n_seeds, METHODS, STRONG),
    ]


def measure(
    *, data: str, task: str, size: int, C: float, seed: int, method: str
) -> dict[str, float]:
    """Fit one method to one problem, and measure its probabilities.

    ``log_loss`` (nats), ``accuracy``, ``brier``: expectations over the test labels where the data
    are simulated. ``calibration``: `calibration_error` of 15 equal bins; ``noise``: what it would
    be, on average, if the probabilities were right (0 for simulated data, where it is measured
    without labels). ``divergence`` (Kullback and Leibler, nats) and ``square``: the mean distances
    from the true probabilities; ``angle``: between the weights and the true ones, in degrees; NaN
    where unknown. ``wrong_and_sure``: the share of test data whose label was given probability
    zero. ``converged``: 1 or 0.
    """
    found = problems.problem(data, task, size, seed)
    p, weights, converged = predict(method, found, link=data, C=C, seed=seed)
    truth = found.truth
    simulated = found.weights is not None
    loss = log_loss(p, truth)
    entropy = log_loss(truth, truth)
    right = np.where(p > 0.5, truth, 1 - truth)
    angle = np.nan
    if found.weights is not None and weights is not None:
        cosine = weights @ found.weights / np.linalg.norm(weights) / np.linalg.norm(found.weights)
        angle = np.degrees(np.arccos(min(cosine, 1.0)))
    return {
        "log_loss": loss,
        "accuracy": float(right.mean()),
        "brier": float((truth * (1 - p) ** 2 + (1 - truth) * p**2).mean()),
        "calibration": calibration_error(p, truth),
        "noise": 0.0 if simulated else calibration_noise(p),
        "divergence": loss - entropy if simulated else np.nan,
        "square": float(((p - truth) ** 2).mean()) if simulated else np.nan,
        "angle": float(angle),
        "wrong_and_sure": float((truth * (p == 0) + (1 - truth) * (p == 1)).mean()),
        "converged": float(converged),
    }


def predict(
    method: str,
    given: problems.BinaryProblem,
    *,
    link: str = "logistic",
    C: float = 1.0,
    seed: int = 0,
) -> tuple[Array, Array | None, bool]:
    """Test probabilities of a method, its weights (None if none or several), and convergence.

    No calibrator sees scores of data that the scores were fitted to: "sigmoid" and "isotonic" are
    scikit-learn's five averaged models, "beta" is fitted to out-of-fold probabilities.
    """
    X = given.X
    y = given.y
    X_test = given.X_test
    model: Any = LogisticRegression(C=C, tol=1e-4, max_iter=_MAX_ITER)
    # Failed convergence is measured. Scores outside the kernel's period count as they are.
    with warnings.catch_warnings(action="ignore"):
        if method == "base rate":
            return np.full(len(X_test), y.mean()), None, True
        if method == "true link":
            offset, weights = fit_true_link(X, y, link, given.weights, C)
            return expit(problems.log_odds(link, offset + X_test @ weights)[0]), weights, True
        if method in ("sigmoid", "isotonic"):
            model = CalibratedClassifierCV(model, method=method, cv=_FOLDS).fit(X, y)
            return model.predict_proba(X_test)[:, 1], None, True
        if method == "our calibrator":
            model = CalibratedClassifier(model, cv=_FOLDS, ensemble=False).fit(X, y)
            return model.predict_proba(X_test)[:, 1], None, True
        if method in ("GP", "ISGP", HELD_OUT):
            model = recipe(method, C=C, random_state=seed).fit(X, y)
            converged = model.converged_
        elif method in ("logistic", "beta"):
            converged = model.fit(X, y).n_iter_[0] < _MAX_ITER
        else:
            raise ValueError(f"expected a method of {METHODS} or 'true link', got {method!r}")
        p = model.predict_proba(X_test)[:, 1]
        if method == "beta":
            held_out = cross_val_predict(model, X, y, cv=_FOLDS, method="predict_proba")[:, 1]
            p = BetaCalibration("abm").fit(held_out[:, None], y).predict(p[:, None])
    return p, model.coef_[0], bool(converged)


def penalty_path(given: problems.BinaryProblem, strengths: Sequence[float]) -> pd.DataFrame:
    """Both regressions by penalties C: log losses, and the mean slope of each learned link."""
    rows = []
    for C in strengths:
        row: dict[str, float] = {"C": C}
        for name, model in (
            ("logistic", LogisticRegression(C=C, max_iter=_MAX_ITER)),
            ("ISGP", recipe(C=C, random_state=0)),
            (HELD_OUT, recipe(HELD_OUT, C=C, random_state=0)),
        ):
            with warnings.catch_warnings(action="ignore"):
                model.fit(given.X, given.y)
                p, p_test = (model.predict_proba(X)[:, 1] for X in (given.X, given.X_test))
            row[f"{name}, training"] = log_loss(p, given.y)
            row[f"{name}, test"] = log_loss(p_test, given.truth)
            if isinstance(model, LinkgisticClassifier):
                link = model.link_
                start, end = link.source([link.low, link.high])
                # On the scale that the rounds ended with, which the penalty holds.
                row[f"{name}, slope"] = link.slope * (end - start) / (link.high - link.low)
        rows.append(row)
    return pd.DataFrame(rows).set_index("C")


def calibration_noise(probability: Array) -> float:
    """The expected calibration error, for m labels, of probabilities that are right."""
    index = np.minimum((probability * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    variance = np.bincount(index, probability * (1 - probability), minlength=CALIBRATION_BINS)
    return float(np.sqrt(2 / np.pi * variance).sum() / len(probability))


def fit_true_link(
    X: Array, y: NDArray[np.bool_], link: str, start: Array | None, C: float = 1.0
) -> tuple[float, Array]:
    """Offset and weights under a known link, the floor: what a learned link can reach."""
    if start is None:
        raise ValueError("expected simulated data: the true link of others is not known")

    def objective(parameters: Array) -> tuple[float, Array]:
        nu, slope = problems.log_odds(link, parameters[0] + X @ parameters[1:])
        pull = (expit(nu) - y) * slope
        value = (np.logaddexp(0, nu) - y * nu).sum() + parameters[1:] @ parameters[1:] / (2 * C)
        return float(value), np.append(pull.sum(), X.T @ pull + parameters[1:] / C)

    begin = np.append(problems.SCORES[link][0], start)
    best = minimize(objective, begin, jac=True, method="L-BFGS-B", options={"maxiter": _MAX_ITER})
    return float(best.x[0]), best.x[1:]


def _cross(
    tasks: list[tuple[str, str]], size: int, n_seeds: int, methods: tuple[str, ...], C: float = 1.0
) -> list[dict[str, Any]]:
    return [
        {"data": data, "task": task, "size": size, "C": C, "seed": seed, "method": method}
        for data, task in tasks
        for seed in range(n_seeds)
        for method in methods
    ]


# With one worker, or the seconds mean little.
run = runs(measure, cells, "calibration_methods")
