"""What pages compare: W&N's recipe, logistic regression at a budget, the calibration error."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import xlogy

from bayesloss.learning.estimators.linkgistic import LinkgisticClassifier
from bayesloss.learning.estimators.paper_link import PaperLink
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import fit_fixed_link
from bayesloss.proper_losses import LogLoss
from bayesloss_book import Array

HELD_OUT = "held-out ISGP"  # the classifier whose links see scores of rows that were held out

# W&N's regression, as parameters of ISGPRegressor: fitted hyper-parameters are taken for true, and
# inputs as they come.
PLUG_IN: dict[str, Any] = {"average_hyperparameters": False, "robust_range": False}

# The tolerance of every method, as scikit-learn has it, and the largest number of rounds of EM.
BUDGETS = {"short": (1e-2, 30), "default": (1e-4, 30), "long": (1e-6, 100)}

SMALLEST = float(np.finfo(np.float64).eps)  # a probability of 0 counts as this in the log loss
CALIBRATION_BINS = 15  # of probabilities, for the calibration error
LOGISTIC_STEPS = 1_000  # L-BFGS iterations at most, as in linkgistic regression


def recipe(method: str = "ISGP", **given: Any) -> LinkgisticClassifier:
    """W&N's classifier by a prior "ISGP" or "GP"; or ours, "held-out ISGP", by classes.

    Parameters that are given are those of either; ours has none of a link.
    """
    of_link = {name: given.pop(name) for name in PaperLink().get_params() if name in given}
    if method == HELD_OUT:
        return LinkgisticClassifier(multi_class="ovr", **given)
    link = PaperLink(prior="gp" if method == "GP" else "isgp", **of_link)
    return LinkgisticClassifier(link=link, **given)


def fit_logistic(
    X: Array, truth: NDArray[np.bool_], X_test: Array, C: float, tol: float
) -> tuple[Array, Array, int, bool, float]:
    """K logistic regressions: log odds of both parts, L-BFGS's rounds, convergence, and a 0."""
    labels = torch.from_numpy(truth.T.astype(np.int64))
    Z = torch.from_numpy(X)
    scores = LinearScores.of(Z, labels, Z.new_ones(len(Z)), C)
    fit, _ = fit_fixed_link(scores, LogLoss(), tol)
    test = (torch.from_numpy(X_test) - scores.centre) @ fit.beta.T + fit.offset
    return fit.scores.T.numpy(), test.numpy(), fit.n_iter, fit.settled(tol), 0.0


def log_loss(p: Array, truth: NDArray[Any]) -> float:
    """The mean log loss in nats, an expectation where truth is a probability."""
    bounded = np.clip(p, SMALLEST, 1 - SMALLEST)
    return float(-(xlogy(truth, bounded) + xlogy(1 - truth, 1 - bounded)).mean())


def calibration_error(probability: Array, truth: NDArray[Any]) -> float:
    """The mean distance of confidence and frequency over equal bins, weighted with their counts."""
    index = np.minimum((probability * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    gap = np.bincount(index, probability - truth, minlength=CALIBRATION_BINS)
    return float(np.abs(gap).sum() / len(truth))
