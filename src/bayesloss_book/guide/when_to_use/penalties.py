"""What ``C="auto"`` says of each penalty, against refits without each fold.

The library scores a penalty by the weights that the fixed link has without each fold, and one link
for all of them. A refit has weights and a link of its own.
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

TABLES = (  # few rows, few rows a column, more columns than rows, sparse, several classes
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
)
CS = (1e-3, 10**-1.5, 1.0, 10**1.5, 1e3)

_FOLDS = 10


def cells() -> list[dict[str, Any]]:
    """Every table and penalty."""
    return crossed(data=TABLES, C=CS)


def measure(*, data: str, C: float) -> dict[str, float]:
    """Log losses a case, in nats: as ``C="auto"`` says, and of refits without each of ten folds.

    ``path``, ``refits``, and the ``error`` of the latter, one standard error over cases.
    """
    X, y = _rows(data)
    # Of the path's end, and of penalties that hardly count.
    with warnings.catch_warnings(action="ignore"):
        said = LinkgisticClassifier(C=[C, C]).fit(X, y).scores_[0]
        folds = StratifiedKFold(_FOLDS)
        p = cross_val_predict(LinkgisticClassifier(C=C), X, y, cv=folds, method="predict_proba")
    losses = -np.log(p[np.arange(len(y)), y])
    error = losses.std(ddof=1) / np.sqrt(len(y))
    return {"path": -said, "refits": losses.mean(), "error": error}


def by_table(stored: pd.DataFrame) -> pd.DataFrame:
    """For each table, in millinats: the least loss of refits and its error, and three differences.

    ``regret`` is by how much refits are worse at the C that the path prefers than at their best.
    ``weak`` and ``strong`` are the difference path - refits that is largest in standard errors, in
    these, at a C of at least, or below, the one that refits like best.
    """
    found = {}
    for name, rows in stored.groupby("data", sort=False):
        rows = rows.sort_values("C").reset_index()
        off = (rows["path"] - rows["refits"]) / rows["error"]
        best = int(rows["refits"].idxmin())
        least = rows["refits"][best]
        found[name] = {
            "least": 1e3 * least,
            "error": 1e3 * rows["error"][best],
            "regret": 1e3 * (rows["refits"][rows["path"].idxmin()] - least),
            "weak": off[best:][off[best:].abs().idxmax()],
            "strong": off[:best][off[:best].abs().idxmax()] if best else np.nan,
        }
    return pd.DataFrame(found).T


def _rows(data: str) -> tuple[Any, NDArray[Any]]:
    """Scaled columns, or sparse ones, and classes 0, ..., K-1."""
    kind, _, size = data.partition(", ")
    if kind not in ("wide", "sparse"):
        found = labels(data, seed=0)
        return scale(found.X), found.y
    n, d = map(int, size.split("x"))
    rng = np.random.default_rng([n, d])
    X: Any = rng.normal(size=(n, d)) / np.sqrt(d)
    if kind == "sparse":  # each row has some ten columns
        X = sparse.random(n, d, 10 / d, "csr", random_state=rng, data_rvs=rng.standard_normal)
    odds = X @ rng.normal(size=d)
    return X, (rng.random(n) < expit(3 * odds / odds.std())).astype(int)


run = runs(measure, cells, "penalties")
