"""Our estimators and scikit-learn's, fitted as they come, on many tables."""

import warnings
from typing import Any

import numpy as np
from scipy.special import xlogy
from scipy.stats import norm, spearmanr
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from bayesloss import CalibratedClassifier, ISGPRegressor, LinkgisticClassifier
from bayesloss_book import Array
from bayesloss_book.guide.when_to_use import tables
from bayesloss_book.rivals.baselines import SMALLEST, recipe
from paperledger.stores.results import crossed, runs

CLASSIFIERS = (
    "linkgistic",
    "paper's recipe",
    "logistic",
    "logistic CV",
    "sigmoid",
    "isotonic",
    "our calibrator",
    "boosting",
)
REGRESSORS = ("ISGP", "isotonic", "GP", "boosting")
SIMULATED = (  # links and inputs
    "straight, normal",
    "skewed, normal",
    "bent, normal",
    "bent, log-normal",
    "noisy_labels, normal",
)
SIZES = ("100x30", "1000x10", "20000x10")  # of the simulated tables: rows x columns

_MAX_ITER = 2_000
_MEASURES = ("log_loss", "accuracy", "brier", "entropy", "rmse", "coverage", "curve_coverage")


def cells(*, n_seeds: int = 5) -> list[dict[str, Any]]:
    """Every table, seed and method that the page shows."""
    drawn = [f"{kind}, {size}" for kind in SIMULATED for size in SIZES]
    curves = [f"{curve}, {n}" for curve in tables.CURVES for n in (30, 300)]
    parts = {
        "classification": ([*tables.CLASSIFICATION, *drawn], CLASSIFIERS),
        "regression": ([*tables.REGRESSION, *curves], REGRESSORS),
    }
    return [
        cell
        for task, (data, methods) in parts.items()
        for cell in crossed(data=data, seed=range(n_seeds), method=methods, task=[task])
    ]


def measure(*, task: str, data: str, method: str, seed: int) -> dict[str, float]:
    """Fit one method to one table, and measure it on test data.

    ``rows``, ``columns``: of the training data. Classification: ``log_loss`` (nats), ``accuracy``,
    ``brier`` (summed over classes); for simulated tables expectations over the labels, with
    ``entropy`` the least log loss possible. Regression: ``rmse``, in standard deviations of the
    test targets (from the curve where that is known); ``coverage`` of 95 % intervals for new
    targets, ``curve_coverage`` of 95 % bands for the curve. What a method or a table does not have
    is NaN.
    """
    if task not in ("classification", "regression"):
        raise ValueError(f"expected classification or regression, got {task!r}")
    find = tables.labels if task == "classification" else tables.values
    judge = _classify if task == "classification" else _regress
    found = find(data, seed)
    # Convergence counts as it comes: who keeps to the defaults gets these predictions.
    with warnings.catch_warnings(action="ignore"):
        result = judge(method, found, seed)
    rows, columns = found.X.shape
    return {"rows": rows, "columns": columns} | dict.fromkeys(_MEASURES, float("nan")) | result


def classifier(method: str, seed: int) -> Pipeline:
    """One of `CLASSIFIERS`, or "linkgistic CV", behind a scaler, not fitted."""
    logistic = LogisticRegression(max_iter=_MAX_ITER)
    models: dict[str, Any] = {
        "linkgistic": LinkgisticClassifier(),
        "linkgistic CV": LinkgisticClassifier(C="auto"),
        "paper's recipe": recipe(random_state=seed),
        "logistic": logistic,
        "logistic CV": LogisticRegressionCV(**tables.TEN_PENALTIES),
        "sigmoid": CalibratedClassifierCV(logistic, method="sigmoid"),
        "isotonic": CalibratedClassifierCV(logistic, method="isotonic"),
        "our calibrator": CalibratedClassifier(logistic, ensemble=False),
        "boosting": HistGradientBoostingClassifier(random_state=seed),
    }
    return make_pipeline(StandardScaler(), models[method])


def regress(
    method: str, found: tables.Problem, seed: int = 0
) -> tuple[Array, Array | None, Array | None]:
    """Mean and standard deviations of a new target and of the curve, None where there is none."""
    x = found.X
    y = found.y
    x_test = found.X_test
    rising = bool(spearmanr(x[:, 0], y).statistic > 0)
    if method == "ISGP":
        model = ISGPRegressor(increasing=rising).fit(x, y)
        mean, std = model.predict(x_test, return_std=True)
        return mean, np.sqrt(std**2 + model.noise_variance_), std
    if method == "isotonic":
        isotonic = IsotonicRegression(increasing=rising, out_of_bounds="clip")
        return isotonic.fit(x, y).predict(x_test), None, None
    if method == "boosting":
        sign = 1 if rising else -1
        boosting = HistGradientBoostingRegressor(monotonic_cst=[sign], random_state=seed)
        return boosting.fit(x, y).predict(x_test), None, None
    if method == "GP":
        scaler = StandardScaler().fit(x)
        kernel = ConstantKernel() * RBF() + WhiteKernel(1.0, (1e-8, 1e2))
        gp = GaussianProcessRegressor(
            kernel, normalize_y=True, n_restarts_optimizer=2, random_state=seed
        ).fit(scaler.transform(x), y)
        mean, std = gp.predict(scaler.transform(x_test), return_std=True)
        noise = gp.kernel_.k2.noise_level * y.var()
        return mean, std, np.sqrt(np.maximum(std**2 - noise, 0))
    raise ValueError(f"expected a method of {REGRESSORS}, got {method!r}")


def _classify(method: str, found: tables.Problem, seed: int) -> dict[str, float]:
    model = classifier(method, seed).fit(found.X, found.y)
    truth = found.truth
    p = np.zeros_like(truth)  # a class that was not seen in training has probability zero
    p[:, model.classes_.astype(int)] = model.predict_proba(found.X_test)
    loss = -(truth * np.log(np.clip(p, SMALLEST, 1))).sum(axis=1)
    # E |e_y - p|^2 = 1 - 2 sum_k truth_k p_k + |p|^2, with e_y the label's unit vector
    square = 1 + (p**2 - 2 * truth * p).sum(axis=1)
    return {
        "log_loss": float(loss.mean()),
        "accuracy": float(truth[np.arange(len(truth)), p.argmax(axis=1)].mean()),
        "brier": float(square.mean()),
        "entropy": float(-xlogy(truth, truth).sum(axis=1).mean()),
    }


def _regress(method: str, found: tables.Problem, seed: int) -> dict[str, float]:
    mean, target_std, curve_std = regress(method, found, seed)
    sought = found.truth if found.curve is None else found.curve
    result = {"rmse": float(np.sqrt(np.mean((mean - sought) ** 2)) / found.truth.std())}
    width = norm.ppf(0.975)
    if target_std is not None:
        result["coverage"] = float((np.abs(found.truth - mean) <= width * target_std).mean())
    if curve_std is not None and found.curve is not None:
        within = np.abs(found.curve - mean) <= width * curve_std
        result["curve_coverage"] = float(within.mean())
    return result


run = runs(measure, cells, "when_to_use")  # with one worker, or the seconds mean little
