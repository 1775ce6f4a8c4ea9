"""Two features at a time: what one of them says can be said without it, beside the other.

A feature changes a request, and most have a way to be said otherwise: weights by copies of rows,
copies by weights, sparse inputs by dense ones, classes by other names. Each is said otherwise
beside each other feature, and predictions must stay. So a feature that forgets another, as class
weights that overwrite the rows' own, fails at their pair, although either is right alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy import sparse


@dataclass(frozen=True)
class Request:
    """A fit that is asked for, and where its predictions are compared."""

    X: Any
    y: np.ndarray
    X_new: np.ndarray
    kind: type
    options: dict[str, Any] = field(default_factory=dict)
    fit: dict[str, Any] = field(default_factory=dict)
    original: dict[Any, int] = field(default_factory=lambda: {0: 0, 1: 1, 2: 2})

    def fitted(self):
        """The model."""
        return self.kind(**self.options).fit(self.X, self.y, **self.fit)

    def predicted(self) -> np.ndarray:
        """Probabilities at the new inputs, a column an original class."""
        model = self.fitted()
        columns = [self.original[name] for name in model.classes_.tolist()]
        return model.predict_proba(self.X_new)[:, np.argsort(columns)]

    def rows(self, kept: np.ndarray) -> "Request":
        """The same with some of the rows, in order, as often as they are named."""
        fit = {name: np.asarray(value)[kept] for name, value in self.fit.items()}
        picked = replace(self, X=in_memory(self.X)[kept], y=self.y[kept], fit=fit)
        return dask_on(picked) if hasattr(self.X, "compute") else picked

    def with_fit(self, **changed) -> "Request":
        return replace(self, fit=self.fit | changed)

    def with_options(self, **changed) -> "Request":
        return replace(self, options=self.options | changed)

    def weight(self) -> np.ndarray:
        """How often each row counts, by the rows' own weights alone."""
        return np.asarray(self.fit.get("sample_weight", np.ones(len(self.y))))


def in_memory(X):
    """The rows of X where they can be picked: Dask's as an array."""
    return X.compute() if hasattr(X, "compute") else X


@dataclass(frozen=True)
class Feature:
    """What turns a feature on, and what says the same otherwise; None for a partner only."""

    on: Callable[[Request], Request]
    otherwise: Callable[[Request], Request] | None = None
    place: int = 1  # in which order features are turned on: labels, weights, copies, forms


def weights_on(request):
    return request.with_fit(sample_weight=1 + np.arange(len(request.y)) % 3)


def weights_as_copies(request):
    times = request.weight().astype(int)
    repeated = request.rows(np.repeat(np.arange(len(request.y)), times))
    fit = {name: value for name, value in repeated.fit.items() if name != "sample_weight"}
    return replace(repeated, fit=fit)


def copies_on(request):
    """The first third of the rows twice, the copies last."""
    kept = np.concatenate([np.arange(len(request.y)), np.arange(len(request.y) // 3)])
    return request.rows(kept)


def copies_as_weights(request):
    n = 3 * len(request.y) // 4
    weight = request.weight().astype(float)
    total = weight[:n].copy()
    total[: len(request.y) - n] += weight[n:]
    return request.rows(np.arange(n)).with_fit(sample_weight=total)


def class_weight_on(request):
    by_class = dict(zip(np.unique(request.y).tolist(), (0.7, 1.9, 1.3), strict=False))
    return request.with_options(class_weight=by_class)


def class_weight_as_weights(request):
    by_class = request.options["class_weight"]
    weight = request.weight() * np.array([by_class[label] for label in request.y.tolist()])
    options = {name: value for name, value in request.options.items() if name != "class_weight"}
    return replace(request, options=options).with_fit(sample_weight=weight)


def groups_on(request):
    return request.with_fit(groups=np.arange(len(request.y)) // 3)


def groups_renamed(request):
    """In another order of names, which is not its own inverse."""
    groups = request.fit["groups"]
    assert groups.max() < 61  # then the names below are as many
    return request.with_fit(groups=np.array([f"g{(7 * g + 3) % 61:02d}" for g in groups]))


def weighted_groups_on(request):
    return weights_on(request).with_fit(groups=np.arange(len(request.y)))


def near_copies(request):
    """Copies that differ too little to matter, but are not merged: their groups hold them out."""
    copied = weights_as_copies(request)
    X = in_memory(copied.X)
    factor = 1 + 1e-10 * np.arange(X.shape[0])
    X = X.multiply(factor[:, None]).tocsr() if sparse.issparse(X) else X * factor[:, None]
    return replace(copied, X=X)


def penalties_on(request):
    return request.with_options(C=[0.03, 0.3, 3.0])


def best_penalty_alone(request):
    """The one that is chosen; neither the first of the list nor always the same."""
    return request.with_options(C=request.fitted().C_)


def sparse_on(request):
    return replace(request, X=sparse.csr_array(in_memory(request.X)))


def sparse_as_dense(request):
    X = request.X
    return replace(request, X=X.toarray() if sparse.issparse(X) else X)


def dask_on(request):
    da = pytest.importorskip("dask.array")
    return replace(
        request, X=da.from_array(in_memory(request.X), chunks=(41, *in_memory(request.X).shape[1:]))
    )


def dask_as_array(request):
    return replace(request, X=in_memory(request.X))


def many_classes_on(request):
    """A third class, of some rows of both."""
    y = np.where(np.arange(len(request.y)) % 4 == 3, 2, request.y)
    return replace(request, y=y)


def classes_renamed(request):
    """In cyclic order where there are three, which is not its own inverse."""
    names = {0: "b", 1: "c", 2: "a"}
    y = np.array([names[label] for label in request.y.tolist()])
    original = {names[old]: k for old, k in request.original.items()}
    options = dict(request.options)
    if "class_weight" in options:
        options["class_weight"] = {names[k]: v for k, v in options["class_weight"].items()}
    return replace(request, y=y, original=original, options=options)


def no_folds_on(request):
    """A tolerance at which all columns together move no row's loss: rows need no holding out."""
    return request.with_options(tol=0.05)


def pairs(features, apart):
    """What is said otherwise, beside which other feature."""
    return [
        pytest.param(said, beside, id=f"{said} beside {beside}")
        for said, beside in permutations(features, 2)
        if features[said].otherwise is not None and frozenset((said, beside)) not in apart
    ]


def both_on(features, request, said, beside):
    names = sorted((said, beside), key=lambda name: features[name].place)
    for name in names:
        request = features[name].on(request)
    return request
