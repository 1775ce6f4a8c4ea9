"""Displays of what estimators have learned, after scikit-learn's.

``from_estimator`` computes and draws, ``plot`` draws again: on ``ax`` if given, else in a new
figure. Drawing needs Matplotlib, which the extra ``plot`` brings.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils._response import _get_response_values_binary
from sklearn.utils.validation import check_is_fitted

from bayesloss.arrays import Array
from bayesloss.learning.calibration.reliability import PredictedCases, Reliability, reliability
from bayesloss.learning.estimators.linkgistic import LinkgisticClassifier
from bayesloss.learning.estimators.monotone import ISGPRegressor, as_column
from bayesloss.learning.links.fitted_link import FittedLink

_DIAGONAL = "perfectly calibrated"


@dataclass
class LinkDisplay:
    """The probability of a class as a function of the score, with a posterior band.

    Attributes
    ----------
    scores, probability, low, high : ndarray of shape (300,)
        A grid over the training scores, the posterior mean of the probability there, and its band.
    name, ax_ : str, matplotlib Axes
        The class, and where it is drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesloss import LinkDisplay
    >>> score, p = np.array([-1.0, 0.0, 1.0]), np.array([0.2, 0.5, 0.8])
    >>> LinkDisplay(score, p, p - 0.1, p + 0.1, "spam").plot().ax_.get_ylabel()
    'probability of spam'
    """

    scores: Array
    probability: Array
    low: Array
    high: Array
    name: str

    @classmethod
    def from_estimator(
        cls,
        estimator: LinkgisticClassifier,
        *,
        target: Any = None,
        level: float = 0.95,
        ax: Any = None,
    ) -> Self:
        """Draw the link of a fitted classifier; return the display.

        Parameters
        ----------
        estimator, ax : LinkgisticClassifier, optional matplotlib Axes
        target : label, optional
            The class to draw; needed if there are more than two.
        level : float, default=0.95
            The probability of the band.

        Raises
        ------
        ValueError, ImportError
            If ``target`` is unknown or missing; if Matplotlib is not installed.
        """
        check_is_fitted(estimator)
        link, name = _link_of(estimator, target)
        scores = np.linspace(link.low, link.high, 300)
        low, high = link.inverse_link_band(scores, level)
        display = cls(
            scores=scores, probability=link.inverse_link(scores), low=low, high=high, name=name
        )
        return display.plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the curve and its band."""
        self.ax_ = ax = _axes_or_new(ax)
        ax.fill_between(self.scores, self.low, self.high, alpha=0.3, linewidth=0)
        ax.plot(self.scores, self.probability)
        ax.set(xlabel="score", ylabel=f"probability of {self.name}", ylim=(0, 1))
        return self


def _link_of(estimator: LinkgisticClassifier, target: Any) -> tuple[FittedLink, str]:
    classes = list(estimator.classes_)
    if len(classes) == 2:
        if target is not None and target != classes[1]:
            raise ValueError(f"expected target={classes[1]!r}, which has the link, got {target!r}")
        return estimator.link_, str(classes[1])
    if target not in classes:
        raise ValueError(f"expected a target of {classes}, got {target!r}")
    return estimator.links_[classes.index(target)], str(target)


@dataclass
class MonotoneDisplay:
    """A monotone regression and its data, with bands for the curve and for new targets.

    Attributes
    ----------
    x, mean : ndarray of shape (n_points,)
        A grid of inputs, and the posterior mean of the curve there.
    curve, observation, level : two pairs of ndarray of shape (n_points,), float
        Ends of the bands for the curve and for new targets, and the probability of both.
    X, y, ax_ : ndarray of shape (n,), ndarray of shape (n,), matplotlib Axes
        The data, and where they are drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesloss import ISGPRegressor, MonotoneDisplay
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> y = np.sqrt(X[:, 0]) + 0.1 * np.sin(40 * X[:, 0])
    >>> display = MonotoneDisplay.from_estimator(ISGPRegressor(n_basis=16).fit(X, y), X, y)
    >>> bool((display.curve[0] < display.mean).all())
    True
    """

    x: Array
    mean: Array
    curve: tuple[Array, Array]
    observation: tuple[Array, Array]
    level: float
    X: Array
    y: Array

    @classmethod
    def from_estimator(
        cls,
        estimator: ISGPRegressor,
        X: ArrayLike,
        y: ArrayLike,
        *,
        level: float = 0.95,
        n_points: int = 200,
        ax: Any = None,
    ) -> Self:
        """Draw a fitted regressor over the range of some data; return the display.

        Parameters
        ----------
        estimator, X, y, ax : ISGPRegressor, array-like of shape (n, 1) and (n,), optional Axes
            The data to draw need not be those of the fit; X may have the shape (n,), too.
        level : float, default=0.95
        n_points : int, default=200
            Size of the grid, which is even in the units of ``estimator.range_map_``.

        Raises
        ------
        ValueError, ImportError
            If X or y has another shape; if Matplotlib is not installed.
        """
        check_is_fitted(estimator)
        inputs = np.asarray(as_column(X), dtype=np.float64)
        targets = np.asarray(y, dtype=np.float64)
        if inputs.ndim != 2 or inputs.shape[1] != 1 or targets.shape != (len(inputs),):
            shapes = f"{inputs.shape} and {targets.shape}"
            raise ValueError(f"expected X of shape (n, 1) and y of shape (n,), got {shapes}")
        # Evenly spaced where the fit is: far-away inputs would leave the bulk few points.
        low, high = estimator.range_map_(np.array([inputs.min(), inputs.max()])).tolist()
        even = torch.linspace(low, high, n_points, dtype=torch.float64).numpy()
        x = estimator.range_map_.inverse(even)
        grid: Any = x[:, None]
        if hasattr(estimator, "feature_names_in_"):
            import pandas as pd  # which whoever fitted with names has

            grid = pd.DataFrame(grid, columns=estimator.feature_names_in_)
        display = cls(
            x=x,
            mean=np.asarray(estimator.predict(grid)),
            curve=estimator.predict_interval(grid, level),
            observation=estimator.predict_interval(grid, level, of="observation"),
            level=level,
            X=inputs[:, 0],
            y=targets,
        )
        return display.plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw data, curve and bands."""
        self.ax_ = ax = _axes_or_new(ax)
        share = f"{100 * self.level:g} %"
        ax.scatter(self.X, self.y, s=8, color="0.4", label="data")
        low, high = self.observation
        ax.fill_between(self.x, low, high, alpha=0.15, color="C0", label=f"{share} of new data")
        low, high = self.curve
        ax.fill_between(self.x, low, high, alpha=0.4, color="C0", label=f"{share} of curve")
        ax.plot(self.x, self.mean, color="C0", label="mean")
        ax.legend()
        return self


@dataclass
class ReliabilityDisplay:
    """A smooth reliability curve with its band, and a histogram of the predictions.

    Made by :meth:`from_estimator` or :meth:`from_predictions`. Drawing sets the attributes ``ax_``,
    ``histogram_ax_``, ``line_``, ``band_`` and ``figure_``.

    Where the band leaves the diagonal, predictions are miscalibrated. Its level holds at each
    prediction by itself: of many, some leave by chance.

    A band that contains the diagonal everywhere does *not* show calibration: there may be too few
    cases to tell. The upper end of ``reliability.calibration_error`` says how large the error may
    be. Its lower end is always above 0, as no posterior curve is exactly the diagonal, and shows
    nothing. With few cases the posterior leans towards sigmoids of the log odds.

    Parameters
    ----------
    reliability : Reliability
    y_true, y_prob : ndarray of shape (n,)
        Labels 0 and 1, and predicted probabilities.
    name, sample_weight : str and ndarray of shape (n,), optional
        The classifier's name for the legend, and how many times each case counts.

    Examples
    --------
    Overconfident predictions, with a calibration error of 0.058:

    >>> import numpy as np
    >>> from scipy.special import expit, logit
    >>> from bayesloss import ReliabilityDisplay, reliability
    >>> for n in (80, 10_000):
    ...     rng = np.random.default_rng(0)
    ...     p = rng.uniform(0.01, 0.99, n)
    ...     y = rng.random(n) < expit(0.7 * logit(p))
    ...     found = reliability(y, p)
    ...     print(f"{n} cases: error up to {found.calibration_error.high:.2f}")
    80 cases: error up to 0.19
    10000 cases: error up to 0.07
    >>> drawn = ReliabilityDisplay(found, y, p).plot(n_bins=10)  # doctest: +SKIP
    """

    reliability: Reliability
    y_true: Array
    y_prob: Array
    name: str | None = None
    sample_weight: Array | None = None

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, *, pos_label: Any = None, **options: Any
    ) -> Self:
        """Show how reliable a classifier is on cases it was not trained on; return the display.

        Parameters
        ----------
        estimator, X, y : fitted classifier, inputs, and labels of shape (n,)
            The classifier has two classes and ``predict_proba``.
        pos_label : int, float, bool or str, default=None
            None for ``estimator.classes_[1]``.
        **options
            As for :meth:`from_predictions`.
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
    ) -> Self:
        """Show how reliable predicted probabilities are; return the display.

        Parameters
        ----------
        y_true, y_prob, sample_weight, groups, pos_label, level
            As for :func:`reliability`.
        n_bins : int, optional
            If given, so many bins of equal width are drawn over the curve.
        name, ax : str and matplotlib Axes, optional
            The classifier's name for the legend, and where to draw.
        """
        fitted = reliability(
            y_true,
            y_prob,
            sample_weight=sample_weight,
            groups=groups,
            pos_label=pos_label,
            level=level,
        )
        cases = PredictedCases.of(y_true, y_prob, sample_weight, pos_label)
        display = cls(
            reliability=fitted,
            y_true=cases.y,
            y_prob=cases.p,
            name=name,
            sample_weight=cases.weight,
        )
        return display.plot(ax=ax, n_bins=n_bins)

    def plot(self, *, ax: Any = None, n_bins: int | None = None) -> Self:
        """Draw curve, band and histogram, and bins if their number, at least 1, is given."""
        if n_bins is not None and n_bins < 1:
            raise ValueError(f"expected n_bins of at least 1, got {n_bins}")
        self.ax_ = ax = _axes_or_new(ax)
        p = np.linspace(self.y_prob.min(), self.y_prob.max(), 201)
        curve = self.reliability.calibrator.predict_proba(p)[:, 1]
        low, high = self.reliability.calibrator.predict_interval(p, self.reliability.level)
        another = _DIAGONAL in ax.get_legend_handles_labels()[1]
        if not another:
            ax.plot([0, 1], [0, 1], ":", color="0.5", label=_DIAGONAL)
        label = "" if self.name is None else f"{self.name}, "
        error = self.reliability.calibration_error
        (self.line_,) = ax.plot(p, curve, label=f"{label}calibration error {error}")
        color = self.line_.get_color()
        self.band_ = ax.fill_between(p, low, high, alpha=0.25, color=color)
        weight = np.ones(len(self.y_prob)) if self.sample_weight is None else self.sample_weight
        if n_bins is not None:
            self._draw_bins(n_bins, weight, color)
        ax.set(ylabel="probability of the positive label", xlim=(0, 1), ylim=(0, 1))
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1))
        if another:  # over its histogram
            below = ax.child_axes[-1]
            alpha = 0.5
        else:
            below = ax.inset_axes([0, -0.28, 1, 0.2], sharex=ax)
            alpha = 1.0
        below.hist(self.y_prob, 50, range=(0, 1), weights=weight, color=color, alpha=alpha)
        below.set(xlabel="predicted probability", ylabel="cases")
        ax.tick_params(labelbottom=False)
        self.histogram_ax_ = below
        self.figure_ = ax.figure
        return self

    def _draw_bins(self, n_bins: int, weight: Array, color: Any) -> None:
        """A point for each bin with cases, at its mean prediction and its rate of positives."""
        cell = np.minimum((self.y_prob * n_bins).astype(int), n_bins - 1)
        count = np.bincount(cell, weight)
        total = np.bincount(cell, weight * self.y_prob)
        positive = np.bincount(cell, weight * self.y_true)
        full = count > 0
        mean = total[full] / count[full]
        rate = positive[full] / count[full]
        self.ax_.plot(mean, rate, "o", color=color, label=f"{n_bins} bins")


def _axes_or_new(ax: Any) -> Any:
    """These Matplotlib axes, or those of a new figure."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("drawing needs Matplotlib: pip install matplotlib") from error
    if ax is not None:
        return ax
    _, axes = pyplot.subplots(layout="constrained")
    return axes
