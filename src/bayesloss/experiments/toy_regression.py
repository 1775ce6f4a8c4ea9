"""The toy regression of W&N's appendix (Figures 3, 5, 6 and 7): problems, fits and measurements.

The paper says which kernel (c = 1/100, so that f repeats every 200) and how the hyper-parameters
were found. It gives neither the true function nor the data; both are chosen here.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["NOISE", "REACH", "TRUTHS", "Problem", "problem"]

REACH = 50.0  # inputs lie in [-50, 50]: half of the period
NOISE = 0.3  # standard deviation of the targets about the true nu


def _steps(x: Tensor) -> Tensor:
    return torch.tanh((x + 25) / 6) + 1.5 * torch.tanh((x - 15) / 10)


def _steps_slope(x: Tensor) -> Tensor:
    return 1 / (6 * torch.cosh((x + 25) / 6) ** 2) + 0.15 / torch.cosh((x - 15) / 10) ** 2


def _cubic(x: Tensor) -> Tensor:
    return 2 * (x / 50) ** 3 + 0.5 * x / 50


def _cubic_slope(x: Tensor) -> Tensor:
    return (6 * (x / 50) ** 2 + 0.5) / 50


# Each is a non-decreasing nu and its derivative: two steep rises between flat parts, and a curve
# that is flat in the middle and steep at both ends.
TRUTHS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "steps": (_steps, _steps_slope),
    "cubic": (_cubic, _cubic_slope),
}


@dataclass(frozen=True)
class Problem:
    """Data, and the truth behind them.

    Attributes
    ----------
    x, y : Tensor of shape (n,)
    source, slope : callable
        The true nu and its derivative, of tensors of any shape.
    """

    x: Tensor
    y: Tensor
    source: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]


def problem(n: int, seed: int, truth: str = "steps") -> Problem:
    """Inputs uniform on [-50, 50] and targets nu(x) with Gaussian noise of deviation 0.3.

    Data sets with one seed share nothing but the truth: n is not a prefix.

    Raises
    ------
    ValueError
        If the truth is not known by name.
    """
    if truth not in TRUTHS:
        raise ValueError(f"expected a truth of {list(TRUTHS)}, got {truth!r}")
    source, slope = TRUTHS[truth]
    generator = torch.Generator().manual_seed(seed)
    x = REACH * (2 * torch.rand(n, dtype=torch.float64, generator=generator) - 1)
    noise = NOISE * torch.randn(n, dtype=torch.float64, generator=generator)
    return Problem(x, source(x) + noise, source, slope)
