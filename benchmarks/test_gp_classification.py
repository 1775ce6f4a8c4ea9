"""`GPClassifier` beside scikit-learn's with the kernel learned: processor seconds, one thread.

Run by ``make bench``. Three sets of data in turn, all models in turn within each, so that what else
the machine does falls on all alike; the table has medians. Ours is to take no longer.
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


def measure(problem: str) -> pd.DataFrame:
    """Seconds of each fit, and its log loss on other rows."""
    rows = []
    for seed in range(REPEATS):
        split = PROBLEMS[problem](seed)
        for name, make in MODELS.items():
            model = make()
            begin = time.process_time()
            model.fit(split.X, split.y)
            seconds = time.process_time() - begin
            loss = log_loss(split.y_test, model.predict_proba(split.X_test))
            rows.append({"model": name, "seconds": seconds, "log loss": loss})
    return pd.DataFrame(rows)


@pytest.mark.benchmark(group="Gaussian process classifiers, kernel learned")
@pytest.mark.parametrize("problem", PROBLEMS)
def test_learned_kernel(benchmark, problem):
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, of parameters near their bounds
        found = benchmark.pedantic(measure, args=(problem,), rounds=1)
    seconds = found.groupby("model", sort=False)["seconds"].median()
    losses = found.groupby("model", sort=False)["log loss"].mean()
    benchmark.extra_info.update(seconds.round(3).to_dict())
    print(problem, "seconds", seconds.round(2).to_dict(), "log loss", losses.round(4).to_dict())
    assert losses["EP"] < losses["scikit-learn"] + 0.002
    assert losses["Laplace"] < losses["scikit-learn"] + 0.002
