"""What estimators have learned as figures, after scikit-learn's displays.

``from_estimator`` computes and draws a display; ``plot`` draws it again, on the axes ``ax`` if
given, else in a new figure. Drawing needs Matplotlib: ``pip install "bayesloss[plot]"``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from bayesloss.learning.data.estimator_base import axes_or_new
from bayesloss.learning.estimators.linkgistic import LinkgisticClassifier
from bayesloss.learning.estimators.monotone import ISGPRegressor
from bayesloss.learning.links.fitted_link import FittedLink

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 300


@dataclass
class LinkDisplay:
    """The probability of a class as a function of the score, with a posterior band.

    Attributes
    ----------
    scores : ndarray of shape (300,)
        Evenly spaced over the range of the training scores.
    probability, low, high : ndarray of shape (300,)
        The posterior mean of the probability, and the ends of its central posterior interval.
    name : str
        The class.
    ax_ : matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from bayesloss import LinkDisplay
    >>> score, p = np.array([-1.0, 0.0, 1.0]), np.array([0.2, 0.5, 0.8])
    >>> LinkDisplay(score, p, p - 0.1, p + 0.1, "spam").plot().ax_.get_ylabel()
    'probability of spam'
    """

    scores: NDArray[np.float64]
    probability: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    name: str
    ax_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_estimator(
        cls,
        estimator: LinkgisticClassifier,
        *,
        target: Any = None,
        level: float = 0.95,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the link of a fitted classifier.

        Parameters
        ----------
        estimator : LinkgisticClassifier
        target : label, optional
            The class to draw; needed if there are more than two.
        level : float, default=0.95
            The posterior probability of the band.
        ax : matplotlib Axes, optional

        Returns
        -------
        LinkDisplay

        Raises
        ------
        ValueError, ImportError
            If the class is unknown, or needed and not given; if Matplotlib is not installed.
        """
        check_is_fitted(estimator)
        link, name = _link_of(estimator, target)
        x = np.linspace(link.low, link.high, _POINTS)
        low, high = link.inverse_link_band(x, level)
        return cls(x, link.inverse_link(x), low, high, name).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the curve and its band, on the axes given or in a new figure."""
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
    """Data and a monotone regression: its curve, with bands for the curve and for new targets.

    Attributes
    ----------
    x, mean : ndarray of shape (n_points,)
        A grid of inputs, and the posterior mean of the curve there.
    curve, observation : tuple of two ndarray of shape (n_points,)
        Lower and upper ends of the bands for the curve and for new targets.
    level : float
        The probability of both bands.
    X, y : ndarray of shape (n,)
        The data.
    ax_ : matplotlib Axes

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

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    curve: tuple[NDArray[np.float64], NDArray[np.float64]]
    observation: tuple[NDArray[np.float64], NDArray[np.float64]]
    level: float
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    ax_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_estimator(
        cls,
        estimator: ISGPRegressor,
        X: ArrayLike,
        y: ArrayLike,
        *,
        level: float = 0.95,
        n_points: int = 200,
        ax: Axes | None = None,
    ) -> Self:
        """Draw a fitted regressor over the range of some data.

        Parameters
        ----------
        estimator : ISGPRegressor
        X, y : array-like of shape (n, 1) and (n,)
            Data to draw, those of the fit or others.
        level : float, default=0.95
        n_points : int, default=200
            Points of the grid, evenly spaced in the units of ``estimator.range_map_``.
        ax : matplotlib Axes, optional

        Returns
        -------
        MonotoneDisplay

        Raises
        ------
        ValueError, ImportError
            If X or y has another shape; if Matplotlib is not installed.
        """
        check_is_fitted(estimator)
        inputs, targets = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        if inputs.ndim != 2 or inputs.shape[1] != 1 or targets.shape != (len(inputs),):
            raise ValueError(
                f"expected X of shape (n, 1) and y of shape (n,), got {inputs.shape} and "
                f"{targets.shape}"
            )
        # Evenly spaced where the fit is: far-away inputs would leave the bulk few points.
        low, high = estimator.range_map_(torch.tensor([inputs.min(), inputs.max()])).tolist()
        even = torch.linspace(low, high, n_points, dtype=torch.float64)
        x = estimator.range_map_.inverse(even).numpy()
        grid: Any = x[:, None]
        if hasattr(estimator, "feature_names_in_"):
            import pandas as pd  # which whoever fitted with names has

            grid = pd.DataFrame(grid, columns=estimator.feature_names_in_)
        mean, curve = estimator.predict(grid), estimator.predict_interval(grid, level)
        observation = estimator.predict_interval(grid, level, of="observation")
        display = cls(x, np.asarray(mean), curve, observation, level, inputs[:, 0], targets)
        return display.plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw data, curve and bands, on the axes given or in a new figure."""
        self.ax_ = ax = axes_or_new(ax)
        share = f"{100 * self.level:g} %"
        ax.scatter(self.X, self.y, s=8, color="0.4", label="data")
        for ends, alpha, of in ((self.observation, 0.15, "new data"), (self.curve, 0.4, "curve")):
            ax.fill_between(self.x, *ends, alpha=alpha, color="C0", label=f"{share} of {of}")
        ax.plot(self.x, self.mean, color="C0", label="mean")
        ax.legend()
        return self
