r"""Reliability of predicted probabilities, with its uncertainty.

A reliability curve is the true probability r(p) = P(y = 1 | p) of cases that are predicted p. Here
it is the curve of a :class:`~bayesloss.LinkCalibrator`, so that its functionals have posteriors,
too. With d the divergence of a proper loss and H its Bayes risk, the expected loss is the sum of

    calibration error   E d(r(p), p)     and     refinement   E H(r(p)):

what calibration could save, and what only a better classifier could. For the Brier score
d(r, p) = (r - p)^2 and H(r) = r (1 - r); for the log loss d is Kullback and Leibler's divergence
and H the entropy, in nats. What a band tells: :class:`bayesloss.ReliabilityDisplay`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy
from sklearn.utils.validation import _check_pos_label_consistency, check_consistent_length

from bayesloss.arrays import (
    Array,
    as_array,
    as_scores,
    different_names,
    one_label_a_row,
    positions,
    read_distributions,
    read_probabilities,
    real_numbers,
)
from bayesloss.learning.calibration.link_calibrator import LinkCalibrator
from bayesloss.learning.data.checks import check_weights
from bayesloss.learning.data.estimator_base import check_level
from bayesloss.threads import one_thread

_CASES = 4096  # that functionals are averaged over; more are thinned evenly


@dataclass(frozen=True)
class Credible:
    """A posterior mean and the ends of a central credible interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """Show the mean, and the interval in brackets."""
        return f"{self.mean:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True)
class Reliability:
    """The reliability curve of predicted probabilities and what follows from it.

    Attributes
    ----------
    calibrator, level : LinkCalibrator, float
        Its curve is the reliability curve; the probability of the credible intervals.
    calibration_error, calibration_log_loss, calibration_brier : Credible
        The root mean square of r(p) - p; what recalibration would save, in nats and Brier score.
    refinement_log_loss, refinement_brier : Credible
        What would be left: the mean Bayes risk of r(p).

    Examples
    --------
    >>> from bayesloss import reliability
    >>> report = reliability([0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.3, 0.6, 0.7, 0.9])
    >>> type(report).__name__, bool(report.calibration_error.high > 0.1)  # six cases cannot tell
    ('Reliability', True)
    """

    calibrator: LinkCalibrator
    level: float
    calibration_error: Credible
    calibration_log_loss: Credible
    calibration_brier: Credible
    refinement_log_loss: Credible
    refinement_brier: Credible

    def __repr__(self) -> str:
        return f"Reliability(calibration_error={self.calibration_error}, level={self.level})"


@one_thread()
def reliability(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    pos_label: Any = None,
    classes: ArrayLike | None = None,
    level: float = 0.95,
) -> Reliability:
    """How reliable predicted probabilities are, and how sure that is: a :class:`Reliability`.

    Parameters
    ----------
    y_true, y_prob : array-like of shape (n,), array-like of shape (n,) or (n, K)
        Labels of two kinds, of cases that the classifier was not trained on, and predicted
        probabilities of the positive label; or labels of K > 2 classes, and probabilities of each.
    sample_weight, groups : array-like of shape (n,), optional
        As for :meth:`LinkCalibrator.fit`.
    pos_label : int, float, bool or str, default=None
        The positive label; None for 1, with labels {0, 1} or {-1, 1}. Of many classes the one that
        is told from the others; None for the top label: whether the most probable class is right.
    classes : array-like of shape (K,), default=None
        The labels of the columns; None for those of ``y_true``, sorted.
    level : float, default=0.95
        Of the credible intervals.

    Raises
    ------
    ValueError
        As :meth:`LinkCalibrator.fit` does, if the level is not in (0, 1), if the positive label is
        not among the labels, or columns and classes differ in number.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesloss import reliability
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(4000)
    >>> report = reliability(rng.random(4000) < p**2, p)  # predictions are too high
    >>> round(report.calibration_error.mean, 2)  # sqrt(1/30) = 0.18
    0.18
    """
    check_level(level)
    cases = PredictedCases.of(y_true, y_prob, sample_weight, pos_label, classes)
    p = cases.p
    weight = cases.weight
    calibrator = LinkCalibrator(scale="probability").fit(p, cases.y.astype(int), weight, groups)
    if len(p) > _CASES:
        order = np.argsort(p)
        share = np.cumsum(weight[order]) / weight.sum()
        steps = (np.arange(_CASES) + 0.5) / _CASES
        p = p[order][np.searchsorted(share, steps).clip(max=len(p) - 1)]
        weight = np.ones(_CASES)
    r = calibrator.sample_proba(p)

    def credible(values: Array, power: float = 1) -> Credible:
        """Of the power of the cases' weighted mean; values are of shape (256, n)."""
        means = (values @ weight / weight.sum()) ** power
        low = means.min()
        high = means.max()
        if high < np.inf:
            low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
        return Credible(float(means.mean()), float(low), float(high))

    square = (r - p) ** 2
    entropy = -xlogy(r, r) - xlogy(1 - r, 1 - r)
    kullback = -xlogy(r, p) - xlogy(1 - r, 1 - p) - entropy
    return Reliability(
        calibrator=calibrator,
        level=level,
        calibration_error=credible(square, power=0.5),
        calibration_log_loss=credible(kullback),
        calibration_brier=credible(square),
        refinement_log_loss=credible(entropy),
        refinement_brier=credible(r * (1 - r)),
    )


@dataclass(frozen=True)
class PredictedCases:
    """Labels 0 and 1, predicted probabilities of 1, and how many times each case counts."""

    y: Array
    p: Array
    weight: Array

    @classmethod
    def of(
        cls,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        sample_weight: ArrayLike | None,
        pos_label: Any,
        classes: ArrayLike | None = None,
    ) -> "PredictedCases":
        """Those given, after the checks that calibrators make."""
        labels = one_label_a_row(y_true)
        probabilities = as_array(y_prob)
        if probabilities.ndim == 2 and probabilities.shape[1] > 2:
            hits = _Hits.of(labels, real_numbers(probabilities, "probabilities"), classes)
            return hits.against_the_rest(check_weights(sample_weight, labels), pos_label)
        p = read_probabilities(as_scores(probabilities).astype(np.float64))
        check_consistent_length(p, labels)
        weight = check_weights(sample_weight, p)
        kinds = np.unique(labels[weight > 0])
        if len(kinds) > 2:
            raise ValueError(
                f"expected labels of two kinds first, then probabilities, got {len(kinds)} kinds"
            )
        positive = _check_pos_label_consistency(pos_label, labels)
        if pos_label is not None and positive not in kinds.tolist():
            raise ValueError(f"expected pos_label among {kinds.tolist()}, got {positive!r}")
        return cls(y=(labels == positive).astype(np.float64), p=p, weight=weight)


@dataclass(frozen=True)
class _Hits:
    """The column of each case's class, and probabilities of all."""

    classes: NDArray
    codes: NDArray
    p: Array

    @classmethod
    def of(cls, labels: NDArray, rows: Array, classes: ArrayLike | None) -> "_Hits":
        check_consistent_length(rows, labels)
        names = np.unique(labels) if classes is None else np.asarray(classes)
        K = rows.shape[1]
        if names.shape != (K,):
            hint = ": name those of the columns by classes=" if classes is None else ""
            raise ValueError(
                f"expected {K} classes, as many as columns, got shape {names.shape}{hint}"
            )
        names = different_names(names, K, "classes")
        return cls(names, positions(names, labels, "labels"), read_distributions(rows))

    def against_the_rest(self, weight: Array, pos_label: Any) -> "PredictedCases":
        """Of a class whether it is the true one; of None whether the most probable one is."""
        if pos_label is None:
            top = self.p.argmax(axis=1)
            hit = top == self.codes
            p = self.p.max(axis=1)
            what = "the most probable class right"
        else:
            k = positions(self.classes, np.array([pos_label]), "pos_label")[0]
            hit = self.codes == k
            p = self.p[:, k]
            what = f"of class {pos_label}"
        n_hits = int(hit[weight > 0].sum())
        if n_hits in (0, int((weight > 0).sum())):
            raise ValueError(
                f"expected some cases {what} and some not, got {n_hits} of "
                f"{int((weight > 0).sum())}"
            )
        return PredictedCases(y=hit.astype(np.float64), p=p, weight=weight)
