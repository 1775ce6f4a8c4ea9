"""The mean cost of an estimator's decisions, as a scorer with scikit-learn's metadata routing."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metadata_routing import MetadataRequest


class CostScorer:
    """Minus the mean cost under a cost matrix; see :meth:`CostMatrix.scorer`."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix
        self._requests = MetadataRequest(owner="CostMatrix.scorer()")
        self.set_score_request(sample_weight=None, costs=None)

    def __repr__(self) -> str:
        return f"{self.matrix!r}.scorer()"

    def set_score_request(self, **requests: bool | str | None) -> Self:
        """Ask for ``sample_weight`` and ``costs`` as routed metadata; None (default) refuses."""
        for name, alias in requests.items():
            self._requests.score.add_request(param=name, alias=alias)
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """The request, for scikit-learn to read."""
        return self._requests

    def __call__(
        self,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        costs: ArrayLike | None = None,
    ) -> float:
        """Minus the mean cost of the decisions made from the estimator's probabilities."""
        found, columns = estimator.predict_proba(X), self.matrix.columns_of(estimator.classes_)
        matrix = type(self.matrix).from_array(
            self.matrix.costs if costs is None else costs,
            classes=self.matrix.classes if self.matrix._told else estimator.classes_,
        )
        p = np.zeros((len(found), len(matrix.classes)))
        p[:, columns] = found
        paid = matrix.cost(y, matrix.decide(p))
        weights = None if sample_weight is None else np.asarray(sample_weight)
        return -float(np.average(paid, weights=weights))
