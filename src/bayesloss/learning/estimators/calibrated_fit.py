"""The fit of linkgistic regression with our link: folds, penalties, and one model or several.

One assignment to folds serves a whole fit, and is made before the penalty is known, from logistic
regressions with C = 1. Two classes are one problem. More are one problem each, against the rest, or
one joint model of all (:mod:`bayesloss.learning.links.joint_link`).

Of several values of C the regressions with the fixed link choose one
(:mod:`bayesloss.learning.estimators.penalties`). Of one model or several that one is taken under
which held-out labels have the least log loss in round 0, by curves fitted to all held-out scores:
smooth functions of one variable can hardly overfit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.special import expit, log_expit
from torch import Tensor

from bayesloss.arrays import Array
from bayesloss.learning.data.folds import Folds, content_folds, group_folds, no_folds
from bayesloss.learning.data.range_map import robust_reach
from bayesloss.learning.estimators.linkgistic_fit import (
    FIXED_LINK,
    LinkgisticFit,
    side_by_side,
    warn_if_separable,
)
from bayesloss.learning.estimators.penalties import (
    PATIENCE,
    strongest_of_the_best,
    warn_at_the_end,
)
from bayesloss.learning.estimators.problems import Problems
from bayesloss.learning.links.alternation import (
    Alternation,
    Limits,
    alternate,
    mean_loss,
    row_losses,
)
from bayesloss.learning.links.calibrated_link import CalibratedLink, CalibratorFits
from bayesloss.learning.links.joint_link import SourceFits
from bayesloss.learning.weights.fold_weights import FINER, FoldWeights
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.multinomial import fit_softmax
from bayesloss.learning.weights.weight_search import WeightFit, fit_fixed_link
from bayesloss.proper_losses import LogLoss
from bayesloss.warnings import warn_caller

MultiClass = Literal["auto", "joint", "ovr"]

_FAR = 2.0  # times the reach of the bulk of scores, beyond which rows have no part in a fit


@dataclass(frozen=True)
class HeldOut:
    """Problems whose rows are parts of folds, in as few columns as will do.

    ``first`` are logistic regressions with C = 1 of the rows before they had parts, in the
    coordinates of ``data``, which is None if they have several now. ``back`` takes weights (any, d)
    to those of the inputs as they were given.
    """

    problems: Problems
    folds: Folds
    first: WeightFit
    data: LinearScores | None
    back: Callable[[Tensor], Tensor]


class Model(ABC):
    """How the classes make up problems."""

    joint: bool

    @abstractmethod
    def regression(self, held_out: HeldOut, C: float, tol: float) -> tuple[WeightFit, LinearScores]:
        """The regression with the fixed link, and the data in the coordinates that suited it."""

    @abstractmethod
    def weights(
        self, data: LinearScores, fit: WeightFit, folds: Folds, tol: float
    ) -> list[FoldWeights]:
        """Those of all problems, from the regression."""

    @abstractmethod
    def alternations(
        self, data: LinearScores, weights: list[FoldWeights], folds: Folds, limits: Limits
    ) -> list[Alternation]:
        """Those of all problems; the weights move."""

    @abstractmethod
    def log_odds(self, by_problem: Sequence[Float[ndarray, "k n"]]) -> Float[ndarray, "K n"]:
        """The log odds of two classes, or logits of more, from the values of each problem."""

    @abstractmethod
    def beta(self, alternations: Sequence[Alternation]) -> Float[Tensor, "K d"]:
        """The weights of the best rounds, whose scores the links take."""

    @abstractmethod
    def links(self, alternations: Sequence[Alternation], weight: Tensor) -> list[Any]:
        """The link of each row of weights."""


class OneVsRest(Model):
    """A problem for each class against the rest, or one for two classes."""

    joint = False

    def regression(self, held_out: HeldOut, C: float, tol: float) -> tuple[WeightFit, LinearScores]:
        """Logistic regressions."""
        if C == 1.0 and held_out.data is not None:
            return held_out.first, held_out.data
        return fit_fixed_link(held_out.problems.at(C), LogLoss(), tol, held_out.first)

    def weights(
        self, data: LinearScores, fit: WeightFit, folds: Folds, tol: float
    ) -> list[FoldWeights]:
        """Those of each class, or of two together."""
        classes = range(len(data.labels))
        return [FoldWeights(data.only([k]), fit.only(k), folds, tol) for k in classes]

    def alternations(
        self, data: LinearScores, weights: list[FoldWeights], folds: Folds, limits: Limits
    ) -> list[Alternation]:
        """One for each class, or one for two."""
        return [
            alternate(moving, CalibratorFits(data.only([k]), folds), limits)
            for k, moving in enumerate(weights)
        ]

    def log_odds(self, by_problem: Sequence[Float[ndarray, "k n"]]) -> Float[ndarray, "K n"]:
        """Log odds, or the logarithms of the probabilities against the rest."""
        values = np.concatenate(by_problem)
        return values if len(values) == 1 else log_expit(values)

    def beta(self, alternations: Sequence[Alternation]) -> Float[Tensor, "K d"]:
        """As they are."""
        return torch.cat([one.best.beta for one in alternations])

    def links(self, alternations: Sequence[Alternation], weight: Tensor) -> list[Any]:
        """The calibrators' curves."""
        return [CalibratedLink(one.best, weight) for one in alternations]


class Joint(Model):
    """One problem of all classes."""

    joint = True

    def regression(self, held_out: HeldOut, C: float, tol: float) -> tuple[WeightFit, LinearScores]:
        """A multinomial regression."""
        return fit_softmax(held_out.problems.at(C), tol, held_out.first)

    def weights(
        self, data: LinearScores, fit: WeightFit, folds: Folds, tol: float
    ) -> list[FoldWeights]:
        """Those of all classes."""
        return [FoldWeights(data, fit, folds, tol)]

    def alternations(
        self, data: LinearScores, weights: list[FoldWeights], folds: Folds, limits: Limits
    ) -> list[Alternation]:
        """One."""
        (moving,) = weights
        return [alternate(moving, SourceFits(data, moving.level), limits)]

    def log_odds(self, by_problem: Sequence[Float[ndarray, "k n"]]) -> Float[ndarray, "K n"]:
        """As they are."""
        (logits,) = by_problem
        return logits

    def beta(self, alternations: Sequence[Alternation]) -> Float[Tensor, "K d"]:
        """At the common scale."""
        best = alternations[0].best
        return best.fit.model.scale * best.beta

    def links(self, alternations: Sequence[Alternation], weight: Tensor) -> list[Any]:
        """The sources."""
        best = alternations[0].best
        return [best.fit.model.link(k, best, weight) for k in range(len(best.beta))]


def hold_out(problems: Problems, tol: float) -> HeldOut:
    """The one assignment to folds of a fit, for any penalty."""
    narrow, back = problems.narrowed()
    first, data = fit_fixed_link(narrow.at(1.0), LogLoss(), FINER * tol)
    near = ~_far_rows(first, problems.weight)
    if not near.all():
        _warn_of_far_rows(near)
        chosen = torch.from_numpy(near).to(problems.weight.device)
        return hold_out(problems.some(chosen), tol)
    folds = _folds(problems, first, tol)
    parts = _parts(narrow, folds)
    whole = parts.inputs is narrow.inputs
    return HeldOut(
        problems=parts, folds=folds, first=first, data=data if whole else None, back=back
    )


@dataclass(frozen=True)
class Candidate:
    """A model at one penalty: its regression of all rows, and the weights without each fold."""

    model: Model
    C: float
    data: LinearScores
    weights: list[FoldWeights]
    settled: bool


@dataclass(frozen=True)
class Path:
    """The held-out losses of a model at each penalty, in nats a case, and the C that is chosen.

    Losses are of the fixed link; NaN where two weaker penalties in a row before were no better.
    """

    losses: tuple[float, ...]
    C: float


def fit_calibrated_links(
    problems: Problems, Cs: Array, multi_class: MultiClass, limits: Limits
) -> LinkgisticFit:
    """Weights and links, by the best of several models and penalties, these in ascending order."""
    held_out = hold_out(problems, limits.tol)
    models: list[Model] = []
    if len(problems.labels) == 1 or multi_class != "joint":
        models.append(OneVsRest())
    if len(problems.labels) > 1 and multi_class != "ovr":
        models.append(Joint())
    paths = [_path(model, held_out, Cs, limits.tol) for model in models]
    candidates = [
        _candidate(model, held_out, path.C, limits.tol)
        for model, path in zip(models, paths, strict=True)
    ]
    best = 0
    if len(candidates) > 1:
        best = int(np.argmin([_loss_of_round_0(one, held_out, limits.tol) for one in candidates]))
    losses = paths[best].losses
    warn_at_the_end(Cs, losses)
    return _fit(candidates[best], held_out, losses, limits)


def _path(model: Model, held_out: HeldOut, Cs: Array, tol: float) -> Path:
    """From the strongest penalty to the weakest that is worth trying, with the fixed link."""
    losses = np.full(len(Cs), np.nan)
    if len(Cs) == 1:
        return Path(losses=tuple(losses), C=float(Cs[0]))
    by_row: list[Tensor] = []
    weight = held_out.problems.weight.cpu()
    for i, C in enumerate(Cs):
        candidate = _candidate(model, held_out, float(C), tol)
        values = [one.held_out_log_odds() for one in candidate.weights]
        by_row.append(row_losses(model.log_odds(values), candidate.data))
        losses[i] = float(by_row[i] @ weight) / candidate.data.total
        if i - np.nanargmin(losses) == PATIENCE:
            break
    n_cases = held_out.folds.power * float(weight.sum())
    chosen = strongest_of_the_best(torch.stack(by_row), weight, n_cases)
    return Path(losses=tuple(losses), C=float(Cs[chosen]))


def _loss_of_round_0(candidate: Candidate, held_out: HeldOut, tol: float) -> float:
    alternations = candidate.model.alternations(
        candidate.data, candidate.weights, held_out.folds, Limits(tol=tol, max_iter=0)
    )
    values = [one.best.fit.values for one in alternations]
    return mean_loss(candidate.model.log_odds(values), candidate.data)


def _candidate(model: Model, held_out: HeldOut, C: float, tol: float) -> Candidate:
    fit, data = model.regression(held_out, C, FINER * tol)
    return Candidate(
        model=model,
        C=C,
        data=data,
        weights=model.weights(data, fit, held_out.folds, tol),
        settled=fit.settled(FINER * tol),
    )


def _fit(
    candidate: Candidate, held_out: HeldOut, losses: tuple[float, ...], limits: Limits
) -> LinkgisticFit:
    """All rounds of a candidate."""
    model = candidate.model
    data = candidate.data
    alternations = model.alternations(data, candidate.weights, held_out.folds, limits)
    unsettled = [] if candidate.settled else [FIXED_LINK]
    for k, one in enumerate(alternations):
        unsettled += [f"{what}, of problem {k}" for what in one.unsettled]
    beta = model.beta(alternations)
    log_odds = model.log_odds([one.best.fit.values for one in alternations])
    warn_if_separable(data, data.scores(beta), limits.tol)
    return LinkgisticFit(
        joint=model.joint,
        C=candidate.C,
        beta=held_out.back(beta),
        centre=held_out.back(data.centre[None])[0],
        links=model.links(alternations, data.weight),
        history={"log_evidence": side_by_side([one.log_evidences for one in alternations])},
        unsettled=tuple(unsettled),
        held_out_loss=mean_loss(log_odds, data),
        losses=losses,
    )


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
