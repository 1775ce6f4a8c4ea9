"""How reliable predicted probabilities are, drawn: a curve with its band, and their histogram."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._response import _get_response_values_binary

from bayesloss.learning.calibration.reliability import Reliability, positive_labels, reliability

Array = NDArray[np.float64]

_CURVE = 201  # points of the curve that is drawn


class ReliabilityDisplay:
    """A smooth reliability curve with its band, and the predictions' histogram in steps of 0.02.

    Made by :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    reliability : Reliability
    y_true, y_prob : ndarray of shape (n,)
        Labels 0 and 1, and predicted probabilities.
    name : str, optional
        The classifier's name, for the legend.

    Attributes
    ----------
    ax_, histogram_ax_, line_, band_, figure_ : matplotlib objects

    Notes
    -----
    Where the band leaves the diagonal, predictions are miscalibrated. Its level holds at each
    prediction by itself: of many predictions looked at, some leave by chance.

    If the diagonal is within the band everywhere, predictions need *not* be calibrated: the cases
    may be too few to tell. The upper end of ``reliability.calibration_error`` says how large the
    error may be. Its lower end shows nothing, for it is always above 0: no draw of a curve is the
    diagonal. The posterior leans towards sigmoids of the log odds, the more the fewer cases.

    Examples
    --------
    Overconfident predictions: the true log odds are 0.7 of those predicted, and the calibration
    error is 0.058. With 80 cases the diagonal is within the band everywhere.

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
        """Show how reliable a classifier is on cases that it was not trained on.

        Parameters
        ----------
        estimator : fitted classifier
            For two classes, with ``predict_proba``.
        X, y : array-like of shape (n, n_features) and (n,)
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
            If given, as many bins of equal width are drawn over the curve.
        name, ax : str and matplotlib Axes, optional
            The classifier's name for the legend, and where to draw.

        Returns
        -------
        ReliabilityDisplay

        Raises
        ------
        ImportError
            If Matplotlib is not installed.
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
        positive = positive_labels(y_true, pos_label).astype(np.float64)
        display = cls(found, positive, np.asarray(y_prob, dtype=np.float64), name)
        return display.plot(ax=ax, n_bins=n_bins)

    def plot(self, *, ax: Any = None, n_bins: int | None = None) -> "ReliabilityDisplay":
        """Draw curve, band and histogram, and bins if their number is given."""
        pyplot = _pyplot()
        if ax is None:
            _, ax = pyplot.subplots()
        p = np.linspace(self.y_prob.min(), self.y_prob.max(), _CURVE)
        curve = self.reliability.calibrator.predict_proba(p)[:, 1]
        low, high = self.reliability.calibrator.predict_interval(p, self.reliability.level)
        ax.plot([0, 1], [0, 1], ":", color="0.5", label="perfectly calibrated")
        label = "" if self.name is None else f"{self.name}, "
        error = self.reliability.calibration_error
        (self.line_,) = ax.plot(p, curve, label=f"{label}calibration error {error}")
        self.band_ = ax.fill_between(p, low, high, alpha=0.25, color=self.line_.get_color())
        if n_bins is not None:
            cell = np.minimum((self.y_prob * n_bins).astype(int), n_bins - 1)
            count, total, positive = (
                np.bincount(cell, values) for values in (None, self.y_prob, self.y_true)
            )
            full = count > 0
            mean, rate = total[full] / count[full], positive[full] / count[full]
            ax.plot(mean, rate, "o", color=self.line_.get_color(), label=f"{n_bins} bins")
        ax.set(ylabel="probability of the positive label", xlim=(0, 1), ylim=(0, 1))
        ax.legend(loc="upper left")
        below = ax.inset_axes([0, -0.28, 1, 0.2], sharex=ax)
        below.hist(self.y_prob, bins=50, range=(0, 1), color=self.line_.get_color())
        below.set(xlabel="predicted probability", ylabel="cases")
        ax.tick_params(labelbottom=False)
        self.ax_, self.histogram_ax_, self.figure_ = ax, below, ax.figure
        return self


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "drawing needs matplotlib: pip install 'bayesloss[plot]' brings it"
        ) from error
    return pyplot
