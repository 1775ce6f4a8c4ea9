"""What estimators share: checks, fits that leave no trace if they fail, results block by block."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from bayesloss.learning.data.rows import is_dask

F = TypeVar("F", bound=Callable)


def check_level(level: float) -> None:
    """Refuse a level outside (0, 1)."""
    if not 0 < level < 1:
        raise ValueError(f"expected a level in (0, 1), got {level}")


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
    """Extend a method with one result, or several, a row to Dask collections: lazily, by blocks."""

    @wraps(method)
    def of_any(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_dask(X):
            return method(self, X, *args, **kwargs)
        names = None
        if hasattr(X, "columns"):
            names = list(X.columns)
        if hasattr(X, "to_dask_array"):
            X = X.to_dask_array()
        if X.ndim > 1:
            X = X.rechunk({1: -1})
        ask = partial(_ask, self, method.__name__, names, args, kwargs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            example, several = ask(np.zeros((1, *X.shape[1:])))
        lazy = X.map_blocks(
            lambda block: ask(block)[0],
            chunks=(X.chunks[0], *((size,) for size in example.shape[1:])),
            dtype=example.dtype,
            meta=np.empty((0,) * example.ndim, example.dtype),
            drop_axis=1 if X.ndim > example.ndim else None,
            new_axis=1 if X.ndim < example.ndim else None,
        )
        if several:
            return tuple(lazy.T)
        return lazy

    return cast(F, of_any)


def _ask(
    model: Any, method: str, names: list[str] | None, args: Any, kwargs: Any, rows: Any
) -> tuple[NDArray, bool]:
    """A method's results for rows, side by side if several; and whether there are several."""
    if names is not None:
        from pandas import DataFrame

        rows = DataFrame(rows, columns=names)
    answer = getattr(model, method)(rows, *args, **kwargs)
    if isinstance(answer, tuple):
        return np.stack(answer, axis=1), True
    return answer, False
