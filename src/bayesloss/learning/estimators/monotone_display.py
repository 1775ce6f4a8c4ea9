"""A picture of a monotone regression: data, curve and bands, after scikit-learn's displays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from bayesloss.learning.estimators.monotone import ISGPRegressor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MonotoneDisplay"]


@dataclass
class MonotoneDisplay:
    """The fitted curve with the band of nu and, around it, that of new targets.

    Make one by :meth:`from_estimator`; :meth:`plot` draws it again elsewhere. Drawing needs
    matplotlib: ``pip install "bayesloss[plot]"``.

    Attributes
    ----------
    x, mean : ndarray of shape (n_points,)
        The posterior mean of nu on a grid.
    curve, observation : tuple of two ndarray of shape (n_points,)
        Lower and upper end of both bands.
    level : float
        Of both.
    X, y : ndarray of shape (n,)
        The data.
    ax_ : matplotlib Axes
        Where it was drawn last.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesloss import ISGPRegressor, MonotoneDisplay
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> y = np.sqrt(X[:, 0]) + 0.1 * np.sin(40 * X[:, 0])
    >>> model = ISGPRegressor(n_basis=16).fit(X, y)
    >>> display = MonotoneDisplay.from_estimator(model, X, y)
    >>> low, high = display.curve
    >>> bool((low < display.mean).all() and (display.mean < high).all())
    True
    """

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    curve: tuple[NDArray[np.float64], NDArray[np.float64]]
    observation: tuple[NDArray[np.float64], NDArray[np.float64]]
    level: float
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    ax_: Axes = field(init=False, repr=False)

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
    ) -> MonotoneDisplay:
        """Draw a fitted regressor over the range of some data.

        Parameters
        ----------
        estimator : ISGPRegressor
            Fitted.
        X : array-like of shape (n, 1)
        y : array-like of shape (n,)
            Data to draw, those of the fit or others.
        level : float, default=0.95
            Of the bands.
        n_points : int, default=200
            Points of the grid: evenly spaced in the units of ``estimator.range_map_``.
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure.

        Returns
        -------
        MonotoneDisplay

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If X has another number of columns than one.
        """
        check_is_fitted(estimator)
        _pyplot()
        places, targets = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        if places.ndim != 2 or places.shape[1] != 1 or targets.shape != (len(places),):
            raise ValueError(
                f"expected X of shape (n, 1) and y of shape (n,), got {places.shape} and "
                f"{targets.shape}"
            )
        # Evenly spaced where the fit is: far-away inputs would leave the bulk few points.
        span = torch.from_numpy(np.array([places.min(), places.max()]))
        low, high = estimator.range_map_(span).tolist()
        even = torch.linspace(low, high, n_points, dtype=torch.float64)
        grid = estimator.range_map_.inverse(even).numpy()
        inputs: Any = grid[:, None]
        if hasattr(estimator, "feature_names_in_"):
            import pandas as pd  # which whoever fitted with names has

            inputs = pd.DataFrame(inputs, columns=estimator.feature_names_in_)
        mean = estimator.predict(inputs)
        curve = estimator.predict_interval(inputs, level)
        observation = estimator.predict_interval(inputs, level, of="observation")
        display = cls(grid, np.asarray(mean), curve, observation, level, places[:, 0], targets)
        return display.plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> MonotoneDisplay:
        """Draw on the axes given, or in a new figure.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        self.ax_ = _pyplot().subplots()[1] if ax is None else ax
        share = f"{100 * self.level:g} %"
        self.ax_.scatter(self.X, self.y, s=8, color="0.4", label="data")
        self.ax_.fill_between(
            self.x, *self.observation, alpha=0.15, color="C0", label=f"{share} of new data"
        )
        self.ax_.fill_between(self.x, *self.curve, alpha=0.4, color="C0", label=f"{share} of curve")
        self.ax_.plot(self.x, self.mean, color="C0", label="mean")
        self.ax_.legend()
        return self


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('drawing needs matplotlib: pip install "bayesloss[plot]"') from error
    return pyplot
