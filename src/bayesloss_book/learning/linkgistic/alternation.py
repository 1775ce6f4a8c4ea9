"""The classifier's rounds one by one, also beyond the one that it ends with."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from sklearn.metrics import log_loss

from bayesloss import LinkCalibrator, LinkgisticClassifier
from bayesloss.learning.estimators.calibrated_fit import HeldOut, OneVsRest, hold_out
from bayesloss.learning.estimators.problems import read_problems
from bayesloss.learning.links.calibrated_link import CalibratorFits
from bayesloss.learning.weights.fold_weights import FINER
from bayesloss_book.learning.linkgistic.rounds import Task


@dataclass(frozen=True)
class HeldOutRound:
    """What the alternation holds after a curve was fitted."""

    curve: LinkCalibrator
    scores: Float[ndarray, " n"]  # of the weights of all rows
    held_out: Float[ndarray, " n"]  # of the weights without each row's fold
    test_scores: Float[ndarray, " n_test"]
    log_evidence: float  # of the labels given held-out scores, in nats


def folds(
    problem: Task, tol: float = 1e-4
) -> list[tuple[Int[ndarray, " rest"], Int[ndarray, " fold"]]]:
    """The classifier's folds, in the form of scikit-learn's splitters."""
    fold = _parts(problem, tol).folds.fold
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(fold.max() + 1)]


def rounds(problem: Task, n_rounds: int, *, C: float, tol: float = 1e-4) -> list[HeldOutRound]:
    """Round 0 and so many more."""
    parts = _parts(problem, tol)
    model = OneVsRest()
    fit, data = model.regression(parts, C, FINER * tol)
    (weights,) = model.weights(data, fit, parts.folds, tol)
    fit_curve = CalibratorFits(data, parts.folds)
    centred = torch.from_numpy(problem.X_test - problem.X.mean(axis=0))
    watched = []
    for _ in range(n_rounds + 1):
        held_out = weights.held_out()
        found = fit_curve(held_out, weights.scores)
        beta = parts.back(weights.beta[0])[0]
        watched.append(
            HeldOutRound(
                curve=found.model,
                scores=weights.scores[0, 0].numpy().copy(),
                held_out=held_out[0].numpy().copy(),
                test_scores=(centred @ beta).numpy(),
                log_evidence=found.log_evidence,
            )
        )
        weights.move(found.curves)
    return watched


def _parts(problem: Task, tol: float) -> HeldOut:
    """The classifier's problem and folds, for rows that are all different and none far out."""
    _, problems = read_problems(
        LinkgisticClassifier(), problem.X, problem.y, None, None, merge_copies=True
    )
    parts = hold_out(problems, tol)
    if not np.array_equal(parts.folds.rows, np.arange(len(problem.y))):
        raise ValueError("expected rows that are all different and none far out")
    return parts


def by_round(problem: Task, watched: list[HeldOutRound]) -> pd.DataFrame:
    """The log loss of held-out and of test labels, in nats a case, and the log evidence."""
    rows = [
        {
            "log evidence": found.log_evidence,
            "held-out log loss": _loss(found.curve, found.held_out, problem.y),
            "test log loss": _loss(found.curve, found.test_scores, problem.y_test),
        }
        for found in watched
    ]
    return pd.DataFrame(rows).rename_axis("round")


def _loss(curve: LinkCalibrator, scores: Float[ndarray, " m"], y: Int[ndarray, " m"]) -> float:
    return float(log_loss(y, curve.predict_proba(scores)[:, 1]))
