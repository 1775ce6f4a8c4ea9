r"""Many classes: the joint model beside one-vs-rest, multinomial regression and its temperature.

A cell is a split or a training sample of a data set, and a penalty C; all methods see the same. The
columns of iris and wine are standardised, pixels are divided by the largest grey value. A third of
iris, wine and digits is held out.

    multinomial     logistic regression, p = softmax(beta z + offset)
    temperature     the same with all log odds times one factor, fitted to held-out ones
    straight lines  the joint model's rounds with all sources x + level: the factor acts on C, too
    one-vs-rest     W&N's way with many classes: a learned link each, probabilities normalised
    sources         the joint model's first round: weights of the multinomial regression
    joint           all its rounds
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from bayesloss.learning.data.folds import Folds
from bayesloss.learning.data.inputs import DenseInputs
from bayesloss.learning.estimators.calibrated_fit import hold_out
from bayesloss.learning.estimators.linkgistic import LinkgisticClassifier
from bayesloss.learning.estimators.problems import Problems
from bayesloss.learning.links.alternation import Alternation, Limits, alternate
from bayesloss.learning.links.joint_link import SourceFits
from bayesloss.learning.sources.priors import CentredISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.learning.weights.fold_weights import FINER, FoldWeights
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.multinomial import fit_softmax
from bayesloss.learning.weights.weight_search import WeightFit
from bayesloss_book import Array
from bayesloss_book.data.image_sets import inputs
from paperledger.stores.results import crossed, runs

METHODS = ("multinomial", "temperature", "straight lines", "one-vs-rest", "sources", "joint")
SMALL = {"iris": load_iris, "wine": load_wine, "digits": load_digits}
IMAGES = ("mnist", "fashion-mnist", "kmnist")
PENALTIES = (0.1, 1.0)

_SPLITS = {"iris": 10, "wine": 10, "digits": 3}
_SIZES = (3_000, 10_000)
_MOST_APART = 3_000  # cases with which one-vs-rest is compared
_TOL = 1e-4


def cells() -> list[dict[str, Any]]:
    """All cells: splits of small sets (n = 0), then one sample of images of each size."""
    small = [
        {"data": data, "n": 0, "C": C, "seed": seed}
        for data, splits in _SPLITS.items()
        for C in PENALTIES
        for seed in range(splits)
    ]
    return small + crossed(n=_SIZES, data=IMAGES, C=PENALTIES, seed=[0])


def problem(
    data: str, n: int, seed: int
) -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]:
    """Training inputs and labels, and those of the test."""
    if data not in SMALL:
        return inputs(data, n, "pixels", seed)
    Z, labels = SMALL[data](return_X_y=True)
    X, X_test, y, y_test = train_test_split(
        Z, labels, train_size=2 / 3, random_state=seed, stratify=labels
    )
    if data == "digits":
        return X / 16, y, X_test / 16, y_test
    mean = X.mean(axis=0)
    deviation = X.std(axis=0)
    return (X - mean) / deviation, y, (X_test - mean) / deviation, y_test


def measure(*, data: str, n: int, C: float, seed: int) -> dict[str, float]:
    """Fit every method to one training sample, and measure it on the test set.

    As "method: measure", ``loss``, the mean log loss in nats, ``less``, the standard error over
    test cases of its difference to that of the temperature, and ``wrong``, the share of wrong
    labels. NaN for one-vs-rest on more than 3,000 images. Then ``factor``, of the temperature, and
    of the joint model ``rounds`` and ``gain``, in nats of the held-out labels' evidence.
    """
    X, y, X_test, y_test = problem(data, n, seed)
    cases = Cases.of(X, y, C)
    plain, scaled, factor = tempered(cases, X_test)
    first = joint_fit(cases, max_iter=0)
    full = joint_fit(cases)
    found = {
        "multinomial": plain,
        "temperature": scaled,
        "straight lines": log_probabilities(joint_fit(cases, lines=True), cases, X_test),
        "one-vs-rest": np.full_like(plain, np.nan),
        "sources": log_probabilities(first, cases, X_test),
        "joint": log_probabilities(full, cases, X_test),
    }
    if n <= _MOST_APART:
        # Thirty rounds will do.
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            apart = LinkgisticClassifier(C=C, tol=_TOL, multi_class="ovr").fit(X, y)
        found["one-vs-rest"] = apart.predict_log_proba(X_test)
    rows = np.arange(len(y_test))
    measures: dict[str, float] = {}
    for method in METHODS:
        losses = -found[method][rows, y_test]
        less = losses + scaled[rows, y_test]
        measures[f"{method}: loss"] = float(losses.mean())
        measures[f"{method}: less"] = float(less.std() / np.sqrt(len(less)))
        wrong = found[method].argmax(axis=1) != y_test
        measures[f"{method}: wrong"] = float(np.where(np.isnan(losses), np.nan, wrong).mean())
    gain = full.best.fit.log_evidence - first.best.fit.log_evidence
    return measures | {"factor": factor, "rounds": len(full.log_evidences), "gain": gain}


def choices(*, data: str, seed: int) -> dict[str, float]:
    """Test log losses, in nats, of both ways with many classes, and of the one that is chosen.

    By the values of the classifier's ``multi_class``: ``joint``, ``ovr`` and ``auto``.
    """
    X, y, X_test, y_test = problem(data, 0, seed)
    losses = {}
    with warnings.catch_warnings(action="ignore"):  # of rows far out
        for way in ("joint", "ovr", "auto"):
            model = LinkgisticClassifier(multi_class=way).fit(X, y)
            log_p = model.predict_log_proba(X_test)
            losses[way] = -float(log_p[np.arange(len(y_test)), y_test].mean())
    return losses


@dataclass(frozen=True)
class Cases:
    """Training data as the library's fits take them, and the multinomial regressions of folds."""

    data: LinearScores
    folds: Folds
    fit: WeightFit

    @classmethod
    def of(cls, X: Array, y: NDArray[np.int64], C: float) -> "Cases":
        """From inputs (n, d) and classes (n,), numbered from 0."""
        labels = np.stack([y == k for k in range(int(y.max()) + 1)]).view(np.int8)
        problems = Problems(
            inputs=DenseInputs(torch.from_numpy(np.ascontiguousarray(X))),
            labels=torch.from_numpy(labels),
            weight=torch.ones(len(X), dtype=torch.float64),
            groups=None,
        )
        with warnings.catch_warnings(action="ignore"):  # of rows far out
            held_out = hold_out(problems, _TOL)
        fit, data = fit_softmax(held_out.problems.at(C), FINER * _TOL, held_out.first)
        return cls(data=data, folds=held_out.folds, fit=fit)

    def weights(self) -> FoldWeights:
        """Those of all cases and without each fold, before the first round."""
        return FoldWeights(self.data, self.fit, self.folds, _TOL)


def tempered(cases: Cases, X_test: Array) -> tuple[Array, Array, float]:
    """Log probabilities of multinomial regression, those at its temperature, and the factor."""
    data = cases.data
    weights = cases.weights()
    odds = (weights.held_out() + weights.level[:, None]).T.numpy()
    classes = data.labels.argmax(0).numpy()
    rows = np.arange(len(classes))
    counts = data.weight.numpy()
    found = minimize_scalar(
        lambda t: -counts @ log_softmax(np.exp(t) * odds, axis=1)[rows, classes],
        bounds=(-4.0, 6.0),
        method="bounded",
    )
    factor = float(np.exp(found.x))
    test = (X_test - data.centre.numpy()) @ cases.fit.beta.numpy().T + cases.fit.offset.numpy()
    return log_softmax(test, axis=1), log_softmax(factor * test, axis=1), factor


def joint_fit(cases: Cases, *, max_iter: int = 30, lines: bool = False) -> Alternation:
    """The joint model as the classifier fits it, or with straight lines for sources."""
    weights = cases.weights()
    sources = SourceFits(cases.data, weights.level, line if lines else None)
    return alternate(weights, sources, Limits(tol=_TOL, max_iter=max_iter))


def line(reach: float) -> list[CentredISGP]:
    """A prior of slope 1, but for a part in ten thousand."""
    kernel = TrigonometricKernel(a=2.5, c=0.5 / reach, n_basis=2).scaled(1e-8)
    return [CentredISGP(kernel, tau=1e-4)]


def log_probabilities(fit: Alternation, cases: Cases, X: Array) -> Array:
    """The log probabilities of the classes, of shape (n, K)."""
    Z = torch.from_numpy(np.ascontiguousarray(X)) - cases.data.centre
    nu, _ = fit.best.fit.curves(fit.best.beta @ Z.T)
    return torch.log_softmax(nu, dim=0).T.numpy()


run = runs(measure, cells, "multiclass")
