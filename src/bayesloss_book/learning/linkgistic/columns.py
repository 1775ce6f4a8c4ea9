"""Links learned from few rows a column, where the true probabilities are known."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from bayesloss import LinkgisticClassifier, LogLoss
from bayesloss_book.learning.linkgistic.rounds import KINKED, Task, kinked
from bayesloss_book.rivals.baselines import recipe

TRUTHS = ("kinked", "straight")
METHODS = ("logistic regression", "paper's EM", "held out")
_STRAIGHT = 0.7  # log odds for a score of 1, where the link is straight
_N_TEST = 3000


def with_noise(n: int, n_columns: int, truth: str, seed: int) -> Task:
    """Three inputs that matter, as in :func:`kinked`, and normal ones that do not."""
    task = kinked(n, seed, n_test=_N_TEST)
    generator = np.random.default_rng([seed, n_columns])
    X = np.column_stack([task.X, generator.normal(size=(n, n_columns - 3))])
    X_test = np.column_stack([task.X_test, generator.normal(size=(_N_TEST, n_columns - 3))])
    if truth == "kinked":
        return Task(X, task.y, X_test, task.y_test, task.odds)
    chances = expit(_STRAIGHT * (task.X @ KINKED))
    odds = _STRAIGHT * (task.X_test @ KINKED)
    y = (generator.random(n) < chances).astype(np.int64)
    y_test = (generator.random(_N_TEST) < expit(odds)).astype(np.int64)
    return Task(X, y, X_test, y_test, odds)


def measure(n: int, columns: Sequence[int], seeds: Sequence[int], *, C: float) -> pd.DataFrame:
    """How far each method's expected log loss lies above the truth's, in nats a case."""
    rows = []
    for truth in TRUTHS:
        for n_columns in columns:
            for seed in seeds:
                task = with_noise(n, n_columns, truth, seed)
                lost = [_excess(model, task) for model in _models(C)]
                cell = {"truth": truth, "columns": n_columns, "seed": seed}
                rows.append(cell | dict(zip(METHODS, lost, strict=True)))
    return pd.DataFrame(rows)


def _models(C: float) -> tuple[LogisticRegression, LinkgisticClassifier, LinkgisticClassifier]:
    return (
        LogisticRegression(C=C, tol=1e-8, max_iter=10_000),
        recipe(C=C, max_iter=10, random_state=0),
        LinkgisticClassifier(C=C),
    )


def _excess(model: LogisticRegression | LinkgisticClassifier, task: Task) -> float:
    assert task.odds is not None  # the data are simulated
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        model.fit(task.X, task.y)
    p = model.predict_proba(task.X_test)[:, 1]
    return float(LogLoss().divergence(expit(task.odds), p).mean())
