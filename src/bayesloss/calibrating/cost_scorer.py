"""The mean cost of an estimator's decisions, as scikit-learn's model selection asks for it.

The decisions are those of least risk under the estimator's ``predict_proba``. Weights and costs of
the rows go by scikit-learn's metadata routing.
"""

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
        """Whether ``sample_weight`` and ``costs`` are asked for, or under which name.

        At first it is None for both: an error where they are given.
        """
        for name, alias in requests.items():
            self._requests.score.add_request(param=name, alias=alias)
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """What was asked for: scikit-learn reads it."""
        return self._requests

    def __call__(
        self,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        costs: ArrayLike | None = None,
    ) -> float:
        """Decide by the estimator's probabilities, and pay."""
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
