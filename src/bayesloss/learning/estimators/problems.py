"""Checked data of a linear classifier as problems of labels 0 and 1 that share their inputs.

Two classes are one problem; more are one each, against the rest. Where rows will be held out, equal
rows are merged, so that they are held out together.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Int8
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data
from torch import Tensor

from bayesloss.arrays import read_labels, untensored
from bayesloss.learning.data.checks import (
    check_weights,
    group_numbers,
    times_class_weights,
    warn_of_single_cases,
)
from bayesloss.learning.data.dask_inputs import DaskInputs, on_client
from bayesloss.learning.data.estimator_base import remember_columns
from bayesloss.learning.data.inputs import (
    DenseInputs,
    Inputs,
    SparseInputs,
    canonical,
    merge_duplicates,
)
from bayesloss.learning.data.rows import Rows, is_dask
from bayesloss.learning.weights.linear_scores import LinearScores

SIZES = (1e-100, 1e100)  # of inputs: squares keep within floating point's range


@dataclass(frozen=True)
class Problems:
    """K problems that share their inputs, for any penalty."""

    inputs: Inputs
    labels: Int8[Tensor, "K n"]
    weight: Float[Tensor, " n"]
    groups: Int[Tensor, " n"] | None

    def at(self, C: float) -> LinearScores:
        """The problems with this penalty."""
        return LinearScores.of(self.inputs, self.labels, self.weight, C)

    def narrowed(self) -> tuple["Problems", Callable[[Tensor], Tensor]]:
        """In as many columns as there are rows, and the way back for weights (any, d).

        Where dense columns outnumber rows a rotation changes no score, and the rest of the columns
        is zero after it.
        """
        n, d = self.inputs.shape
        if not (isinstance(self.inputs, DenseInputs) and d > n):
            return self, lambda beta: beta
        Q, R = torch.linalg.qr(self.inputs.Z.T)
        return replace(self, inputs=DenseInputs(R.T)), lambda beta: beta @ Q.T

    def some(self, chosen: Tensor) -> "Problems":
        """The same problems of some of the rows, by number or mask."""
        groups = self.groups
        if groups is not None:
            groups = groups[chosen.cpu()]
        return Problems(
            inputs=self.inputs.rows(chosen),
            labels=self.labels[:, chosen],
            weight=self.weight[chosen],
            groups=groups,
        )


def read_problems(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: ArrayLike | None,
    *,
    merge_copies: bool,
) -> tuple[NDArray, Problems]:
    """The classes, and the checked data of an estimator as problems."""
    rows = _read_rows(model, X, y, sample_weight, groups)
    classes, codes = np.unique(rows.y, return_inverse=True)
    if len(classes) < 2:
        who = type(model).__name__
        raise ValueError(f"{who} needs at least two classes, got one class only: {classes[0]}")
    warn_of_single_cases(codes)
    if model.class_weight is not None:
        rows.weight = times_class_weights(rows.weight, model.class_weight, rows.y)
    rows.y = codes
    if merge_copies:
        # Copies of a row have to agree in class and group.
        keys = [codes]
        if rows.groups is not None:
            keys.append(rows.groups)
        kept, weight = merge_duplicates(rows.x.equal(), rows.weight, *keys)
        if len(kept) < len(codes) or weight.max() > 1:
            rows = rows.some(kept)
        rows.weight = weight
    positives = [1] if len(classes) == 2 else range(len(classes))
    labels = np.stack([rows.y == k for k in positives]).view(np.int8)
    numbers = None
    if rows.groups is not None:
        numbers = torch.from_numpy(rows.groups)
    problems = Problems(
        inputs=rows.x,
        labels=torch.from_numpy(labels).to(rows.x.device),
        weight=torch.from_numpy(rows.weight).to(rows.x.device),
        groups=numbers,
    )
    return classes, problems


def _read_rows(model: Any, X: Any, y: Any, sample_weight: Any, groups: ArrayLike | None) -> Rows:
    """The rows that count, checked: inputs on the device; labels, weights and groups as arrays."""
    try:
        device = torch.empty(0, device=model.device).device
    except (AssertionError, RuntimeError) as error:  # what PyTorch raises, by kind of device
        raise ValueError(
            f"expected a device that this PyTorch can use, got device={model.device!r}: {error}"
        ) from error
    inputs: Inputs
    if is_dask(X):
        inputs = DaskInputs.of(X)
        if groups is not None:
            raise ValueError(
                "expected no groups where X is a Dask collection, got some: fit to a sample of "
                "whole groups that is in memory"
            )
        remember_columns(model, X)
        y = read_labels(on_client(y, inputs, "y"))
        if len(y) != len(inputs):
            raise ValueError(f"expected {len(inputs)} labels, one a row of X, got {len(y)}")
        sample_weight = on_client(sample_weight, inputs, "sample_weight")
    else:
        labels = read_labels(y)
        Z, y = validate_data(
            model, untensored(X), labels, dtype=np.float64, order="C", accept_sparse="csr"
        )
        Z = canonical(Z)
        y = np.asarray(y)
        inputs = SparseInputs(Z) if issparse(Z) else DenseInputs(torch.from_numpy(Z).to(device))
    if device.type != "cpu" and not isinstance(inputs, DenseInputs):
        raise ValueError(
            f"expected device='cpu' for inputs that are sparse or Dask's, got {model.device!r}: "
            "set it, or give an array"
        )
    largest = inputs.largest()
    if largest and not SIZES[0] <= largest <= SIZES[1]:
        raise ValueError(
            f"expected inputs whose largest is within {SIZES[0]} and {SIZES[1]}, or 0, got "
            f"{largest:.3g}: scale them"
        )
    weight = check_weights(sample_weight, y)
    rows = Rows(inputs, y, weight)
    if not weight.all():
        rows = rows.some(weight > 0)
    rows.groups = group_numbers(groups, weight > 0)
    return rows
