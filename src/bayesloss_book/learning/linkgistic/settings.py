"""How linkgistic regression depends on the settings that the paper leaves open."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import sem
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from bayesloss.learning.estimators.linkgistic import LinkgisticClassifier
from bayesloss.proper_losses import ProperLoss
from bayesloss_book import Array
from bayesloss_book.learning.linkgistic.rounds import Task, digit, reach
from bayesloss_book.rivals.baselines import recipe
from paperledger.stores.results import crossed, runs

FILLED = (0.1, 0.25, 0.5, 0.75, 0.95)  # parts of [-1/c, 1/c]
FACTORS = (0.01, 0.1, 1.0, 10.0, 100.0)  # of the GP's default variance


def scores_of(model: Any, problem: Task) -> dict[str, float]:
    """Log loss in nats and accuracy of a fitted model on the test data."""
    probability = model.predict_proba(problem.X_test)
    return {
        "log loss": float(log_loss(problem.y_test, probability)),
        "accuracy": float((probability.argmax(axis=1) == problem.y_test).mean()),
    }


def evidence_of(model: LinkgisticClassifier) -> float:
    """Laplace's log evidence of the link in the last round, nats."""
    return float(model.history_["log_evidence"][-1].sum())


def losses_of(model: Any, problem: Task) -> Array:
    """Log loss of each test datum, nats."""
    return -np.log(model.predict_proba(problem.X_test)[range(len(problem.y_test)), problem.y_test])


def fit(problem: Task, prior: str = "isgp", **options: Any) -> LinkgisticClassifier:
    """Fit the classifier by the paper's recipe: links see the training scores."""
    model = recipe(prior.upper(), **options)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return model.fit(problem.X, problem.y)


def against_logistic_regression(
    problems: dict[str, Task], C: dict[str, float], **options: Any
) -> pd.DataFrame:
    """Test log loss and accuracy with three links, and the truth's where it is known.

    Links are logistic regression's, learned by "EM" from training scores, or ours, "held out";
    "saved" is against the first, "+-" the standard error over the test data.
    """
    rows = {}
    for name, problem in problems.items():
        fixed = LogisticRegression(C=C[name], tol=1e-8, max_iter=10_000)
        models = {
            "fixed link": fixed.fit(problem.X, problem.y),
            "EM": fit(problem, C=C[name], **options),
            "held out": LinkgisticClassifier(C=C[name]).fit(problem.X, problem.y),
        }
        found = {which: scores_of(model, problem) for which, model in models.items()}
        truth = np.nan
        if problem.odds is not None:
            truth = float(log_loss(problem.y_test, expit(problem.odds)))
        losses = {which: losses_of(model, problem) for which, model in models.items()}
        saved = {which: losses["fixed link"] - losses[which] for which in ("EM", "held out")}
        rows[name] = {
            **{f"log loss, {which}": scores["log loss"] for which, scores in found.items()},
            "log loss, truth": truth,
            **{
                f"{column}, {which}": float(value)
                for which, gains in saved.items()
                for column, value in (("saved", gains.mean()), ("+-", sem(gains)))
            },
            **{f"accuracy, {which}": scores["accuracy"] for which, scores in found.items()},
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def sensitivity_to_c(
    problem: Task, filled: Sequence[float], *, C: float, **options: Any
) -> pd.DataFrame:
    """Test scores and evidence by the part of [-1/c, 1/c] that the first scores fill."""
    most = reach(problem, C)
    rows = {}
    first = None
    for part in filled:
        model = fit(problem, C=C, c=part / most, **options)
        losses = losses_of(model, problem)
        first = losses if first is None else first
        error = float(sem(losses - first))
        found = {"evidence": evidence_of(model), "rounds": model.n_iter_, "+-": error}
        rows[part] = scores_of(model, problem) | found
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("filled")


def sensitivity_to_b(problem: Task, factors: Sequence[float], **options: Any) -> pd.DataFrame:
    """Test scores of the GP against its prior variance, a multiple of the default."""
    usual = fit(problem, "gp", **(options | {"max_iter": 1}))
    variance = float(usual.link_.posterior.prior.kernel.variance)
    rows = {}
    for factor in factors:
        model = fit(problem, "gp", variance=factor * variance, **options)
        rows[factor] = scores_of(model, problem)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("b, times the default")


def measure(*, split: int, C: float, tol: float, max_iter: int) -> dict[str, float]:
    """Evidence under each c and test accuracy under each b, on one split of the digit eight."""
    eight = digit(8, split)
    options = {"tol": tol, "max_iter": max_iter, "random_state": split}
    by_c = sensitivity_to_c(eight, FILLED, C=C, **options)["evidence"]
    by_b = sensitivity_to_b(eight, FACTORS, C=C, **options)["accuracy"]
    found = {f"evidence_{part:g}": float(value) for part, value in by_c.items()}
    return found | {f"accuracy_{factor:g}": float(value) for factor, value in by_b.items()}


def compare_losses(problem: Task, losses: Sequence[ProperLoss], **options: Any) -> pd.DataFrame:
    """Test scores with each loss as the fixed part."""
    rows = {}
    first = None
    for loss in losses:
        model = fit(problem, loss=loss, **options)
        probability = model.predict_proba(problem.X_test)[:, 1]
        first = probability if first is None else first
        difference = float(np.abs(probability - first).mean())
        rows[repr(loss)] = scores_of(model, problem) | {"difference": difference}
    return pd.DataFrame.from_dict(rows, orient="index")


run = runs(measure, lambda: crossed(split=range(20)), "link_settings", C=1.0, tol=1e-3, max_iter=8)
