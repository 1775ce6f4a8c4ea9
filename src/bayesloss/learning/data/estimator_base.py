"""What estimators share: fits that fail leave no trace, and what is said of rows in blocks."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from bayesloss.learning.data.dask_inputs import is_dask

__all__ = ["all_or_nothing", "by_blocks", "remember_columns"]

F = TypeVar("F", bound=Callable)


@contextmanager
def all_or_nothing(model: BaseEstimator) -> Iterator[None]:
    """Leave the model as it was if its fit fails."""
    before = dict(vars(model))
    try:
        yield
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise


def remember_columns(estimator: Any, X: Any) -> None:
    """Set ``n_features_in_``, and ``feature_names_in_`` of a DataFrame's columns."""
    estimator.n_features_in_ = X.shape[1]
    estimator.__dict__.pop("feature_names_in_", None)  # of an earlier fit
    if hasattr(X, "columns"):
        estimator.feature_names_in_ = np.array([str(name) for name in X.columns], dtype=object)


def by_blocks(method: F) -> F:
    """A method of an estimator that says something of each row, for Dask collections, too.

    Then it is asked of each block of rows, lazily, and the answer is a Dask array, or a tuple of
    them. What it says of a row of zeros tells how the answer looks.
    """

    @wraps(method)
    def of_any(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_dask(X):
            return method(self, X, *args, **kwargs)
        names = list(X.columns) if hasattr(X, "columns") else None
        X = X.to_dask_array() if hasattr(X, "to_dask_array") else X
        if X.ndim > 1:
            X = X.rechunk({1: -1})
        ask = partial(_asked, of_any, self, names, args, kwargs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seen = ask(np.zeros((1, *X.shape[1:])))
        looks = _stacked(seen)
        found = X.map_blocks(
            partial(_answer, ask),
            chunks=(X.chunks[0], *((size,) for size in looks.shape[1:])),
            dtype=looks.dtype,
            meta=np.empty((0,) * looks.ndim, looks.dtype),
            drop_axis=1 if X.ndim > looks.ndim else None,
            new_axis=1 if X.ndim < looks.ndim else None,
        )
        return tuple(found.T) if isinstance(seen, tuple) else found

    return cast(F, of_any)


def _answer(ask: Callable, block: NDArray) -> NDArray:
    return _stacked(ask(block))


def _asked(
    method: Callable, model: Any, names: list[str] | None, args: Any, kwargs: Any, block: NDArray
) -> Any:
    return method(model, _framed(block, names), *args, **kwargs)


def _stacked(answer: NDArray | tuple[NDArray, ...]) -> NDArray:
    return np.stack(answer, axis=1) if isinstance(answer, tuple) else answer


def _framed(block: NDArray, names: list[str] | None) -> Any:
    if names is None:
        return block
    from pandas import DataFrame

    return DataFrame(block, columns=names)
