"""Arrays of float64, and scores: without PyTorch, which who only predicts need not wait for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
# One number or several, beside which an option may be a word: ArrayLike would let any word pass.
Numbers = float | Sequence[float] | NDArray[Any]


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
        hint = ""
        if values.ndim == 2 and values.shape[1] == 2:
            hint = ": of probabilities of two classes give the second column"
        raise ValueError(f"expected scores of shape (n,), got {values.shape}{hint}")
    if np.isnan(values).any():
        raise ValueError(f"expected scores, got {int(np.isnan(values).sum())} NaN of {len(values)}")
    return values
