"""Links fitted to scores that have not seen the labels: one Newton step, and refits to check it.

This is ours, not the paper's: W&N fit links to the training scores.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from bayesloss.learning.inference.laplace import laplace
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.links.tables import HermiteTable, expected_log_probabilities
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import fit_fixed_link, maximise_weights
from bayesloss.proper_losses import LogLoss
from bayesloss_book import Array
from bayesloss_book.learning.linkgistic.rounds import Round, Task, linear_data


def fixed_link(problem: Task, C: float) -> tuple[Tensor, Tensor]:
    """Scores of logistic regression, and one Newton step without each datum: two of shape (n,)."""
    data = linear_data(problem.X, problem.y, C)
    fit, _ = fit_fixed_link(data, LogLoss(), 1e-8)
    scores = fit.scores[0] - fit.offset[0]
    return scores, _held_out(data, scores, LogLoss().log_probabilities(fit.scores[0])[1])


def refits_of_fixed_link(problem: Task, C: float, rows: Sequence[int]) -> Array:
    """The scores of some data in scikit-learn's logistic regressions without each of them."""
    Z = problem.X - problem.X.mean(axis=0)
    found = []
    for row in rows:
        rest = np.arange(len(Z)) != row
        model = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-10, max_iter=1000)
        found.append(float(Z[row] @ model.fit(Z[rest], problem.y[rest]).coef_[0]))
    return np.array(found)


def left_out(problem: Task, found: Round, C: float) -> Tensor:
    """One Newton step without each datum from the weights of a round of EM, its link held."""
    return _one_step(linear_data(problem.X, problem.y, C), _tables(found), found.scores)


def refits(problem: Task, found: Round, C: float, rows: Sequence[int]) -> pd.DataFrame:
    """Scores with a round's link held: in the fit to all, after one step without them, refitted."""
    data, table = linear_data(problem.X, problem.y, C), _tables(found)
    beta = _best(data, table, found.beta)
    scores = data.scores(beta[None])[0]
    alone = []
    for row in rows:
        rest = np.arange(len(problem.X)) != row
        other = linear_data(problem.X[rest], problem.y[rest], C)
        alone.append(float(data.scores(_best(other, table, beta)[None])[0, row]))
    columns = {"score": scores, "one step": _one_step(data, table, scores)}
    table_of = {name: values[list(rows)].numpy() for name, values in columns.items()}
    return pd.DataFrame(table_of | {"refit": alone}, index=pd.Index(rows, name="datum"))


def relinked(problem: Task, found: Round, scores: Tensor) -> Round:
    """The same weights with a link fitted to other scores of the training data, of shape (n,)."""
    before, y = found.posterior, torch.from_numpy(problem.y).double()
    posterior = laplace(before.prior, Bernoulli(), scores, y, start=before.mode)
    return replace(found, posterior=posterior)


def frequencies(scores: ArrayLike, y: ArrayLike, bins: int) -> pd.DataFrame:
    """Shares of label 1 in bins of the upper half of test scores, with Jeffreys' 95 % intervals."""
    x, y = np.asarray(scores, dtype=float), np.asarray(y)
    upper = np.argsort(x, kind="stable")[len(x) // 2 :]
    rows = []
    for part in np.array_split(upper, bins):
        hits = int(y[part].sum())
        interval = stats.beta(hits + 0.5, len(part) - hits + 0.5).ppf([0.025, 0.975])
        rows.append([x[part].mean(), hits / len(part), *interval])
    return pd.DataFrame(rows, columns=["score", "share", "low", "high"])


def _tables(found: Round) -> HermiteTable:
    draws = found.posterior.sample(64, torch.Generator().manual_seed(0))
    return expected_log_probabilities(found.posterior.prior, LogLoss(), draws)


def _one_step(data: LinearScores, table: HermiteTable, scores: Tensor) -> Tensor:
    return _held_out(data, scores, torch.stack([table(scores, label)[1] for label in (0, 1)]))


def _held_out(data: LinearScores, scores: Tensor, slopes: Tensor) -> Tensor:
    """Scores x_n - h_n g_n / (1 - h_n w_n), without what datum n gave them, by one Newton step.

    g_n and w_n are the slope and minus the expected curvature of its log probability, and
    h_n = z_n . H^-1 z_n its leverage, with the Hessian H = sum_n w_n z_n z_n^T + 1 / C.
    """
    Z = data.inputs.dense(torch.arange(len(scores))) - data.centre
    g = torch.where(data.labels[0] == 1, slopes[1], slopes[0])
    w = (-slopes[0] * slopes[1]).clamp_min(0)
    H = Z.T @ (w[:, None] * Z) + torch.eye(Z.shape[1], dtype=Z.dtype) / data.C
    h = (Z * torch.linalg.solve(H, Z.T).T).sum(dim=1)
    return scores - h * g / (1 - h * w)


def _best(data: LinearScores, table: HermiteTable, start: Tensor) -> Tensor:
    fit = maximise_weights(
        data,
        lambda scores: table(scores, data.labels),
        start[None],
        start.new_zeros(1),
        free_offset=False,
        tol=1e-8,
        max_iter=1000,
    )
    return fit.beta[0]
