"""What calibrators share: the cases that they learn from, and how wide their bands are."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from bayesloss.learning.data.dask_inputs import is_dask
from bayesloss.learning.data.estimator_base import check_weights
from bayesloss.learning.data.rows import DaskRows, Rows

# What the half widths of bands are multiplied by, on the scale of log odds: priors are smooth, and
# where the truth has steps and corners the posterior is off by more than it knows.
WIDER = 1.2


def read_rows(scores: Any, y: Any, sample_weight: Any, groups: Any) -> Rows:
    """The cases that count, of one score each, in memory or of Dask."""
    if is_dask(scores):
        if groups is not None:
            raise ValueError(
                "expected no groups where scores are a Dask collection, got some: compute the "
                "scores, and give them as an array"
            )
        return DaskRows.of(scores, y, sample_weight, "scores")
    scores = as_scores(scores).astype(np.float64, copy=False)
    return checked_rows(scores, y, sample_weight, groups)


def checked_rows(scores: NDArray, y: Any, sample_weight: ArrayLike | None, groups: Any) -> Rows:
    """The cases whose weight is positive."""
    y = column_or_1d(y, warn=True)
    check_consistent_length(scores, y, groups)
    check_classification_targets(y)
    weight = check_weights(sample_weight, scores)
    return Rows(scores, y, weight, groups).some(weight > 0)


def as_scores(scores: ArrayLike) -> NDArray:
    """Real scores of shape (n,) as floats of their own precision; never NaN."""
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
