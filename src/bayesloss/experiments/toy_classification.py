"""The toy classification of W&N's appendix (Figure 8): labels from a piecewise linear source.

The paper gives neither the true function nor the number of data; both are chosen here.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["KNOTS", "Problem", "problem"]

# Corners (x, nu) of the true sources: one with a plateau below even odds, one with a single bend.
KNOTS = {
    "plateau": ((-50.0, -4.0), (-25.0, -1.0), (5.0, -0.5), (25.0, 2.5), (50.0, 3.5)),
    "bend": ((-50.0, -1.0), (10.0, 0.0), (50.0, 4.0)),
}


@dataclass(frozen=True)
class Problem:
    """Data, and the truth behind them.

    Attributes
    ----------
    x, y : Tensor of shape (n,)
        Inputs, and labels 0 and 1.
    source, slope : callable
        The true nu and its derivative (from the right, at a corner).
    """

    x: Tensor
    y: Tensor
    source: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]


def problem(n: int, seed: int, truth: str = "plateau") -> Problem:
    """Inputs uniform on [-50, 50]; a label is 1 with probability 1 / (1 + exp(-nu(x))).

    Raises
    ------
    ValueError
        If the truth is not known by name.
    """
    if truth not in KNOTS:
        raise ValueError(f"expected a truth of {list(KNOTS)}, got {truth!r}")
    corners, values = torch.tensor(KNOTS[truth], dtype=torch.float64).T.contiguous()
    slopes = values.diff() / corners.diff()

    def piece(x: Tensor) -> Tensor:
        """Which line x is on; the outer ones go on for ever."""
        return (torch.searchsorted(corners, x.contiguous(), right=True) - 1).clamp(
            0, len(slopes) - 1
        )

    def source(x: Tensor) -> Tensor:
        return values[piece(x)] + slopes[piece(x)] * (x - corners[piece(x)])

    def slope(x: Tensor) -> Tensor:
        return slopes[piece(x)]

    generator = torch.Generator().manual_seed(seed)
    x = 50 * (2 * torch.rand(n, dtype=torch.float64, generator=generator) - 1)
    uniform = torch.rand(n, dtype=torch.float64, generator=generator)
    y = (uniform < torch.sigmoid(source(x))).to(torch.float64)
    return Problem(x, y, source, slope)
