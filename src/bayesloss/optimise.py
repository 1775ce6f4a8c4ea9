"""From functions of tensors to SciPy's minimisers.

A function returns its value and its gradient, or :func:`differentiated` derives the latter. Values
that are not finite become a flat mountain, from which a line search turns back.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

Evaluation = Callable[[Tensor], tuple[float, Tensor]]  # a point's value and the gradient there

_MOUNTAIN = 1e12


@dataclass(frozen=True)
class Minimum:
    """Where a search ended, the value and the gradient there, and SciPy's own report."""

    point: Tensor
    value: float
    gradient: Tensor
    converged: bool
    message: str


def differentiated(function: Callable[[Tensor], Tensor]) -> Evaluation:
    """A function of a tensor, together with its gradient by automatic differentiation."""

    def evaluate(point: Tensor) -> tuple[float, Tensor]:
        point = point.requires_grad_()
        value = function(point)
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient

    return evaluate


def minimise(
    evaluate: Evaluation,
    start: Float[Tensor, " p"],
    *,
    bounds: Float[Tensor, "p 2"] | None = None,
    method: str = "L-BFGS-B",
    options: Mapping[str, Any] | None = None,
) -> Minimum:
    """Search for a minimum from one start; options are those that SciPy has for the method."""

    def numbers(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient = evaluate(torch.from_numpy(vector.copy()))
        if not math.isfinite(value):
            return _MOUNTAIN, np.zeros_like(vector)
        return value, gradient.numpy()

    found = minimize(
        numbers, start.numpy(), jac=True, method=method, bounds=bounds, options=dict(options or {})
    )
    return Minimum(
        point=torch.from_numpy(found.x),
        value=float(found.fun),
        gradient=torch.from_numpy(found.jac),
        converged=bool(found.success),
        message=str(found.message),
    )
