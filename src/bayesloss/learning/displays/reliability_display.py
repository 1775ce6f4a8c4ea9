"""Displays of how reliable predicted probabilities are, after scikit-learn's."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import _safe_indexing
from sklearn.utils._response import _get_response_values_binary

from bayesloss.arrays import Array, as_array, one_label_a_row
from bayesloss.learning.data.checks import check_weights
from bayesloss.learning.displays.displays import axes_or_new, import_pyplot
from bayesloss.learning.displays.reliability import PredictedCases, Reliability, reliability

_DIAGONAL = "perfectly calibrated"
_TOP = "the top label"
_COLUMNS = 3  # of panels
_PANEL = (4.6, 4.4)  # inches, with room for a legend of two models and the histogram


@dataclass
class ReliabilityDisplay:
    """A smooth reliability curve with its band, and a histogram of the predictions.

    Made by :meth:`from_estimator`, :meth:`from_predictions` or :meth:`from_cv_results`; several
    share axes by ``ax``, and :class:`ReliabilityPanels` has one for each class. Drawing sets the
    attributes ``ax_``, ``histogram_ax_``, ``line_``, ``band_`` and ``figure_``.

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
    target : str, default="the positive label"
        What the probabilities are of.

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
    target: str = "the positive label"

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, *, pos_label: Any = None, **options: Any
    ) -> Self:
        """Show how reliable a classifier is on cases it was not trained on; return the display.

        Parameters
        ----------
        estimator, X, y : fitted classifier, inputs, and labels of shape (n,)
            The classifier has ``predict_proba``.
        pos_label : int, float, bool or str, default=None
            None for ``estimator.classes_[1]``, or of more than two classes for the top label.
        **options
            As for :meth:`from_predictions`.
        """
        p, options["pos_label"] = _predicted(estimator, X, pos_label)
        if p.ndim == 2:
            options["classes"] = estimator.classes_
        options.setdefault("name", type(estimator).__name__)
        return cls.from_predictions(y, p, **options)

    @classmethod
    def from_cv_results(
        cls,
        cv_results: dict[str, Any],
        X: Any,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        pos_label: Any = None,
        **options: Any,
    ) -> Self:
        """Show how reliable the predictions of held-out cases are; return the display.

        One curve is of all folds, as one has few cases. A case that is held out several times
        counts once in all.

        Parameters
        ----------
        cv_results : dict
            Of scikit-learn's ``cross_validate(..., return_estimator=True, return_indices=True)``.
        X, y, sample_weight, groups : inputs, and array-like of shape (n,)
            The data that it was given; weights and groups, optional, as for :func:`reliability`.
        pos_label, **options
            As for :meth:`from_estimator`.

        Raises
        ------
        ValueError
            If estimators or indices are missing, or folds know different classes.
        """
        if not {"estimator", "indices"} <= cv_results.keys():
            raise ValueError(
                "expected the results of cross_validate(..., return_estimator=True, "
                f"return_indices=True), got {sorted(cv_results)}"
            )
        estimators = cv_results["estimator"]
        folds = cv_results["indices"]["test"]
        for estimator in estimators:
            if not np.array_equal(estimator.classes_, estimators[0].classes_):
                raise ValueError(
                    f"expected folds that know all classes {estimators[0].classes_}, got "
                    f"{estimator.classes_}"
                )
        predicted = [
            _predicted(estimator, _safe_indexing(X, fold), pos_label)
            for estimator, fold in zip(estimators, folds, strict=True)
        ]
        rows = np.concatenate(folds)
        labels = one_label_a_row(y)
        weight = check_weights(sample_weight, labels)[rows] / np.bincount(rows)[rows]
        if predicted[0][0].ndim == 2:
            options["classes"] = estimators[0].classes_
        options.setdefault("name", type(estimators[0]).__name__)
        return cls.from_predictions(
            labels[rows],
            np.concatenate([p for p, _ in predicted]),
            sample_weight=weight,
            groups=None if groups is None else as_array(groups)[rows],
            pos_label=predicted[0][1],
            **options,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        pos_label: Any = None,
        classes: ArrayLike | None = None,
        level: float = 0.95,
        n_bins: int | None = None,
        name: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Show how reliable predicted probabilities are; return the display.

        Parameters
        ----------
        y_true, y_prob, sample_weight, groups, pos_label, classes, level
            As for :func:`reliability`.
        n_bins : int, optional
            If given, so many bins of equal width are drawn over the curve.
        name, ax : str and matplotlib Axes, optional
            The classifier's name for the legend, and where to draw.
        """
        display = cls.of_cases(
            y_true,
            y_prob,
            sample_weight=sample_weight,
            groups=groups,
            pos_label=pos_label,
            classes=classes,
            level=level,
            name=name,
        )
        return display.plot(ax=ax, n_bins=n_bins)

    @classmethod
    def of_cases(
        cls,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        pos_label: Any = None,
        classes: ArrayLike | None = None,
        level: float = 0.95,
        name: str | None = None,
    ) -> Self:
        """The display of predicted probabilities, not yet drawn: as :meth:`from_predictions`."""
        fitted = reliability(
            y_true,
            y_prob,
            sample_weight=sample_weight,
            groups=groups,
            pos_label=pos_label,
            classes=classes,
            level=level,
        )
        cases = PredictedCases.of(y_true, y_prob, sample_weight, pos_label, classes)
        target = cls.target
        if np.ndim(y_prob) == 2:
            target = _TOP if pos_label is None else str(pos_label)
        return cls(
            reliability=fitted,
            y_true=cases.y,
            y_prob=cases.p,
            name=name,
            sample_weight=cases.weight,
            target=target,
        )

    def plot(self, *, ax: Any = None, n_bins: int | None = None) -> Self:
        """Draw curve, band and histogram, and bins if their number, at least 1, is given."""
        if n_bins is not None and n_bins < 1:
            raise ValueError(f"expected n_bins of at least 1, got {n_bins}")
        self.ax_ = ax = axes_or_new(ax)
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
        ax.set(ylabel=f"probability of {self.target}", xlim=(0, 1), ylim=(0, 1))
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


def _predicted(estimator: Any, X: Any, pos_label: Any) -> tuple[Array, Any]:
    """Probabilities of the positive label and which it is, or of each of many classes."""
    if len(getattr(estimator, "classes_", ())) > 2:
        return as_array(estimator.predict_proba(X)), pos_label
    p, positive = _get_response_values_binary(
        estimator, X, response_method="predict_proba", pos_label=pos_label
    )
    return p, positive


@dataclass
class ReliabilityPanels:
    """Reliability of many classes: a panel for the top label and for each class, with bands.

    Made by :meth:`from_predictions`, of one model or several. Drawing sets the attribute
    ``figure_``.

    Parameters
    ----------
    displays : dict of str to list of ReliabilityDisplay
        What each panel shows, one model after the other.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_predict
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from bayesloss import ReliabilityPanels
    >>> X, y = load_iris(return_X_y=True)
    >>> p = cross_val_predict(GaussianNB(), X, y, method="predict_proba")
    >>> panels = ReliabilityPanels.from_predictions(y, {"naive Bayes": p})
    >>> list(panels.displays)
    ['the top label', '0', '1', '2']
    >>> error = panels.displays["the top label"][0].reliability.calibration_error
    """

    displays: dict[str, list[ReliabilityDisplay]]

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_probs: dict[str, ArrayLike],
        *,
        targets: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        level: float = 0.95,
        n_bins: int | None = None,
    ) -> Self:
        """Show how reliable models are for each class; return the panels.

        Parameters
        ----------
        y_true, classes, sample_weight, groups, level
            As for :func:`reliability`.
        y_probs : dict of str to array-like of shape (n, K)
            The probabilities of K > 2 classes by the models' names.
        targets : array-like of labels, default=None
            The classes to draw beside the top label; None for all that ``y_true`` has.
        n_bins : int, optional
            As for :class:`ReliabilityDisplay`.

        Raises
        ------
        ValueError, ImportError
            As for :func:`reliability`, also if there is no model; if Matplotlib is not installed.
        """
        if not y_probs:
            raise ValueError("expected the probabilities of one model at least, got none")
        labels = one_label_a_row(y_true)
        counted = check_weights(sample_weight, labels) > 0
        chosen = np.unique(labels[counted]) if targets is None else as_array(targets)
        displays: dict[str, list[ReliabilityDisplay]] = {}
        for target in [None, *chosen.tolist()]:
            panel = _TOP if target is None else str(target)
            displays[panel] = [
                ReliabilityDisplay.of_cases(
                    y_true,
                    y_prob,
                    name=name,
                    pos_label=target,
                    classes=classes,
                    sample_weight=sample_weight,
                    groups=groups,
                    level=level,
                )
                for name, y_prob in y_probs.items()
            ]
        return cls(displays).plot(n_bins=n_bins)

    def plot(self, *, n_bins: int | None = None) -> Self:
        """Draw all panels into a new figure."""
        pyplot = import_pyplot()
        rows = -(-len(self.displays) // _COLUMNS)
        columns = min(len(self.displays), _COLUMNS)
        width, height = _PANEL
        self.figure_, grid = pyplot.subplots(
            rows,
            columns,
            figsize=(columns * width, rows * height),
            layout="constrained",
            squeeze=False,
        )
        for ax in grid.flat[len(self.displays) :]:
            ax.remove()
        for ax, shown in zip(grid.flat, self.displays.values(), strict=False):
            for display in shown:
                display.plot(ax=ax, n_bins=n_bins)
        return self
