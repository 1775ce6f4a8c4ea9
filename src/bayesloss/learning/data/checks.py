"""Checks of what comes with the rows of a fit: how much each counts, and which belong together."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import _check_sample_weight

from bayesloss.arrays import Array, as_array, refuse_missing
from bayesloss.warnings import warn_caller

# Of fewer cases nothing is learned; of more, rounding hides where the likelihood is largest.
_LEAST_TOTAL = 1e-6
_MOST_TOTAL = 1e13
# Weights that say how often rows count have a mean near 1, or are whole numbers.
_LEAST_MEAN = 0.1
_MOST_MEAN = 10.0


def check_weights(sample_weight: ArrayLike | None, X: Any) -> Array:
    """The checked weights of the rows of X, ones by default.

    Warns if they can hardly be how many times each row counts.
    """
    if sample_weight is None:
        return _check_sample_weight(None, X, dtype=np.float64)
    weight = _check_sample_weight(
        as_array(sample_weight), X, dtype=np.float64, ensure_non_negative=True
    )
    _check_counts(weight)
    return np.require(weight, requirements=["C", "W"])  # as PyTorch wants it


def _check_counts(weight: Array) -> None:
    with np.errstate(over="ignore"):
        total = float(weight.sum())
    check_total(total, int((weight > 0).sum()), whole=bool((weight % 1 == 0).all()))


def check_total(total: float, n: int, *, whole: bool) -> None:
    """Refuse or warn of the total weight of the n rows that have one; ``whole`` if by counts."""
    if n == 0:
        raise ValueError("expected a sample weight above zero, got none")
    if not _LEAST_TOTAL <= total <= _MOST_TOTAL:
        raise ValueError(
            "expected sample weights that say how many times each row counts, of a total between "
            f"{_LEAST_TOTAL:g} and {_MOST_TOTAL:g}, got {total:.3g}: if only their ratios matter, "
            "divide them by their mean"
        )
    mean = total / n
    if mean < _LEAST_MEAN or (mean > _MOST_MEAN and not whole):
        warn_caller(
            f"sample weights total {total:.3g}, of {n} rows: a weight says how many times a row "
            "counts, and few cases leave much to the prior, many little. If only their ratios "
            "matter, divide them by their mean"
        )


def times_class_weights(weight: Array, class_weight: Any, y: NDArray) -> Array:
    """The weights of rows times those of their classes, which are above zero and finite."""
    by_class = compute_sample_weight(class_weight, y)
    bad = ~((by_class > 0) & np.isfinite(by_class))
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"expected class weights above zero and finite, got {by_class[row]} for class "
            f"{y[row]}: leave its cases out to do without it"
        )
    product: Array = weight * by_class
    _check_counts(product)
    return product


def warn_of_single_cases(labels: NDArray) -> None:
    """Warn if no class has a second case."""
    n_classes = len(np.unique(labels))
    if n_classes == len(labels) > 1:
        warn_caller(
            f"each of {n_classes} classes has one case: what a class has in common cannot be told "
            "from what a case has, and probabilities are mostly the prior's"
        )


def group_numbers(
    groups: ArrayLike | None, counted: Bool[ndarray, " n"]
) -> Int[ndarray, " m"] | None:
    """The groups of the rows that are counted, as numbers from 0; there are two at least."""
    if groups is None:
        return None
    labels = as_array(groups)
    if labels.shape != counted.shape:
        raise ValueError(f"expected groups of shape {counted.shape}, got {labels.shape}")
    refuse_missing(labels, "groups")
    kinds, numbers = np.unique(labels[counted], return_inverse=True)
    if len(kinds) == 1:
        raise ValueError(
            f"expected at least two groups, got one, {kinds[0]}: how much cases of a group have "
            "in common shows only beside others"
        )
    return numbers.astype(np.int64)
