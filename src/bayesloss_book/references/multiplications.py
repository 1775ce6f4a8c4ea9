"""Multiplications, counted by the numbers that are multiplied, in textbook loops."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bayesloss.kernels import SquaredExponential
from bayesloss_book.models.gp_regression import GPRegression

_NOISE = 0.04


class Counted(float):
    """A number; `steps` is how often such numbers were multiplied, divided or their root taken."""

    steps = 0

    def __mul__(self, other: Any) -> "Counted":
        Counted.steps += 1
        return Counted(float(self) * float(other))

    def __truediv__(self, other: Any) -> "Counted":
        Counted.steps += 1
        return Counted(float(self) / float(other))

    def __add__(self, other: Any) -> "Counted":
        return Counted(float(self) + float(other))

    def __sub__(self, other: Any) -> "Counted":
        return Counted(float(self) - float(other))

    def sqrt(self) -> "Counted":
        """The square root, which NumPy asks its objects for."""
        Counted.steps += 1
        return Counted(math.sqrt(self))


Array = NDArray[np.object_]


def problem(n: int, m: int) -> tuple[GPRegression, torch.Tensor]:
    """A model of n data and m test inputs, far enough apart for plain loops."""
    x = torch.arange(n, dtype=torch.float64)
    model = GPRegression(SquaredExponential(a=1.0), x, torch.cos(x), noise_variance=_NOISE)
    return model, n / 2 + 1.3 * torch.arange(m, dtype=torch.float64)


def objects(values: torch.Tensor) -> Array:
    """The same numbers, counted."""
    flat = np.array([Counted(v) for v in values.flatten().tolist()], dtype=object)
    return flat.reshape(tuple(values.shape))


def gram(rows: Array, others: Array | None = None) -> Array:
    """The lower half of rows.T @ others."""
    others = rows if others is None else others
    k = rows.shape[1]
    out = np.full((k, k), Counted(0.0), dtype=object)
    for i in range(k):
        for j in range(i + 1):
            out[i, j] = rows[:, i] @ others[:, j]
    return out


def solve(A: Array, right: Array) -> Array:
    """By Cholesky's factor of the lower half and two substitutions."""
    k = len(A)
    L = np.full((k, k), Counted(0.0), dtype=object)
    for j in range(k):
        L[j, j] = (A[j, j] - L[j, :j] @ L[j, :j]).sqrt() if j else A[j, j].sqrt()
        for i in range(j + 1, k):
            L[i, j] = (A[i, j] - L[i, :j] @ L[j, :j] if j else A[i, j]) / L[j, j]
    z = forward(L, right.copy())
    for i in reversed(range(k)):
        z[i] = (z[i] - L[i + 1 :, i] @ z[i + 1 :] if i + 1 < k else z[i]) / L[i, i]
    return z


def forward(L: Array, right: Array) -> Array:
    """By substitution, in place."""
    for i in range(len(L)):
        right[i] = (right[i] - L[i, :i] @ right[:i] if i else right[i]) / L[i, i]
    return right
