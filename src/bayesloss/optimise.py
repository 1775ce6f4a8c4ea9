"""SciPy's L-BFGS-B and BFGS on tensors; values that are not finite become a flat mountain."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor

from bayesloss.arrays import Array

Evaluation = Callable[[Tensor], tuple[float, Tensor]]  # a point's value and the gradient there

# Stands for values that are not finite: above any objective's, and finite, as the line search asks.
_MOUNTAIN = 1e12


def differentiated(function: Callable[[Tensor], Tensor]) -> Evaluation:
    """A function together with its gradient by automatic differentiation."""

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
    inverse_hessian: Float[Array, "p p"] | None = None,
    options: Mapping[str, Any],
) -> OptimizeResult:
    """SciPy's L-BFGS-B from one start, or BFGS from an inverse Hessian, with its options."""

    def evaluate_array(point: Array) -> tuple[float, Array]:
        value, gradient = evaluate(torch.from_numpy(point.copy()))
        if not math.isfinite(value):
            return _MOUNTAIN, np.zeros_like(point)
        return value, gradient.numpy()

    if inverse_hessian is not None:
        symmetric = 0.5 * (inverse_hessian + inverse_hessian.T)  # to the last digit, as SciPy asks
        return minimize(
            evaluate_array,
            start.numpy(),
            jac=True,
            method="BFGS",
            options={**options, "hess_inv0": symmetric},
        )
    return minimize(
        evaluate_array,
        start.numpy(),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options=dict(options),
    )
