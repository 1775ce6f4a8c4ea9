"""A classifier that is calibrated, and decides by what decisions cost.

Where probabilities are right, the decision of least expected cost is the best that can be made of
them, LHG (3). So nothing is tuned: costs may change after the fit, decisions be any number, and one
of them a second look.
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _routing_enabled,
    process_routing,
)
from sklearn.utils.validation import check_is_fitted

from bayesloss.arrays import Array, read_labels
from bayesloss.calibrating.costs import CostMatrix
from bayesloss.learning.calibration.calibrated_classifier import CalibratedClassifier


class CostClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Any classifier as one that predicts the decision of least expected cost.

    Parameters
    ----------
    estimator : classifier
        With ``decision_function`` or ``predict_proba``; the latter if it is calibrated.
    costs : CostMatrix
        Of any decisions, a reject option among them, about two or more classes. Columns are matched
        by the classes of the costs if these were given, else by order.
    calibrated : bool, default=False
        Whether the estimator's probabilities are calibrated; if not, the estimator is put into a
        :class:`CalibratedClassifier`. (For other folds give it one, and say True.)

    Attributes
    ----------
    estimator_ : classifier
        The one fitted: a CalibratedClassifier, or a clone of ``estimator``.
    costs_ : CostMatrix
        The costs, with the classes of ``estimator_`` if they had none.
    classes_, n_features_in_, feature_names_in_ : as of ``estimator_``

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from bayesloss import CostClassifier, CostMatrix
    >>> X, y = load_breast_cancer(return_X_y=True)  # 0 is malignant
    >>> costs = CostMatrix.from_array(
    ...     [[80, 0], [0, 4], [2, 1]],  # a row a decision, a column a class
    ...     classes=[0, 1],
    ...     decisions=["leave", "biopsy", "look again"],
    ... )
    >>> model = CostClassifier(GaussianNB(), costs).fit(X[:400], y[:400])
    >>> model.predict(X[400:404])
    array(['biopsy', 'leave', 'leave', 'leave'], dtype='<U10')
    >>> bool(model.score(X[400:], y[400:]) > -1)  # minus the mean cost
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [
            HasMethods(["fit", "predict_proba"]),
            HasMethods(["fit", "decision_function"]),
        ],
        "costs": [CostMatrix],
        "calibrated": ["boolean"],
    }

    def __init__(self, estimator: Any, costs: CostMatrix, *, calibrated: bool = False) -> None:
        self.estimator = estimator
        self.costs = costs
        self.calibrated = calibrated

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the classifier, calibrated or to be calibrated; return self.

        Parameters
        ----------
        X, y, sample_weight, groups, **fit_params
            As for :meth:`CalibratedClassifier.fit`; of a calibrated estimator, for its ``fit``.

        Raises
        ------
        ValueError
            As :meth:`CalibratedClassifier.fit` does; if costs differ by row, which the rows to
            predict have to do themselves (``costs.decide``), or do not have the classes of y; if a
            calibrated estimator has no ``predict_proba``.
        """
        self._validate_params()
        if self.costs.costs.ndim == 3:
            raise ValueError(
                "expected costs that are the same for all rows, got some of shape "
                f"{self.costs.costs.shape}: costs.decide takes the probabilities of their rows"
            )
        n_classes = len(self.costs.classes)
        kinds = np.unique(read_labels(y))
        if len(kinds) > n_classes:
            binary = "Only binary classification is supported. " if n_classes == 2 else ""
            raise ValueError(
                f"{binary}expected labels of the {n_classes} classes of the costs, got "
                f"{len(kinds)} kinds"
            )
        inner = self._inner()
        if not hasattr(inner, "predict_proba"):
            raise ValueError(
                "expected a classifier with predict_proba where calibrated=True, got "
                f"{type(inner).__name__}"
            )
        optional = {"sample_weight": sample_weight, "groups": groups}
        given = {name: value for name, value in optional.items() if value is not None}
        given |= fit_params
        if _routing_enabled():
            given = process_routing(self, "fit", **given).estimator.fit
        self.estimator_ = clone(inner).fit(X, y, **given)
        self.classes_ = self.estimator_.classes_
        self.costs_ = self.costs.of_classes(self.classes_)
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)  # of an earlier fit
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def predict(self, X: Any) -> NDArray:
        """The decisions of least expected cost, of shape (n,)."""
        p = self.predict_proba(X)
        return self.costs_.decide(p, classes=self.classes_)

    def predict_proba(self, X: Any) -> Array:
        """The probabilities of the classes, of shape (n, n_classes)."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_proba(X))

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Minus the mean cost of the decisions, once labels are known."""
        check_is_fitted(self)
        return self.costs_.scorer().score(self, X, y, sample_weight)

    def get_metadata_routing(self) -> MetadataRouter:
        """Parameters of ``fit`` go to the estimator; see scikit-learn's metadata routing."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=self).add(estimator=self._inner(), method_mapping=mapping)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        tags.classifier_tags.multi_class = len(self.costs.classes) > 2
        return tags

    def _inner(self) -> Any:
        """What is fitted: the estimator, or a calibrated classifier of it."""
        if self.calibrated:
            return self.estimator
        inner = CalibratedClassifier(self.estimator)
        if _routing_enabled():
            inner.set_fit_request(sample_weight=True, groups=True)
        return inner
