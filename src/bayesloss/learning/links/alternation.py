r"""Linkgistic regression as calibration, repeated: curves fitted to held-out scores, and weights.

Round 0 is a calibrated logistic regression: its scores of rows that it was not fitted to, held out
by :mod:`bayesloss.learning.data.folds`, and curves nu fitted to these. In every further round the
weights, those of all rows and those without each fold, know the curves
(:mod:`bayesloss.learning.weights.fold_weights`), and new curves are fitted to the new held-out
scores.

The curves are no E-step of any objective, since they see other scores than the weights: so this is
an *alternation*, not W&N's EM. What it watches is the log evidence of the held-out labels. A round
that raises it by less than ``tol`` nats a case, or by less than half a nat in all, is the last. The
best round is kept, and of rounds within half a nat the latest.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor
from tqdm import tqdm

from bayesloss.learning.weights.fold_weights import FoldWeights
from bayesloss.learning.weights.label_likelihood import Curves, label_log_probabilities
from bayesloss.learning.weights.linear_scores import LinearScores

HELD_OUT_FITS = "the regressions without each fold"  # in the list of what did not settle
ALTERNATION = "the alternation between link and weights"

_A_DIFFERENCE = 0.5  # nats in all, below which no evidence tells one round from the next


@dataclass(frozen=True)
class CurveFit:
    """Curves that were fitted to held-out scores.

    ``values`` are the log odds of one curve, or the logits of several, at these scores.
    """

    model: Any
    log_evidence: float  # of the labels given held-out scores, in nats
    values: Float[ndarray, "K n"]
    curves: Curves


@dataclass(frozen=True)
class Limits:
    """When rounds end: by their gain, in nats a case, or their number; and whether a bar shows."""

    tol: float
    max_iter: int
    progress: bool = False


# Takes held-out scores (K, n), and those of all fits (F, K, n), to curves.
FitCurves = Callable[[Tensor, Tensor], CurveFit]


@dataclass(frozen=True)
class Round:
    """Weights, the scores of all rows under them, and the curves of a round."""

    beta: Float[Tensor, "K d"]
    scores: Float[Tensor, "K n"]
    fit: CurveFit


@dataclass(frozen=True)
class Alternation:
    """The best round of one problem, and what became of all of them."""

    best: Round
    log_evidences: tuple[float, ...]
    unsettled: tuple[str, ...]


def alternate(weights: FoldWeights, fit_curves: FitCurves, limits: Limits) -> Alternation:
    """Curves and weights in turns, for one problem."""
    unsettled = [] if weights.settled else [HELD_OUT_FITS]
    enough = max(_A_DIFFERENCE, limits.tol * weights.total)
    evidences: list[float] = []
    best = None
    rise = math.inf
    rounds = _rounds(weights, fit_curves, limits.max_iter)
    for now in tqdm(rounds, desc="alternation", unit="round", disable=not limits.progress):
        evidences.append(now.fit.log_evidence)
        if best is not None:
            rise = now.fit.log_evidence - best.fit.log_evidence
        if rise > -_A_DIFFERENCE:
            best = now
        if rise < enough:
            break
    else:
        if limits.max_iter:
            unsettled.append(f"{ALTERNATION} (its last round still gained {rise:.2g} nats)")
    assert best is not None  # there is a round 0, and its rise is infinite
    return Alternation(best, tuple(evidences), tuple(unsettled))


def _rounds(weights: FoldWeights, fit_curves: FitCurves, max_iter: int) -> Iterator[Round]:
    """Round 0, and at most so many under the curves of the one before."""
    for number in range(max_iter + 1):
        fit = fit_curves(weights.held_out(), weights.scores)
        yield Round(weights.beta[0].clone(), weights.scores[0].clone(), fit)
        if number < max_iter:
            weights.move(fit.curves)


def row_losses(values: Float[ndarray, "K n"], data: LinearScores) -> Float[Tensor, " n"]:
    """The log loss of each row's label given log odds or logits, in nats."""
    nu = torch.from_numpy(np.ascontiguousarray(values))[None]
    labels = data.labels.cpu().to(nu.dtype)
    log_p, _ = label_log_probabilities(nu, labels)
    return -log_p[0].sum(0)


def mean_loss(values: Float[ndarray, "K n"], data: LinearScores) -> float:
    """Their mean, in nats a case."""
    return float(row_losses(values, data) @ data.weight.cpu()) / data.total
