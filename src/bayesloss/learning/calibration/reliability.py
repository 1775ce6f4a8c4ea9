r"""Reliability of predicted probabilities, with its doubt.

A reliability curve is the true probability r(p) = P(y = 1 | p) of the cases that are predicted p.
Ten bins estimate it with noise that nobody sees; here it is a
:class:`~bayesloss.LinkCalibrator`'s curve with its posterior. Whatever is a functional of the curve
has a posterior, too. With d the divergence of a proper loss and H its Bayes risk,
the loss that is expected of the cases at hand is the sum of

    calibration error   E d(r(p), p)     and     refinement   E H(r(p)):

what calibration could save, and what only a better classifier could. For the Brier score
d(r, p) = (r - p)^2 and H(r) = r (1 - r); for the log loss d is Kullback and Leibler's divergence
and H the entropy, in nats.

What may be concluded from a band: see :class:`ReliabilityDisplay`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy
from sklearn.utils._response import _get_response_values_binary
from sklearn.utils.validation import _check_pos_label_consistency, column_or_1d

from bayesloss.learning.calibration.link_calibrator import LinkCalibrator

__all__ = ["Credible", "Reliability", "ReliabilityDisplay", "reliability"]

Array = NDArray[np.float64]

_CURVE = 201  # points of the curve that is drawn
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
    calibrator : LinkCalibrator
        Its curve is the reliability curve.
    level : float
        Of the credible intervals.
    calibration_error : Credible
        The root mean square of r(p) - p.
    calibration_log_loss, calibration_brier : Credible
        What recalibration would save, of the log loss in nats, and of the Brier score.
    refinement_log_loss, refinement_brier : Credible
        What would be left: the mean Bayes risk of r(p).

    Examples
    --------
    >>> from bayesloss import reliability
    >>> found = reliability([0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.3, 0.6, 0.7, 0.9])
    >>> type(found).__name__
    'Reliability'
    >>> bool(found.calibration_error.high > 0.1)  # six cases cannot tell
    True
    """

    calibrator: LinkCalibrator
    level: float
    calibration_error: Credible
    calibration_log_loss: Credible
    calibration_brier: Credible
    refinement_log_loss: Credible
    refinement_brier: Credible


def reliability(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    pos_label: Any = None,
    level: float = 0.95,
) -> Reliability:
    """How reliable predicted probabilities are, and how sure that is.

    Parameters
    ----------
    y_true : array-like of shape (n,)
        Labels of two kinds, of cases that had no part in the predictions.
    y_prob : array-like of shape (n,)
        Predicted probabilities of the positive label.
    sample_weight, groups : array-like of shape (n,), optional
        As for :meth:`LinkCalibrator.fit`.
    pos_label : int, float, bool or str, default=None
        The positive label; None for 1, with labels {0, 1} or {-1, 1}.
    level : float, default=0.95
        Of the credible intervals.

    Returns
    -------
    Reliability

    Raises
    ------
    ValueError
        As :meth:`LinkCalibrator.fit` does, or if the positive label is not among the labels.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesloss import reliability
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(4000)
    >>> y = rng.random(4000) < p**2  # too high
    >>> found = reliability(y, p)
    >>> round(found.calibration_error.mean, 2)  # sqrt(1/30) = 0.18
    0.18
    """
    labels = column_or_1d(y_true)
    positive = labels == _check_pos_label_consistency(pos_label, labels)
    p = np.asarray(y_prob, dtype=np.float64)
    calibrator = LinkCalibrator(scale="probability").fit(
        p, positive.astype(int), sample_weight, groups
    )
    weight = np.ones(len(p)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    if len(p) > _CASES:
        order = np.argsort(p)
        share = np.cumsum(weight[order]) / weight.sum()
        steps = (np.arange(_CASES) + 0.5) / _CASES
        p = p[order][np.searchsorted(share, steps).clip(max=len(p) - 1)]
        weight = np.ones(_CASES)
    r = calibrator.sample_proba(p)

    def credible(values: Array, root: bool = False) -> Credible:
        means = values @ weight / weight.sum()
        means = np.sqrt(means) if root else means
        low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
        return Credible(float(means.mean()), float(low), float(high))

    square = (r - p) ** 2
    with np.errstate(divide="ignore"):
        kullback = xlogy(r, r / p) + xlogy(1 - r, (1 - r) / (1 - p))
    entropy = -xlogy(r, r) - xlogy(1 - r, 1 - r)
    return Reliability(
        calibrator=calibrator,
        level=level,
        calibration_error=credible(square, root=True),
        calibration_log_loss=credible(kullback),
        calibration_brier=credible(square),
        refinement_log_loss=credible(entropy),
        refinement_brier=credible(r * (1 - r)),
    )


class ReliabilityDisplay:
    """A smooth reliability curve with its band, and the predictions' histogram in steps of 0.02.

    Make it with :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    reliability : Reliability
    y_true, y_prob : ndarray of shape (n,)
        Labels 0 and 1, and predicted probabilities.
    name : str, optional
        Of the classifier, for the legend.

    Attributes
    ----------
    reliability : Reliability
    ax_, histogram_ax_ : matplotlib Axes
    line_ : matplotlib Artist
    band_ : matplotlib Artist
    figure_ : matplotlib Figure

    Notes
    -----
    What may be concluded? Where the band leaves the diagonal the predictions are miscalibrated, as
    far as one level holds at one prediction: of many predictions looked at, some leave by chance.

    A curve that has the diagonal within its band everywhere need *not* be calibrated. The cases are
    too few to tell it from the diagonal, and that is all. Ask how large the error may be: the upper
    end of ``reliability.calibration_error`` answers. Its lower end is above 0 whatever the truth,
    since no draw of a curve is the diagonal itself, and so shows nothing.

    The posterior leans towards curves that are sigmoids of the log odds, the more the fewer cases.

    Examples
    --------
    Predictions that are too sure of themselves: the true log odds are 0.7 of those predicted, and
    the calibration error is 0.058. With 80 cases the diagonal is within the band everywhere.

    >>> import numpy as np
    >>> from scipy.special import expit, logit
    >>> from bayesloss import ReliabilityDisplay, reliability
    >>> for n in (80, 10_000):
    ...     rng = np.random.default_rng(0)
    ...     p = rng.uniform(0.01, 0.99, n)
    ...     y = rng.random(n) < expit(0.7 * logit(p))
    ...     found = reliability(y, p)
    ...     at = np.linspace(p.min(), p.max(), 50)
    ...     low, high = found.calibrator.predict_interval(at)
    ...     within = bool(((low <= at) & (at <= high)).all())
    ...     print(f"{within}, error up to {found.calibration_error.high:.2f}")
    True, error up to 0.19
    False, error up to 0.07
    >>> drawn = ReliabilityDisplay(found, y, p).plot(n_bins=10)  # doctest: +SKIP
    """

    def __init__(
        self, reliability: Reliability, y_true: Array, y_prob: Array, name: str | None = None
    ) -> None:
        self.reliability = reliability
        self.y_true = y_true
        self.y_prob = y_prob
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, *, pos_label: Any = None, **options: Any
    ) -> "ReliabilityDisplay":
        """Predict cases that the classifier was not trained on, and show how reliable that is.

        Parameters
        ----------
        estimator : fitted classifier
            For two classes, with ``predict_proba``.
        X : array-like
        y : array-like of shape (n,)
        pos_label : int, float, bool or str, default=None
            None for ``estimator.classes_[1]``.
        **options
            As for :meth:`from_predictions`.

        Returns
        -------
        ReliabilityDisplay
        """
        p, positive = _get_response_values_binary(
            estimator, X, response_method="predict_proba", pos_label=pos_label
        )
        options.setdefault("name", type(estimator).__name__)
        return cls.from_predictions(y, p, pos_label=positive, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        pos_label: Any = None,
        level: float = 0.95,
        n_bins: int | None = None,
        name: str | None = None,
        ax: Any = None,
    ) -> "ReliabilityDisplay":
        """Show how reliable predicted probabilities are.

        Parameters
        ----------
        y_true, y_prob, sample_weight, groups, pos_label, level
            As for :func:`reliability`.
        n_bins : int, optional
            Bins of equal width that are laid over the curve; none by default.
        name : str, optional
            Of the classifier, for the legend.
        ax : matplotlib Axes, optional

        Returns
        -------
        ReliabilityDisplay

        Raises
        ------
        ImportError
            If matplotlib is not there.
        """
        _pyplot()
        found = reliability(
            y_true,
            y_prob,
            sample_weight=sample_weight,
            groups=groups,
            pos_label=pos_label,
            level=level,
        )
        labels = column_or_1d(y_true)
        positive = labels == _check_pos_label_consistency(pos_label, labels)
        display = cls(found, positive.astype(float), np.asarray(y_prob, dtype=np.float64), name)
        return display.plot(ax=ax, n_bins=n_bins)

    def plot(self, *, ax: Any = None, n_bins: int | None = None) -> "ReliabilityDisplay":
        """Draw curve, band and histogram, and bins if a number of them is given."""
        pyplot = _pyplot()
        if ax is None:
            _, ax = pyplot.subplots()
        p = self._grid()
        curve = self.reliability.calibrator.predict_proba(p)[:, 1]
        low, high = self.reliability.calibrator.predict_interval(p, self.reliability.level)
        ax.plot([0, 1], [0, 1], ":", color="0.5", label="perfectly calibrated")
        label = "" if self.name is None else f"{self.name}, "
        error = self.reliability.calibration_error
        (self.line_,) = ax.plot(p, curve, label=f"{label}calibration error {error}")
        self.band_ = ax.fill_between(p, low, high, alpha=0.25, color=self.line_.get_color())
        if n_bins is not None:
            cell = np.minimum((self.y_prob * n_bins).astype(int), n_bins - 1)
            count = np.bincount(cell, minlength=n_bins)
            full = count > 0
            mean, rate = (
                np.bincount(cell, values, minlength=n_bins)[full] / count[full]
                for values in (self.y_prob, self.y_true)
            )
            ax.plot(mean, rate, "o", color=self.line_.get_color(), label=f"{n_bins} bins")
        ax.set(ylabel="probability of the positive label", xlim=(0, 1), ylim=(0, 1))
        ax.legend(loc="upper left")
        below = ax.inset_axes([0, -0.28, 1, 0.2], sharex=ax)
        below.hist(self.y_prob, bins=50, range=(0, 1), color=self.line_.get_color())
        below.set(xlabel="predicted probability", ylabel="cases")
        ax.tick_params(labelbottom=False)
        self.ax_, self.histogram_ax_, self.figure_ = ax, below, ax.figure
        return self

    def _grid(self) -> Array:
        """Predictions from the least to the largest, evenly in probability."""
        return np.linspace(float(self.y_prob.min()), float(self.y_prob.max()), _CURVE)


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "drawing needs matplotlib: pip install 'bayesloss[plot]' brings it"
        ) from error
    return pyplot
