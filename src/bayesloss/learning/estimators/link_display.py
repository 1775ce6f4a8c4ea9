"""A learned link as a figure, after scikit-learn's displays."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from bayesloss.learning.estimators.linkgistic import LinkgisticClassifier
from bayesloss.learning.links.fitted_link import FittedLink

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["LinkDisplay"]

_POINTS = 300


@dataclass
class LinkDisplay:
    """The probability as a function of the score, with its posterior band.

    Made by :meth:`from_estimator`; :meth:`plot` draws it again.

    Attributes
    ----------
    scores : ndarray of shape (300,)
        Over the range of the training data.
    probability, low, high : ndarray of shape (300,)
        The posterior mean of the probability, and the ends of its central posterior interval.
    name : str
        The class whose probability it is.
    ax_ : matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from bayesloss import LinkDisplay
    >>> score = np.array([-1.0, 0.0, 1.0])
    >>> probability = np.array([0.2, 0.5, 0.8])
    >>> display = LinkDisplay(score, probability, probability - 0.1, probability + 0.1, "spam")
    >>> display.plot().ax_.get_ylabel()
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
        ax: "Axes | None" = None,
    ) -> Self:
        """Draw the link of a fitted classifier.

        Parameters
        ----------
        estimator : LinkgisticClassifier
        target : label, optional
            The class whose link is drawn; needed where there are more than two.
        level : float, default=0.95
            Posterior probability of the band.
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure.

        Raises
        ------
        ValueError
            If the class is not known, or not given where there are several.
        ImportError
            If Matplotlib is not installed.
        """
        check_is_fitted(estimator)
        link, name = _link_of(estimator, target)
        x = np.linspace(link.low, link.high, _POINTS)
        low, high = link.inverse_link_band(x, level)
        return cls(x, link.inverse_link(x), low, high, name).plot(ax)

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw the curve and its band."""
        if ax is None:
            try:
                from matplotlib import pyplot
            except ImportError as error:
                raise ImportError(
                    "a LinkDisplay needs Matplotlib: pip install 'bayesloss[plot]'"
                ) from error
            ax = pyplot.subplots()[1]
        ax.fill_between(self.scores, self.low, self.high, alpha=0.3, linewidth=0)
        ax.plot(self.scores, self.probability)
        ax.set(xlabel="score", ylabel=f"probability of {self.name}", ylim=(0, 1))
        self.ax_ = ax
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
