"""Held-out scores: what they are, by one Newton step and by refits, and what they are good for.

This is ours, not the paper's: W&N fit links to the training scores. With few rows a column these
are overconfident, as simulated rows show whose true probabilities are known.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from bayesloss import LinkgisticClassifier
from bayesloss.learning.inference.laplace import laplace
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.weights.weight_search import fit_fixed_link
from bayesloss.proper_losses import LogLoss
from bayesloss_book import Array
from bayesloss_book.learning.linkgistic.rounds import KINKED, Round, Task, kinked, linear_data
from bayesloss_book.rivals.baselines import recipe

TRUTHS = ("kinked", "straight")
METHODS = ("logistic regression", "paper's EM", "held out")
_STRAIGHT = 0.7  # log odds for a score of 1, where the link is straight
_N_TEST = 3000


def fixed_link(problem: Task, C: float) -> tuple[Tensor, Tensor]:
    """Scores of logistic regression, and one Newton step without each datum: two of shape (n,).

    The step is x_n - h_n s_n / (1 - h_n d_n), with the slope s_n and minus the curvature d_n of the
    datum's log probability, and h_n = z_n . H^-1 z_n for H = sum_n d_n z_n z_n^T + 1 / C.
    """
    data = linear_data(problem.X, problem.y, C)
    fit, _ = fit_fixed_link(data, LogLoss(), 1e-8)
    scores = fit.scores[0] - fit.offset[0]
    u = torch.sigmoid(fit.scores[0])
    slope = data.labels[0] - u
    curvature = u * (1 - u)
    Z = torch.from_numpy(problem.X - problem.X.mean(axis=0))
    H = Z.T @ (curvature[:, None] * Z) + torch.eye(Z.shape[1], dtype=Z.dtype) / C
    h = (Z * torch.linalg.solve(H, Z.T).T).sum(dim=1)
    return scores, scores - h * slope / (1 - h * curvature)


def refits_of_fixed_link(problem: Task, C: float, rows: Sequence[int]) -> Array:
    """The scores of some data in scikit-learn's logistic regressions without each of them."""
    Z = problem.X - problem.X.mean(axis=0)
    found = []
    for row in rows:
        rest = np.arange(len(Z)) != row
        model = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-10, max_iter=1000)
        found.append(float(Z[row] @ model.fit(Z[rest], problem.y[rest]).coef_[0]))
    return np.array(found)


def relinked(problem: Task, found: Round, scores: Tensor) -> Round:
    """The same weights with a link fitted to other scores of the training data, of shape (n,)."""
    before = found.posterior
    y = torch.from_numpy(problem.y).double()
    posterior = laplace(before.prior, Bernoulli(), scores, y, start=before.mode)
    return replace(found, posterior=posterior)


def frequencies(scores: ArrayLike, y: ArrayLike, bins: int) -> pd.DataFrame:
    """Shares of label 1 in bins of the upper half of test scores, with Jeffreys' 95 % intervals."""
    x = np.asarray(scores, dtype=float)
    y = np.asarray(y)
    upper = np.argsort(x, kind="stable")[len(x) // 2 :]
    rows = []
    for part in np.array_split(upper, bins):
        hits = int(y[part].sum())
        interval = stats.beta(hits + 0.5, len(part) - hits + 0.5).ppf([0.025, 0.975])
        rows.append([x[part].mean(), hits / len(part), *interval])
    return pd.DataFrame(rows, columns=["score", "share", "low", "high"])


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
