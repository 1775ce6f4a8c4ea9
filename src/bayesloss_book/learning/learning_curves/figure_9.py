"""Figure 9 of W&N: learned inverse links of Fashion-MNIST's class 3 (dress) against the rest."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from bayesloss_book.data.image_sets import inputs
from bayesloss_book.learning.learning_curves.figure_2 import METHODS
from bayesloss_book.rivals.baselines import BUDGETS, fit_logistic, recipe
from paperledger.stores.results import crossed, runs

DRESS = 3
POINTS = 61  # scores at which a link is stored
CURVES = ("link", "link_low", "link_high", "source", "source_low", "source_high")
_GROUPS = 25  # of test images with neighbouring scores


def cells(data: str = "fashion-mnist", size: int = 60_000, seed: int = 0) -> list[dict[str, Any]]:
    """Three methods, with scikit-learn's penalty and without one."""
    return crossed(penalty=(1.0, 0.0), method=METHODS, data=[data], size=[size], seed=[seed])


def measure(
    *, data: str, size: int, method: str, penalty: float, seed: int, class_label: int
) -> dict[str, float]:
    """Fit one class against the rest, and tabulate its inverse link with a central 95 % band.

    ``low`` and ``high``, the least and largest training score; for each name of `CURVES` its values
    ``name_00``, ... at equally spaced scores between them; ``count_00``, ``score_00``, ``ones_00``,
    ...: for groups of test images with neighbouring scores their number, their mean score and their
    share of the class; ``converged``.
    """
    X, y, X_test, y_test = inputs(data, size, "pixels", seed)
    C = 1 / penalty if penalty else np.inf
    tol, rounds = BUDGETS["default"]
    dress = y == class_label
    if method == "logistic":
        # The intercept is in the scores, and nu(x) = x. The link is not learned, so has no band.
        train, test, _, converged, _ = fit_logistic(X, dress[:, None], X_test, C, tol)
        x = train[:, 0]
        x_test = test[:, 0]
        grid = np.linspace(x.min(), x.max(), POINTS)
        curves = [*[expit(grid)] * 3, *[grid] * 3]
    else:
        model = recipe(method, C=C, tol=tol, max_iter=rounds, random_state=seed)
        # It is in the measures.
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            model.fit(X, dress)
        link = model.link_
        converged = model.converged_
        # On the scale that EM ended with, as in the paper.
        x, x_test = (model.scores(part) / link.slope for part in (X, X_test))
        grid = np.linspace(x.min(), x.max(), POINTS)
        at = link.slope * grid
        curves = [link.inverse_link(at), *link.inverse_link_band(at)]
        curves += [link.source(at), *link.source_band(at)]
    out: dict[str, float] = {"low": x.min(), "high": x.max(), "converged": converged}
    for name, values in zip(CURVES, curves, strict=True):
        out |= {f"{name}_{i:02}": float(value) for i, value in enumerate(values)}
    for i, group in enumerate(np.array_split(np.argsort(x_test, kind="stable"), _GROUPS)):
        out |= {
            f"count_{i:02}": len(group),
            f"score_{i:02}": x_test[group].mean(),
            f"ones_{i:02}": (y_test[group] == class_label).mean(),
        }
    return out


def curves_of(row: pd.Series) -> pd.DataFrame:
    """The links of one stored cell: a row a score, columns ``x`` and those of `CURVES`."""
    columns = {name: [row[f"{name}_{i:02}"] for i in range(POINTS)] for name in CURVES}
    return pd.DataFrame({"x": np.linspace(row["low"], row["high"], POINTS), **columns})


def groups_of(row: pd.Series) -> pd.DataFrame:
    """Groups of test images of one stored cell: columns ``count``, ``score`` and ``ones``."""
    names = ("count", "score", "ones")
    return pd.DataFrame({n: [row[f"{n}_{i:02}"] for i in range(_GROUPS)] for n in names})


run = runs(measure, cells, "dress_link", class_label=DRESS)
