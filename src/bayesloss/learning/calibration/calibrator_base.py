"""What calibrators share: the cases that they learn from, and how wide their bands are."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, column_or_1d

from bayesloss.learning.data.dask_inputs import is_dask
from bayesloss.learning.data.rows import Rows

Array = NDArray[np.float64]

# What the half widths of bands are multiplied by, on the scale of log odds: priors are smooth, and
# where the truth has steps and corners the posterior is off by more than it knows.
WIDER = 1.2


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


def read_rows(scores: Any, y: Any, sample_weight: Any, groups: Any) -> tuple[Rows, NDArray | None]:
    """The cases that count, of one score each, in memory or of Dask; and their groups."""
    if is_dask(scores):
        from bayesloss.learning.data.rows import DaskRows

        if groups is not None:
            raise ValueError(
                "expected no groups where scores are a Dask collection, got some: compute the "
                "scores, and give them as an array"
            )
        return DaskRows.of(scores, y, sample_weight, "scores"), None
    values, labels, weight, together = counted_cases(as_scores(scores), y, sample_weight, groups)
    return Rows(values.astype(np.float64, copy=False), labels, weight), together


def as_scores(scores: ArrayLike) -> NDArray:
    """Scores as floats of shape (n,), of 64 bits if they came with no fewer; never NaN."""
    values = np.asarray(scores)
    if np.iscomplexobj(values):
        raise ValueError("expected real scores, got complex ones")
    if values.dtype not in (np.float16, np.float32):
        values = values.astype(np.float64)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or len(values) == 0:
        two = values.ndim == 2 and values.shape[1] == 2
        hint = ": of probabilities of two classes give the second column" if two else ""
        raise ValueError(f"expected scores of shape (n,), got {values.shape}{hint}")
    if np.isnan(values).any():
        raise ValueError(f"expected scores, got {int(np.isnan(values).sum())} NaN of {len(values)}")
    return values
