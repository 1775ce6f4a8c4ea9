"""What calibrators share: the cases that they learn from, and how wide their bands are."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, column_or_1d

__all__ = ["WIDER", "check_level", "checked_labels", "counted_cases"]

Array = NDArray[np.float64]

# What the half widths of bands are multiplied by, on the scale of log odds: priors are smooth, and
# where the truth has steps and corners the posterior is off by more than it knows.
WIDER = 1.2


def check_level(level: float) -> None:
    """Refuse a level of intervals outside (0, 1)."""
    if not 0 < level < 1:
        raise ValueError(f"expected a level in (0, 1), got {level}")


def checked_labels(
    X: Any, y: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None = None
) -> tuple[NDArray, Array]:
    """The labels of classes and the weights of the rows of X."""
    labels = column_or_1d(y, warn=True)
    check_consistent_length(X, labels, groups)
    check_classification_targets(labels)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    return labels, weight


def counted_cases(
    scores: NDArray, y: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None
) -> tuple[NDArray, NDArray, Array, NDArray | None]:
    """Scores, labels, weights and groups, if any, of the cases whose weight is positive."""
    labels, weight = checked_labels(scores, y, sample_weight, groups)
    counted = weight > 0
    together = None if groups is None else np.asarray(groups)[counted]
    return scores[counted], labels[counted], weight[counted], together
