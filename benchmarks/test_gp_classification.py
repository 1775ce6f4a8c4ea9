"""`GPClassifier` beside scikit-learn's, the kernel learned or given: processor seconds, one thread.

Run by ``make bench``. Sets of data in turn, all models in turn within each, so that what else the
machine does falls on all alike; the tables have medians. Ours is to take no longer.
"""

import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.datasets import load_breast_cancer
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from bayesloss import GPClassifier

REPEATS = 5


class Split(NamedTuple):
    X: np.ndarray
    X_test: np.ndarray
    y: np.ndarray
    y_test: np.ndarray


def waves(n: int, seed: int) -> Split:
    """Three columns, two of them in a product."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 2000, 3))
    log_odds = 4 * np.sin(1.5 * X[:, 0]) + 2 * X[:, 1] * X[:, 2]
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-log_odds))).astype(int)
    return Split(X[:n], X[n:], y[:n], y[n:])


def breast_cancer(seed: int) -> Split:
    """Thirty columns, standardised."""
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, train_size=426, random_state=seed)
    scaler = StandardScaler().fit(X)
    return Split(scaler.transform(X), scaler.transform(X_test), y, y_test)


PROBLEMS: dict[str, Callable[[int], Split]] = {
    "500 x 3": lambda seed: waves(500, seed),
    "426 x 30": breast_cancer,
    "1000 x 3": lambda seed: waves(1000, seed),
}
MODELS: dict[str, Callable[[], BaseEstimator]] = {
    "Laplace": lambda: GPClassifier("laplace"),
    "EP": lambda: GPClassifier("ep"),
    "scikit-learn": lambda: GaussianProcessClassifier(ConstantKernel(1.0) * RBF(1.0)),
}
LARGE_REPEATS = 3
ROWS = (1000, 3000)
GIVEN: dict[str, Callable[[], BaseEstimator]] = {
    "Laplace": lambda: GPClassifier("laplace", length_scale=3.0, amplitude=3.0),
    "EP": lambda: GPClassifier("ep", length_scale=3.0, amplitude=3.0),
    "scikit-learn": lambda: GaussianProcessClassifier(
        ConstantKernel(9.0) * RBF(3.0), optimizer=None
    ),
}


def logistic(n: int) -> Split:
    """Ten columns, and nearly as many weights as rows; 1,000 rows to predict."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n + 1000, 10))
    y = (2 * X @ rng.normal(size=10) / 10**0.5 + rng.logistic(size=len(X)) > 0).astype(int)
    return Split(X[:n], X[n:], y[:n], y[n:])


def measure(splits: list[Split], models: dict[str, Callable[[], BaseEstimator]]) -> pd.DataFrame:
    """Seconds of each fit and its predictions of other rows, and the log loss there."""
    rows = []
    for split in splits:
        for name, make in models.items():
            model = make()
            begin = time.process_time()
            model.fit(split.X, split.y)
            fitted = time.process_time()
            p = model.predict_proba(split.X_test)
            predicted = time.process_time()
            rows.append(
                {
                    "model": name,
                    "seconds": fitted - begin,
                    "to predict": predicted - fitted,
                    "log loss": log_loss(split.y_test, p),
                }
            )
    return pd.DataFrame(rows)


@pytest.mark.benchmark(group="Gaussian process classifiers, kernel learned")
@pytest.mark.parametrize("problem", PROBLEMS)
def test_learned_kernel(benchmark, problem):
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, of parameters near their bounds
        splits = [PROBLEMS[problem](seed) for seed in range(REPEATS)]
        found = benchmark.pedantic(measure, args=(splits, MODELS), rounds=1)
    seconds = found.groupby("model", sort=False)["seconds"].median()
    losses = found.groupby("model", sort=False)["log loss"].mean()
    benchmark.extra_info.update(seconds.round(3).to_dict())
    print(problem, "seconds", seconds.round(2).to_dict(), "log loss", losses.round(4).to_dict())
    assert losses["EP"] < losses["scikit-learn"] + 0.002
    assert losses["Laplace"] < losses["scikit-learn"] + 0.002


@pytest.mark.benchmark(group="Gaussian process classifiers, kernel given")
@pytest.mark.parametrize("n", ROWS)
def test_given_kernel(benchmark, n):
    """Log losses do not compare, as the same amplitude is another prior under another link."""
    with threadpool_limits(1):
        splits = [logistic(n)] * LARGE_REPEATS
        found = benchmark.pedantic(measure, args=(splits, GIVEN), rounds=1)
    medians = found.groupby("model", sort=False).median().round(4)
    benchmark.extra_info.update(medians["seconds"].to_dict())
    print(n, "rows", medians.to_dict())
