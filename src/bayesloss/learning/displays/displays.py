"""Displays of what estimators have learned, after scikit-learn's.

``from_estimator`` computes and draws, ``plot`` draws again: on ``ax`` if given, else in a new
figure. Drawing needs Matplotlib, which the extra ``plot`` brings.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bayesloss.arrays import Array, as_array
from bayesloss.learning.estimators.linkgistic import LinkgisticClassifier
from bayesloss.learning.estimators.monotone import ISGPRegressor, as_column
from bayesloss.learning.links.fitted_link import FittedLink


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
        self.ax_ = ax = axes_or_new(ax)
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
        inputs = as_array(as_column(X)).astype(np.float64)
        targets = as_array(y).astype(np.float64)
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
        self.ax_ = ax = axes_or_new(ax)
        share = f"{100 * self.level:g} %"
        ax.scatter(self.X, self.y, s=8, color="0.4", label="data")
        low, high = self.observation
        ax.fill_between(self.x, low, high, alpha=0.15, color="C0", label=f"{share} of new data")
        low, high = self.curve
        ax.fill_between(self.x, low, high, alpha=0.4, color="C0", label=f"{share} of curve")
        ax.plot(self.x, self.mean, color="C0", label="mean")
        ax.legend()
        return self


def import_pyplot() -> Any:
    """Matplotlib's pyplot, or an ImportError that says what to install."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("drawing needs Matplotlib: pip install matplotlib") from error
    return pyplot


def axes_or_new(ax: Any) -> Any:
    """These Matplotlib axes, or those of a new figure."""
    pyplot = import_pyplot()
    if ax is not None:
        return ax
    _, axes = pyplot.subplots(layout="constrained")
    return axes
