"""The toys of W&N's appendix (Figures 3 and 5 to 8): their data, and the truth behind them.

The paper says which kernel (c = 1/100, so that f repeats every 200). It gives neither the true
functions nor the data nor, for labels, their number; all are chosen here.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

PERIOD = 200.0  # of f, with c = 1/100

REACH = 50.0  # inputs lie in [-50, 50]: half of the period
NOISE = 0.3  # standard deviation of the targets about the true nu


# Each is a non-decreasing nu and its derivative: two steep rises between flat parts, and a curve
# that is flat in the middle and steep at both ends.
TRUTHS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "steps": (
        lambda x: torch.tanh((x + 25) / 6) + 1.5 * torch.tanh((x - 15) / 10),
        lambda x: 1 / (6 * torch.cosh((x + 25) / 6) ** 2) + 0.15 / torch.cosh((x - 15) / 10) ** 2,
    ),
    "cubic": (lambda x: 2 * (x / 50) ** 3 + 0.5 * x / 50, lambda x: (6 * (x / 50) ** 2 + 0.5) / 50),
}
# Corners (x, nu) of the true sources: one with a plateau below even odds, one with a single bend.
KNOTS = {
    "plateau": ((-50.0, -4.0), (-25.0, -1.0), (5.0, -0.5), (25.0, 2.5), (50.0, 3.5)),
    "bend": ((-50.0, -1.0), (10.0, 0.0), (50.0, 4.0)),
}


@dataclass(frozen=True)
class Problem:
    """Data, and the truth behind them."""

    x: Tensor  # (n,), inputs, and targets or labels
    y: Tensor  # (n,)
    # the true nu and its derivative (from the right, at a corner), of tensors of any shape
    source: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]


def regression_problem(n: int, seed: int, truth: str = "steps") -> Problem:
    """Inputs uniform on [-50, 50] and targets nu(x) with Gaussian noise of deviation 0.3."""
    source, slope = TRUTHS[truth]
    x, generator = _inputs(n, seed)
    noise = NOISE * torch.randn(n, dtype=torch.float64, generator=generator)
    return Problem(x, source(x) + noise, source, slope)


def grid(reach: float = REACH, n: int = 201) -> Tensor:
    """Points on [-reach, reach] at which curves are drawn and compared."""
    return torch.linspace(-reach, reach, n, dtype=torch.float64)


def classification_problem(n: int, seed: int, truth: str = "plateau") -> Problem:
    """Inputs uniform on [-50, 50]; a label is 1 with probability 1 / (1 + exp(-nu(x)))."""
    knots = KNOTS[truth]
    corners, values = torch.tensor(knots, dtype=torch.float64).T.contiguous()
    slopes = values.diff() / corners.diff()

    def piece(x: Tensor) -> Tensor:
        """Which line x is on; the outer ones go on for ever."""
        return (torch.bucketize(x.contiguous(), corners, right=True) - 1).clamp(0, len(slopes) - 1)

    def source(x: Tensor) -> Tensor:
        return values[piece(x)] + slopes[piece(x)] * (x - corners[piece(x)])

    def slope(x: Tensor) -> Tensor:
        return slopes[piece(x)]

    x, generator = _inputs(n, seed)
    uniform = torch.rand(n, dtype=torch.float64, generator=generator)
    return Problem(x, (uniform < torch.sigmoid(source(x))).to(torch.float64), source, slope)


def _inputs(n: int, seed: int) -> tuple[Tensor, torch.Generator]:
    """Inputs uniform on [-50, 50], and the generator that goes on to draw the noise."""
    generator = torch.Generator().manual_seed(seed)
    return REACH * (2 * torch.rand(n, dtype=torch.float64, generator=generator) - 1), generator
