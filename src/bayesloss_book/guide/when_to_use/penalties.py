"""The penalty that ``C="auto"`` chooses, against refits without each fold.

The library tells penalties apart by logistic regressions without each fold. A refit has all rounds,
and a link of its own.
"""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.preprocessing import scale

from bayesloss import LinkgisticClassifier
from bayesloss_book.guide.when_to_use.tables import labels
from paperledger.stores.results import crossed, runs

# Few rows, few rows a column, more columns than rows, sparse, several classes, labels by chance.
TABLES = (
    "birthwt",
    "stagec",
    "crabs",
    "breast_cancer",
    "straight, normal, 100x30",
    "noisy_labels, normal, 100x30",
    "wide, 60x300",
    "sparse, 300x1000",
    "iris",
    "wine",
    "noise, 60x300",
    "noise, 100x20",
)
CS = (1e-3, 10**-1.5, 1.0, 10**1.5, 1e3)

_FOLDS = 10


def cells() -> list[dict[str, Any]]:
    """Every table."""
    return crossed(data=TABLES)


def measure(*, data: str) -> dict[str, float]:
    """Log losses a case, in nats, of refits without each of ten folds, with five values of C.

    ``best``, ``least`` and ``error``: the C of the least loss, and that loss, with one standard
    error over cases. ``chosen`` is the C that the classifier chooses of the five, ``regret`` by how
    much refits are worse there, and ``regret_error`` the error of this difference.
    """
    X, y = _rows(data)
    folds = StratifiedKFold(_FOLDS)
    losses = []
    # Of the end of the penalties, and of penalties that hardly count.
    with warnings.catch_warnings(action="ignore"):
        chosen = LinkgisticClassifier(C=CS).fit(X, y).C_
        for C in CS:
            refits = LinkgisticClassifier(C=C)
            p = cross_val_predict(refits, X, y, cv=folds, method="predict_proba")
            losses.append(-np.log(p[np.arange(len(y)), y]))
    best = int(np.argmin([one.mean() for one in losses]))
    behind = losses[CS.index(chosen)] - losses[best]
    return {
        "best": CS[best],
        "least": losses[best].mean(),
        "error": _error(losses[best]),
        "chosen": chosen,
        "regret": behind.mean(),
        "regret_error": _error(behind),
    }


def by_table(stored: pd.DataFrame) -> pd.DataFrame:
    """What was measured, with losses in millinats."""
    table = stored.set_index("data")[
        ["least", "error", "best", "chosen", "regret", "regret_error"]
    ].copy()
    table[["least", "error", "regret", "regret_error"]] *= 1e3
    return table


def _error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _rows(data: str) -> tuple[Any, NDArray[Any]]:
    """Columns, scaled or of one size, and classes 0, ..., K-1."""
    kind, _, size = data.partition(", ")
    if kind not in ("wide", "sparse", "noise"):
        found = labels(data, seed=0)
        return scale(found.X), found.y
    n, d = map(int, size.split("x"))
    rng = np.random.default_rng([n, d])
    X: Any = rng.normal(size=(n, d)) / np.sqrt(d)
    if kind == "sparse":  # each row has some ten columns
        X = sparse.random(n, d, 10 / d, "csr", random_state=rng, data_rvs=rng.standard_normal)
    if kind == "noise":
        return X, rng.permutation(n) % 2
    odds = X @ rng.normal(size=d)
    return X, (rng.random(n) < expit(3 * odds / odds.std())).astype(int)


run = runs(measure, cells, "penalties")
