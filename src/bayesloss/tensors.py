"""Numbers and arrays to tensors of float64."""

import math

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor


def as_float64(values: ArrayLike | Tensor) -> Tensor:
    """Real numbers as a float64 tensor that keeps gradients; complex ones are a ValueError."""
    is_complex = values.is_complex() if isinstance(values, Tensor) else np.iscomplexobj(values)
    if is_complex:
        raise ValueError("expected real numbers, got complex ones")
    if not isinstance(values, Tensor):  # PyTorch takes no negative strides, and no pandas.Series
        values = np.array(values, dtype=np.float64, order="C")
    return torch.as_tensor(values, dtype=torch.float64)


def as_probabilities(values: ArrayLike | Tensor) -> Tensor:
    """Numbers from 0 to 1, both included, of any shape."""
    u = as_float64(values)
    return _checked(u, (u >= 0) & (u <= 1), "probabilities in [0, 1]")


def as_labels(values: ArrayLike | Tensor) -> Tensor:
    """Labels -1 and 1, of any shape."""
    y = as_float64(values)
    return _checked(y, y.abs() == 1, "labels -1 and 1")


def as_canonical_scores(values: ArrayLike | Tensor) -> Tensor:
    """Scores of a loss's canonical link, finite or infinite and never NaN, of any shape."""
    a = as_float64(values)
    return _checked(a, ~torch.isnan(a), "scores, finite or infinite")


def _checked(values: Tensor, valid: Tensor, expected: str) -> Tensor:
    """The values, or a ValueError with the first that is not valid."""
    if not bool(valid.all()):
        raise ValueError(f"expected {expected}, got {float(values[~valid].flatten()[0])}")
    return values


def as_number(value: float | Tensor) -> float:
    """A hyper-parameter as a float, also where it is a tensor that requires a gradient."""
    if isinstance(value, Tensor):
        value = value.detach()
    return float(value)


@torch.inference_mode(False)  # it is kept, for gradients, too
def as_scalar(value: float | Tensor) -> Tensor:
    """A hyper-parameter as a float64 tensor of shape (), its gradient kept."""
    return torch.as_tensor(value, dtype=torch.float64)


def as_positive(value: float | Tensor, name: str, above: float = 0.0) -> Tensor:
    """The same, or a ValueError unless it is finite and above a limit."""
    number = as_scalar(value)
    if number.ndim or not above < as_number(number) < math.inf:
        raise ValueError(f"expected a finite {name} > {above:g}, got {name}={number.tolist()}")
    return number


def as_points(x: Tensor, name: str = "x") -> Tensor:
    """Points on a line as a float64 tensor of shape (n,); other shapes are a ValueError."""
    if x.ndim != 1:
        raise ValueError(f"expected {name} of shape (n,), got {tuple(x.shape)}")
    return x.to(torch.float64)  # integers would be taken in single precision
