"""The fit of linkgistic regression with our link: folds, penalties and a loop over the classes.

One assignment to folds serves a whole fit, and is made before the penalty is known, from a logistic
regression with C = 1. Of several values of C that one is taken under whose logistic regressions the
held-out labels have the least log loss, by a curve fitted to all held-out scores. Two classes are
one problem; more are one each, against the rest, with the same inputs and folds
(:mod:`bayesloss.learning.links.calibrated_link`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.special import expit
from torch import Tensor

from bayesloss.arrays import Array
from bayesloss.learning.data.folds import Folds, content_folds, group_folds, no_folds
from bayesloss.learning.data.range_map import robust_reach
from bayesloss.learning.estimators.linkgistic_fit import Problems
from bayesloss.learning.estimators.penalty_path import warn_at_the_end
from bayesloss.learning.links.calibrated_link import FINER, CalibratedLink, alternate
from bayesloss.learning.links.em import FIXED_LINK
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import WeightFit, fit_fixed_link
from bayesloss.proper_losses import LogLoss
from bayesloss.warnings import warn_caller

_FAR = 2.0  # times the reach of the bulk of scores, beyond which rows have no part in a fit
_PATIENCE = 2  # how many weaker penalties in a row are tried that are no better


@dataclass(frozen=True)
class CalibratedFit:
    """The fits of K problems: weights, the centre of the inputs, links and histories.

    ``losses`` are held out, in nats a case, one for each C that was to be tried; NaN where only one
    was given, or it was not tried. ``log_evidences`` are NaN where a problem had fewer rounds.
    """

    C: float
    losses: Float[ndarray, " Cs"]
    beta: Float[Tensor, "K d"]
    centre: Float[Tensor, " d"]
    links: list[CalibratedLink]
    log_evidences: Float[ndarray, "rounds K"]
    unsettled: tuple[str, ...]


@dataclass(frozen=True)
class HeldOut:
    """Problems whose rows are parts of folds, in as few columns as will do.

    ``first`` is a logistic regression with C = 1 of the rows before they had parts, and ``back``
    takes weights (any, d) to those of the inputs as they were given.
    """

    problems: Problems
    folds: Folds
    first: WeightFit
    back: Callable[[Tensor], Tensor]


def hold_out(problems: Problems, tol: float) -> HeldOut:
    """The one assignment to folds of a fit, for any penalty."""
    narrow, back = problems.narrowed()
    first, _ = fit_fixed_link(narrow.at(1.0), LogLoss(), FINER * tol)
    near = ~_far_rows(first, problems.weight)
    if not near.all():
        _warn_of_far_rows(near)
        chosen = torch.from_numpy(near).to(problems.weight.device)
        return hold_out(problems.some(chosen), tol)
    folds = _folds(problems, first, tol)
    return HeldOut(_parts(narrow, folds), folds, first, back)


def fit_calibrated_links(
    problems: Problems, Cs: Array, *, tol: float, max_iter: int
) -> CalibratedFit:
    """Weights and links of all problems, at the best of several penalties in ascending order."""
    held_out = hold_out(problems, tol)
    losses = np.array([np.nan])
    best = 0
    if len(Cs) > 1:
        losses = losses_of_folds(held_out, Cs, tol=tol)
        best = int(np.nanargmin(losses))
        warn_at_the_end(Cs, best)
    data = held_out.problems.at(float(Cs[best]))
    fit, data = fit_fixed_link(data, LogLoss(), FINER * tol, held_out.first)
    unsettled = [] if fit.settled(FINER * tol) else [FIXED_LINK]
    alternations = []
    for k in range(len(data.labels)):
        problem = data.only([k])
        one = alternate(problem, _only(fit, k), held_out.folds, tol=tol, max_iter=max_iter)
        alternations.append(one)
        unsettled += [f"{what}, of problem {k}" for what in one.unsettled]
    beta = torch.stack([one.best.beta for one in alternations])
    return CalibratedFit(
        C=float(Cs[best]),
        losses=losses,
        beta=held_out.back(beta),
        centre=held_out.back(data.centre[None])[0],
        links=[CalibratedLink(one.best, data.weight) for one in alternations],
        log_evidences=_side_by_side([one.log_evidences for one in alternations]),
        unsettled=tuple(unsettled),
    )


def _side_by_side(columns: Sequence[tuple[float, ...]]) -> Float[ndarray, "rounds K"]:
    """Columns of several lengths as a table that ends in NaN."""
    table = np.full((max(map(len, columns)), len(columns)), np.nan)
    for k, values in enumerate(columns):
        table[: len(values), k] = values
    return table


def losses_of_folds(held_out: HeldOut, Cs: Array, *, tol: float) -> Array:
    """The held-out log loss at each C, in nats a case, averaged over the problems.

    From the strongest penalty to the weakest; NaN where two in a row before were no better.
    """
    fit = held_out.first
    losses = np.full(len(Cs), np.nan)
    for i, C in enumerate(Cs):
        fit, data = fit_fixed_link(held_out.problems.at(C), LogLoss(), FINER * tol, fit)
        losses[i] = _calibrated_loss(data, fit, held_out.folds, tol)
        if i - np.nanargmin(losses) == _PATIENCE:
            break
    return losses


def _calibrated_loss(data: LinearScores, fit: WeightFit, folds: Folds, tol: float) -> float:
    """The mean log loss of held-out scores under curves that are fitted to all of them."""
    total = 0.0
    for k in range(len(data.labels)):
        one = alternate(data.only([k]), _only(fit, k), folds, tol=tol, max_iter=0)
        total += one.best.held_out_loss
    return total / len(data.labels)


def _folds(problems: Problems, fit: WeightFit, tol: float) -> Folds:
    """The folds of a fit; none where all columns together move a row's own loss by less than tol.

    The optimism of a fit is about one nat a column in all.
    """
    labels = problems.labels.cpu().numpy()
    classes = labels[0].astype(np.int64)
    if len(labels) > 1:
        classes = labels.argmax(axis=0)
    weight = problems.weight.cpu().numpy()
    if problems.groups is not None:
        return group_folds(problems.groups.cpu().numpy(), classes, weight)
    n, d = problems.inputs.shape
    if d < tol * n:
        return no_folds(weight)
    chances = expit(fit.scores.T.cpu().numpy())
    if chances.shape[1] == 1:
        chances = np.concatenate([1 - chances, chances], axis=1)
    chances /= chances.sum(axis=1, keepdims=True)
    return content_folds(problems.inputs.equal(), classes, weight, chances)


def _far_rows(fit: WeightFit, weight: Float[Tensor, " n"]) -> Bool[ndarray, " n"]:
    """Which rows a regression scores more than twice as far out as all but a few of the others.

    By their distance alone they would decide on the weights, and on the mean of the inputs.
    """
    weights = weight.cpu().numpy()
    far = np.zeros(len(weights), dtype=bool)
    for scores in fit.scores.cpu().numpy():
        far |= np.abs(scores) > _FAR * robust_reach(scores, weights)
    return far


def _warn_of_far_rows(near: Bool[ndarray, " n"]) -> None:
    warn_caller(
        f"{int((~near).sum())} of {len(near)} rows have scores far out from the rest, and are left "
        "out of the fit: look at these rows, or transform columns that have long tails"
    )


def _parts(problems: Problems, folds: Folds) -> Problems:
    """The problems of the folds' parts of rows."""
    rows = torch.from_numpy(folds.rows).to(problems.weight.device)
    inputs = problems.inputs
    if len(rows) != len(problems.weight) or bool((rows[1:] <= rows[:-1]).any()):
        inputs = inputs.rows(rows)
    weight = torch.from_numpy(folds.weight).to(problems.weight.device)
    return Problems(inputs, problems.labels[:, rows], weight, None)


def _only(fit: WeightFit, k: int) -> WeightFit:
    """One problem's part of a fit of several."""
    rows = {name: value[k : k + 1] for name, value in vars(fit).items() if name != "n_iter"}
    return WeightFit(**rows, n_iter=fit.n_iter)
