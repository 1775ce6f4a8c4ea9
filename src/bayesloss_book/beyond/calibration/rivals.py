"""Calibrators under one roof: ours, scikit-learn's, betacal's, and CalArena's from `probmetrics`.

Each is at its recommended setting. Where a method asks for probabilities, margins become such by
the logistic function; where it asks for scores, probabilities become log odds, as CalArena does.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from betacal import BetaCalibration
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from bayesloss import LinkCalibrator, SoftmaxCalibrator
from bayesloss.learning.calibration.calibrator_base import Scale
from bayesloss_book import Array
from bayesloss_book.rivals.baselines import SMALLEST

OURS = "link"


class Curve(Protocol):
    """A fitted calibrator."""

    def __call__(self, scores: Array) -> Array:
        """Probabilities of label 1, of shape (m,), from scores of shape (m,); or all, of (m, K)."""


class _Scores(ClassifierMixin, BaseEstimator):
    """A classifier whose only input is its own decision function, for scikit-learn to calibrate."""

    def fit(self, X: Array, y: NDArray[Any]) -> "_Scores":
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X: Array) -> Array:
        return X[:, 0] if X.shape[1] == 1 else X

    def predict(self, X: Array) -> Array:
        return self.classes_[X.argmax(axis=1) if X.shape[1] > 1 else (X[:, 0] > 0).astype(int)]


class _Link:
    """Ours, as it comes; with its band."""

    def __init__(self, scores: Array, y: Array, probability: bool) -> None:
        scale: Scale = "probability" if probability else "real"
        self.calibrator = LinkCalibrator(scale=scale).fit(scores, y)

    def __call__(self, scores: Array) -> Array:
        return self.calibrator.predict_proba(scores)[:, 1]


def _scikit_learn(method: str) -> Callable[..., Curve]:
    """Of many classes, which come as probabilities, each against the rest."""

    def fit(scores: Array, y: Array, probability: bool = True) -> Curve:
        def columns(values: Array) -> Array:
            odds = _log_odds(values, probability)
            return odds if odds.ndim == 2 else odds[:, None]

        X = columns(scores)
        model = CalibratedClassifierCV(FrozenEstimator(_Scores().fit(X, y)), method=method)
        model.fit(X, y)
        return lambda t: _like(t, model.predict_proba(columns(t)))

    return fit


def _beta(scores: Array, y: Array, probability: bool) -> Curve:
    model = BetaCalibration("abm").fit(_probabilities(scores, probability)[:, None], y)
    return lambda t: model.predict(_probabilities(t, probability)[:, None])


def _probmetrics(make: Callable[[Any], Any]) -> Callable[..., Curve]:
    def fit(scores: Array, y: Array, probability: bool = True) -> Curve:
        def columns(values: Array) -> Array:
            p = _probabilities(values, probability)
            return p if p.ndim == 2 else np.stack([1 - p, p], axis=1)

        model = make(_calarena()).fit(columns(scores), y.astype(np.int64))
        return lambda t: _like(t, np.asarray(model.predict_proba(columns(t))))

    return fit


def _like(scores: Array, p: Array) -> Array:
    """Of two classes, which have one score, the second's probability."""
    return p if scores.ndim == 2 else p[:, 1]


def _calarena() -> Any:
    try:
        from probmetrics import calibrators
    except ImportError as error:
        raise ImportError(
            "CalArena's calibrators are in the extra `calibrators`: pip install "
            "--require-hashes --no-deps -r requirements-extras.lock"
        ) from error
    return calibrators


def _named(name: str) -> Callable[[Any], Any]:
    return lambda calibrators: calibrators.get_calibrator(name)


_STANDARD: dict[str, Callable[[Array, Array, bool], Curve]] = {
    OURS: _Link,
    "none": lambda _, y, probability: lambda t: _probabilities(t, probability),
    "sigmoid": _scikit_learn("sigmoid"),
    "isotonic": _scikit_learn("isotonic"),
    "temperature": _scikit_learn("temperature"),
    "beta": _beta,
}
# CalArena's "platt-logits" is "sigmoid" above: it fails with scikit-learn 1.9. "affine" is the same
# without Platt's targets.
_EXTRA: dict[str, Callable[[Array, Array, bool], Curve]] = {
    "affine": _probmetrics(_named("affine-scaling")),
    "quadratic": _probmetrics(_named("quadratic-scaling")),
    "spline": _probmetrics(lambda calibrators: calibrators.MLISplineCalibrator()),
    "Venn-Abers": _probmetrics(_named("ivap")),
    "centred isotonic": _probmetrics(_named("cir")),
}
STANDARD = tuple(_STANDARD)
EXTRA = tuple(_EXTRA)
METHODS = (*STANDARD, *EXTRA)

_MANY_STANDARD: dict[str, Callable[[Array, NDArray[np.int64]], Curve]] = {
    OURS: lambda p, y: SoftmaxCalibrator(scale="probability").fit(p, y).predict_proba,
    "none": lambda p, y: lambda t: t,
    "sigmoid": _scikit_learn("sigmoid"),
    "isotonic": _scikit_learn("isotonic"),
}
_MANY_EXTRA: dict[str, Callable[[Array, NDArray[np.int64]], Curve]] = {
    "temperature": _probmetrics(_named("ts-mix")),
    "vector": _probmetrics(lambda c: c.VectorScalingCalibrator()),
    "structured vector": _probmetrics(_named("svs")),
    "structured matrix": _probmetrics(_named("sms")),
}
MANY_STANDARD = tuple(_MANY_STANDARD)
MANY_EXTRA = tuple(_MANY_EXTRA)
MANY = (*MANY_STANDARD, *MANY_EXTRA)


def fit(method: str, scores: Array, y: Array, probability: bool) -> Curve:
    """Fit one of `METHODS` to scores (n,): a curve from scores to probabilities of label 1."""
    return (_STANDARD | _EXTRA)[method](scores, y, probability)


def fit_many(method: str, p: Array, y: NDArray[np.int64]) -> Curve:
    """Fit one of `MANY` to probabilities (n, K): a map from probabilities to calibrated ones."""
    return (_MANY_STANDARD | _MANY_EXTRA)[method](p, y)


def _probabilities(scores: Array, probability: bool) -> Array:
    return scores if probability else expit(scores)


def _log_odds(scores: Array, probability: bool) -> Array:
    return logit(np.clip(scores, SMALLEST, 1 - SMALLEST)) if probability else scores
