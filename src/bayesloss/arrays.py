"""Arrays of scores, labels and probabilities, checked: without PyTorch, as predictions need none.

Probabilities are what rounding leaves of them: in half precision, or as three printed decimals.
What is a little farther off may be a slip, and warns; what is farther still is refused.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._missing import is_pandas_na
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from bayesloss.warnings import warn_caller

Array = NDArray[np.float64]
# One number or several, beside which an option may be a word: ArrayLike would let any word pass.
Numbers = float | Sequence[float] | NDArray[Any]

# By how much a probability may leave [0, 1], and a row of K of them miss the sum of 1 for each of
# K: half a unit of bfloat16, the coarsest format, and four times that of a third decimal.
_ROUNDED = 2.0**-9
_ROUNDED_SUM = 0.01  # at most: errors of many numbers cancel
_DOUBTFUL = 0.01  # two decimals, or a slip
_DOUBTFUL_SUM = 0.1
_AS_IT_IS = 1e-6  # a sum of single precision is off by so much, and changes nothing


def as_array(values: Any) -> NDArray:
    """Values as an array, those of tensors, too."""
    return np.asarray(untensored(values))


def untensored(values: Any) -> Any:
    """The array of a tensor, which may have a gradient or a format that NumPy lacks; else values.

    Beside tensors scikit-learn's checks would answer in tensors, under ``array_api_dispatch``.
    """
    if not hasattr(values, "detach"):  # as PyTorch's have
        return values
    values = values.detach().cpu()
    if str(values.dtype) == "torch.bfloat16":
        values = values.float()
    return values.numpy()


def real_numbers(values: ArrayLike, what: str) -> Array:
    """Values of any shape as floats of 64 bits; complex numbers or text are a ValueError."""
    array = as_array(values)
    message = f"expected {what} that are real numbers, got {array.dtype}"
    if array.dtype.kind not in "biufO":  # complex numbers, or text that reads like a number
        raise ValueError(message)
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(message) from error


def as_scores(scores: ArrayLike) -> NDArray:
    """Real scores of shape (n,) as floats of their own precision; never NaN."""
    values = as_array(scores)
    if np.iscomplexobj(values):
        raise ValueError("expected real scores, got complex ones")
    if values.dtype not in (np.float16, np.float32):
        values = values.astype(np.float64)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or len(values) == 0:
        hint = ""
        if values.ndim == 2 and values.shape[1] == 2:
            hint = ": of probabilities of two classes give the second column"
        raise ValueError(f"expected scores of shape (n,), got {values.shape}{hint}")
    if np.isnan(values).any():
        raise ValueError(f"expected scores, got {int(np.isnan(values).sum())} NaN of {len(values)}")
    return values


def read_labels(y: Any) -> NDArray:
    """Labels of classes, of shape (n,); missing ones and real numbers are a ValueError."""
    labels = one_label_a_row(y)
    check_classification_targets(labels)
    return labels


def one_label_a_row(y: Any) -> NDArray:
    """Labels of any kind, of shape (n,), none of which is missing."""
    values = as_array(y)
    if values.ndim > 0:
        refuse_missing(values, "labels")
    labels: NDArray = column_or_1d(untensored(y), warn=True)
    return labels


def different_names(values: ArrayLike, n: int, what: str) -> NDArray[Any]:
    """The n names, all different, as an array that cannot be written to."""
    names = np.array(values)
    if names.shape != (n,) or len(set(names.tolist())) != n:
        raise ValueError(f"expected {n} different {what}, got {names.tolist()}")
    names.flags.writeable = False
    return names


def positions(names: NDArray[Any], values: NDArray[Any], what: str) -> NDArray[np.int64]:
    """Where among the names each value stands, of shape (n,); a ValueError for one unknown."""
    place = {name: i for i, name in enumerate(names.tolist())}
    found = np.array([place.get(value, -1) for value in values.tolist()], dtype=np.int64)
    unknown = found < 0
    if unknown.any():
        row = int(unknown.argmax())
        got = f"{values.tolist()[row]!r} in row {row}"
        raise ValueError(f"expected {what} among {names.tolist()}, got {got}")
    return found


def refuse_missing(values: NDArray, what: str) -> None:
    """A ValueError if one of the values is NaN, NA, None or NaT."""
    if values.dtype.kind in "fcmM":
        missing = np.isnan(values)
    elif values.dtype.kind == "O":
        missing = np.array([_is_missing(value) for value in values.ravel()], dtype=bool)
    else:
        return
    if missing.any():
        raise ValueError(
            f"expected {what} without missing values, got {int(missing.sum())} of {values.size} "
            f"that are NaN, NA or None, the first in row {int(missing.argmax())}"
        )


def _is_missing(value: Any) -> bool:
    return value is None or is_pandas_na(value) or bool(value != value)


def in_unit_interval(values: NDArray, *, doubtful: bool = False) -> NDArray[np.bool_]:
    """Which values are probabilities within rounding, or also those that are in doubt."""
    slack = _DOUBTFUL if doubtful else _ROUNDED
    return (values >= -slack) & (values <= 1 + slack)


def may_be_probabilities(low: float, high: float) -> bool:
    """Whether numbers with these extremes leave [0, 1] by little, also beside their range."""
    return max(-low, high - 1) <= _DOUBTFUL * min(high - low, 1.0)


def read_probabilities(values: NDArray, hint: str = "") -> NDArray:
    """Floats of any shape brought into [0, 1], where rounding has left it.

    Warns of what is in doubt; what is no probability is a ValueError, at whose end is the hint.
    """
    inside = (values >= 0) & (values <= 1)
    if inside.all():
        return values
    near = in_unit_interval(values, doubtful=True)
    if not near.all():
        row = np.argwhere(~near)[0, 0]
        got = f"{values[~near][0]:.7g} in row {row}{hint}"
        raise ValueError(f"expected probabilities in [0, 1], got {got}")
    rounded = in_unit_interval(values)
    if not rounded.all():
        warn_caller(
            f"{int((~rounded).sum())} of {values.size} probabilities lie outside [0, 1] by more "
            f"than rounding, such as {values[~rounded][0]:.7g}: they count as 0 or 1"
        )
    return values.clip(0, 1)


def near_distributions(rows: NDArray) -> NDArray[np.bool_]:
    """Which rows are probabilities of sum 1, or in doubt."""
    _, doubtful_sum = _sums_off(rows.shape[1])
    near = in_unit_interval(rows, doubtful=True).all(axis=1)
    return near & (np.abs(rows.sum(axis=1, dtype=np.float64) - 1) <= doubtful_sum)


def read_distributions(rows: NDArray, hint: str = "") -> NDArray:
    """Floats (n, K) as probabilities of sum 1 a row, scaled where rounding has moved the sum.

    Warnings and errors are as for :func:`read_probabilities`.
    """
    p = read_probabilities(rows, hint)
    total = p.sum(axis=1, dtype=np.float64)
    off = np.abs(total - 1)
    if (off <= _AS_IT_IS).all():
        return p
    rounded_sum, doubtful_sum = _sums_off(p.shape[1])
    worst = int(np.argmax(off > doubtful_sum))
    if not off[worst] <= doubtful_sum:
        got = f"a sum of {total[worst]:.7g} in row {worst}{hint}"
        raise ValueError(f"expected rows of probabilities that sum to 1, got {got}")
    doubtful = off > rounded_sum
    if doubtful.any():
        worst = int(off.argmax())
        warn_caller(
            f"{int(doubtful.sum())} of {len(p)} rows of probabilities have a sum that is off by "
            f"more than rounding, such as {total[worst]:.7g} in row {worst}: they are scaled to 1"
        )
    scale = np.where(off > _AS_IT_IS, total, 1.0)
    return (p / scale[:, None]).astype(p.dtype)


def _sums_off(K: int) -> tuple[float, float]:
    """By how much a sum of K probabilities may be off: by rounding, and in doubt."""
    return min(K * _ROUNDED, _ROUNDED_SUM), min(K * _DOUBTFUL, _DOUBTFUL_SUM)
