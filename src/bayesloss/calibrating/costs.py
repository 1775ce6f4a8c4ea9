r"""What decisions cost, and the decisions that cost least in expectation.

To decide d where the class k is true costs C[d, k]. Under class probabilities p the decision d has
the risk :math:`R(d) = \sum_k C[d, k]\, p_k`, and the Bayes decision, LHG (3), has the least. With
two classes, and right decisions free (LHG section 4.2, appendix 7.3), +1 is decided where its
probability exceeds :math:`c_+ / (c_- + c_+)`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED

from bayesloss.arrays import (
    Array,
    as_array,
    different_names,
    positions,
    read_distributions,
    read_probabilities,
    real_numbers,
)
from bayesloss.warnings import warn_caller


@dataclass(frozen=True, init=False, eq=False, repr=False)
class CostMatrix:
    """The costs of the two errors or, with :meth:`from_array`, of any decisions.

    Parameters
    ----------
    c_plus, c_minus : float, default=1
        Of a false positive (the second class decided, the first true) and of a false negative.
    classes, decisions : array-like of shape (2,), optional
        Labels as ordered in ``predict_proba``, by default -1, +1; names, by default the classes.

    Attributes
    ----------
    costs : ndarray of shape (n_decisions, n_classes) or (n, n_decisions, n_classes)
    classes, decisions : ndarray of shape (n_classes,), (n_decisions,)

    Raises
    ------
    ValueError
        If a cost is not positive and finite, or there are not two different labels.

    Examples
    --------
    >>> from bayesloss import CostMatrix
    >>> CostMatrix(c_plus=1, c_minus=19, classes=["healthy", "sick"]).decide([0.04, 0.06])
    array(['healthy', 'sick'], dtype='<U7')
    >>> table = [[0, 19], [4, 1], [1, 2]]  # a row a decision, a column a class
    >>> costs = CostMatrix.from_array(table, decisions=["home", "treat", "test"])
    >>> costs.decide([0.02, 0.1, 0.9])
    array(['home', 'test', 'treat'], dtype='<U5')
    >>> costs.risk([0.1])
    array([[1.9, 3.7, 1.1]])
    >>> costs.cost([1], ["test"]), costs.regret([1], ["test"])
    (array([2.]), array([1.]))
    """

    costs: Array
    classes: NDArray[Any]
    decisions: NDArray[Any]
    _classes_given: bool  # whether its classes were given

    def __init__(
        self,
        c_plus: float = 1.0,
        c_minus: float = 1.0,
        *,
        classes: ArrayLike | None = None,
        decisions: ArrayLike | None = None,
    ) -> None:
        for name, value in (("c_plus", c_plus), ("c_minus", c_minus)):
            if not 0 < value < np.inf:
                raise ValueError(f"expected a finite cost {name} > 0, got {name}={value}")
        costs = [[0, c_minus], [c_plus, 0]]
        names = [-1, 1] if classes is None else classes
        self._set(costs, names, decisions, classes_given=classes is not None)

    @classmethod
    def from_array(
        cls,
        costs: ArrayLike,
        *,
        classes: ArrayLike | None = None,
        decisions: ArrayLike | None = None,
    ) -> Self:
        """Costs of any decisions about any number of classes.

        Parameters
        ----------
        costs : array-like of shape (n_decisions, n_classes) or (n, n_decisions, n_classes)
            Finite; negative for gains; of the second shape if they differ by row. (For
            :func:`bayesloss.posterior_risk` transpose them.)
        classes, decisions : array-like of shape (n_classes,), (n_decisions,), optional
            By default 0, 1, ...; decisions are the classes if there are as many.

        Raises
        ------
        ValueError
            If the shape is wrong, a cost is not finite, or names are too few, too many or repeated.
        """
        matrix = cls.__new__(cls)
        matrix._set(costs, classes, decisions, classes_given=classes is not None)
        return matrix

    def _set(
        self,
        costs: ArrayLike,
        classes: ArrayLike | None,
        decisions: ArrayLike | None,
        *,
        classes_given: bool,
    ) -> None:
        table = real_numbers(costs, "costs")
        if table.ndim not in (2, 3) or min(table.shape[-2:]) < 2:
            raise ValueError(
                "expected costs of shape (n_decisions, n_classes) or (n, n_decisions, n_classes), "
                f"of two decisions and two classes at least, got {table.shape}"
            )
        if not np.isfinite(table).all():
            raise ValueError(f"expected finite costs, got {table[~np.isfinite(table)][0]}")
        table.flags.writeable = False
        n_decisions, n_classes = table.shape[-2:]
        classes = range(n_classes) if classes is None else classes
        if decisions is None:
            decisions = classes if n_decisions == n_classes else range(n_decisions)
        object.__setattr__(self, "_classes_given", classes_given)
        object.__setattr__(self, "costs", table)
        object.__setattr__(self, "classes", different_names(classes, n_classes, "classes"))
        object.__setattr__(self, "decisions", different_names(decisions, n_decisions, "decisions"))

    @property
    def c_plus(self) -> float:
        """The cost of a false positive, where there are two classes."""
        return self._two_errors()[0]

    @property
    def c_minus(self) -> float:
        """The cost of a false negative, where there are two classes."""
        return self._two_errors()[1]

    @property
    def threshold(self) -> float:
        """The probability of +1 above which +1 is decided: c_plus / (c_minus + c_plus)."""
        return 1 / (1 + self.c_minus / self.c_plus)

    @property
    def probit_threshold(self) -> float:
        """LHG (26): b_c, the threshold on the probit scale."""
        # From the smaller side, so that b_c stays finite where the threshold rounds to 1.
        if self.c_plus <= self.c_minus:
            return float(ndtri(self.threshold))
        return -float(ndtri(1 / (1 + self.c_plus / self.c_minus)))

    @property
    def _only_errors_cost(self) -> bool:
        table = self.costs
        return table.shape == (2, 2) and not table.diagonal().any() and table.sum(axis=0).min() > 0

    def _two_errors(self) -> tuple[float, float]:
        if not self._only_errors_cost:
            raise AttributeError(
                f"expected positive costs of two errors, with right decisions free; got {self!r}"
            )
        return float(self.costs[1, 0]), float(self.costs[0, 1])

    def risk(self, probabilities: ArrayLike) -> Array:
        """The expected costs of decisions, (n, n_decisions), by LHG (2); for two classes (35).

        Parameters
        ----------
        probabilities : array-like of shape (n, n_classes) or, for two classes, (n,)
            As from ``predict_proba``, or of the second class.

        Raises
        ------
        ValueError
            If the shape is wrong, or a row is not of probabilities that sum to one. Where it is so
            within rounding, it is scaled; where that is in doubt, a warning says so.
        """
        p = self._checked(probabilities)
        self._check_rows(len(p), "probabilities")
        # Not by BLAS, which rounds a row by the company it is in.
        return np.einsum("...dk,...k->...d", self.costs, p)

    def decide(self, probabilities: ArrayLike, *, classes: ArrayLike | None = None) -> NDArray[Any]:
        """The decisions of least risk, LHG (3); for two classes the choice rule below (35).

        Of equally good ones, the first. Errors are as for :meth:`risk`.

        Parameters
        ----------
        probabilities : array-like of shape (n, n_classes) or, for two classes, (n,)
        classes : array-like of shape (k,), default=None
            Of the columns, as an estimator's ``classes_``; others have probability zero. None for
            those of the costs, with a warning if scikit-learn sorts otherwise.
        """
        names = self.classes.tolist()
        if classes is not None:
            given = as_array(probabilities)
            columns = self.columns_of(classes)
            if given.shape != (len(given), len(columns)):
                raise ValueError(f"expected {len(columns)} columns, got shape {given.shape}")
            probabilities = np.zeros((len(given), len(names)))
            probabilities[:, columns] = given
        elif self._classes_given and sorted(names) != names:
            warn_caller(
                f"columns of probabilities are read as {names}; scikit-learn has {sorted(names)}"
            )
        return self.decisions[self.risk(probabilities).argmin(axis=1)]

    def cost(self, y: ArrayLike, decisions: ArrayLike) -> Array:
        """What each decision cost, once the label is known: of shape (n,).

        Parameters
        ----------
        y, decisions : array-like of shape (n,)

        Raises
        ------
        ValueError
            If a label or a decision is unknown, or the lengths differ.
        """
        k, d = self._codes(y, decisions)
        return self._costs_of(k, d)

    def regret(self, y: ArrayLike, decisions: ArrayLike) -> Array:
        """What each decision cost beyond the best for the label; parameters as for :meth:`cost`."""
        k, d = self._codes(y, decisions)
        rows = np.arange(len(k))
        by_class = self.costs.min(axis=-2)  # the least, or a row of these a case
        least = np.broadcast_to(by_class, (len(k), len(self.classes)))
        return self._costs_of(k, d) - least[rows, k]

    def columns_of(self, classes: ArrayLike) -> NDArray[np.int64]:
        """The positions (k,) of an estimator's classes among those of the costs, if these have any.

        Parameters
        ----------
        classes : array-like of shape (k,)

        Raises
        ------
        ValueError
            If a class is unknown or, if none were given, the number is another one.
        """
        labels = np.asarray(classes)
        if self._classes_given:
            return positions(self.classes, labels, "classes")
        if len(labels) != len(self.classes):
            raise ValueError(
                f"expected {len(self.classes)} classes, as many as have costs, got {len(labels)}: "
                "tell the costs their classes if these are some of them"
            )
        return np.arange(len(labels))

    def of_classes(self, classes: ArrayLike) -> Self:
        """The same costs, with an estimator's classes if none were given."""
        self.columns_of(classes)
        if self._classes_given:
            return self
        decisions = None if np.array_equal(self.decisions, self.classes) else self.decisions
        return self.from_array(self.costs, classes=classes, decisions=decisions)

    def scorer(self) -> "CostScorer":
        """A scorer for ``GridSearchCV`` and ``cross_validate``: minus the mean cost.

        Decisions have the least risk under ``predict_proba``. Columns are matched by ``classes_``
        if the costs were given classes (those a fold lacks have probability zero), else by order.

        It is called by ``scorer(estimator, X, y, sample_weight=None, costs=None)``. Metadata
        routing passes the last two after ``set_score_request``; costs of shape (n, n_decisions,
        n_classes) replace these. ``TunedThresholdClassifierCV`` takes it for two decisions.

        Examples
        --------
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.model_selection import GridSearchCV
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from bayesloss import CostMatrix
        >>> scorer = CostMatrix(c_plus=10, classes=[0, 1]).scorer()  # 0 is malignant
        >>> search = GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1.0]}, scoring=scorer)
        >>> search.fit(*load_breast_cancer(return_X_y=True)).best_params_
        {'var_smoothing': 1e-09}
        """
        return CostScorer(self)

    def _codes(
        self, y: ArrayLike, decisions: ArrayLike
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The positions of labels among the classes, and of decisions among the decisions."""
        labels = np.asarray(y)
        taken = np.asarray(decisions)
        if labels.ndim != 1 or labels.shape != taken.shape:
            raise ValueError(
                f"expected y, decisions of shape (n,), got {labels.shape}, {taken.shape}"
            )
        self._check_rows(len(labels), "labels")
        k = positions(self.classes, labels, "labels")
        d = positions(self.decisions, taken, "decisions")
        return k, d

    def _costs_of(self, k: NDArray[np.int64], d: NDArray[np.int64]) -> Array:
        """What each row's decision d costs under its class k."""
        if self.costs.ndim == 2:
            return self.costs[d, k]
        return self.costs[np.arange(len(k)), d, k]

    def _check_rows(self, n: int, what: str) -> None:
        if self.costs.ndim == 3 and n != len(self.costs):
            raise ValueError(f"expected {what} of the {len(self.costs)} rows with costs, got {n}")

    def _checked(self, probabilities: ArrayLike) -> Array:
        p = real_numbers(probabilities, "probabilities")
        n_classes = self.costs.shape[-1]
        of_the_second = p.ndim == 1 and n_classes == 2
        if p.shape[1:] != (n_classes,) and not of_the_second:
            shapes = f"(n,) or (n, {n_classes})" if n_classes == 2 else f"(n, {n_classes})"
            raise ValueError(f"expected probabilities of shape {shapes}, got {p.shape}")
        if of_the_second:
            p = read_probabilities(p)
            return np.stack([1 - p, p], axis=1)
        return read_distributions(p)

    def _key(self) -> tuple[Any, ...]:
        names = (tuple(self.classes.tolist()), tuple(self.decisions.tolist()))
        return (self.costs.shape, self.costs.tobytes(), names, self._classes_given)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CostMatrix):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        if self._only_errors_cost and (self._classes_given or self.classes[0] == -1):
            constructor = "CostMatrix"
            arguments = [f"c_plus={self.c_plus}", f"c_minus={self.c_minus}"]
        else:
            constructor = "CostMatrix.from_array"
            table = self.costs.tolist() if self.costs.ndim == 2 else f"<shape {self.costs.shape}>"
            arguments = [str(table)]
        if self._classes_given:
            arguments.append(f"classes={self.classes.tolist()}")
        if self.decisions.tolist() != self.classes.tolist():
            arguments.append(f"decisions={self.decisions.tolist()}")
        return f"{constructor}({', '.join(arguments)})"


class CostScorer(BaseEstimator):
    """Minus the mean cost under a cost matrix; see :meth:`CostMatrix.scorer`."""

    __metadata_request__score: ClassVar = {"estimator": UNUSED}

    def __init__(self, matrix: CostMatrix) -> None:
        self.matrix = matrix

    def __repr__(self, **shown: Any) -> str:
        return f"{self.matrix!r}.scorer()"

    def score(
        self, estimator: Any, X: Any, y: Any, sample_weight: Any = None, costs: Any = None
    ) -> float:
        """Minus the mean cost of the decisions made from the estimator's probabilities."""
        matrix = self._matrix(estimator.classes_, costs)
        decided = matrix.decide(estimator.predict_proba(X), classes=estimator.classes_)
        return -float(np.average(matrix.cost(y, decided), weights=sample_weight))

    def _matrix(self, classes: NDArray, costs: Any) -> CostMatrix:
        matrix = self.matrix.of_classes(classes)
        if costs is None:
            return matrix
        return CostMatrix.from_array(costs, classes=matrix.classes)

    __call__ = score

    _sign = 1  # this and the next two for TunedThresholdClassifierCV: larger scores are better
    _kwargs: ClassVar[dict[str, Any]] = {}

    def _score_func(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None, costs: Any = None
    ) -> float:
        """The score of labels above and below a threshold."""
        matrix = self._matrix(np.unique(y_true), costs)
        if matrix.costs.shape[-2:] != (2, 2):
            raise ValueError(
                "expected costs of two decisions to tune a threshold between, got some of shape "
                f"{matrix.costs.shape}: a CostClassifier decides without tuning"
            )
        decided = matrix.decisions[positions(matrix.classes, np.asarray(y_pred), "labels")]
        return -float(np.average(matrix.cost(y_true, decided), weights=sample_weight))
