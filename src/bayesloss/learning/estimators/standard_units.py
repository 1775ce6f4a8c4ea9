r"""Standard units of inputs and targets, so that the start of a fit suits any units.

Inputs, mapped by g (:mod:`bayesloss.learning.data.range_map`), span [-1, 1]; targets have mean 0
and standard deviation 1, and decreasing ones are turned by a negative scale:

    u = (g(x) - x_location) / x_scale,      v = (y - y_location) / y_scale.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayesloss.arrays import Array
from bayesloss.learning.data.range_map import DEPTHS, RangeMap
from bayesloss.learning.data.rows import Rows, extremes, largest

_TINY = np.finfo(np.float64).tiny


class Moments(NamedTuple):
    """In standard units: the sum of weights, the correlation, and the inputs' spread."""

    total: float
    correlation: float
    x_spread: float

    @property
    def direction_in_doubt(self) -> bool:
        """Whether its sign may be an accident of sampling, by Fisher's transformation."""
        n = self.total
        return n > 3 and abs(self.correlation) < math.tanh(1.96 / math.sqrt(n - 3))


@dataclass(frozen=True)
class StandardUnits:
    """The map of the inputs, locations and scales."""

    range_map: RangeMap
    x_location: float
    x_scale: float
    y_location: float
    y_scale: float

    @classmethod
    def of(cls, rows: Rows, robust: bool) -> tuple["StandardUnits", Moments]:
        """Learn them, as if targets increased; refuse values that are not finite or hardly vary."""
        x_ends, y_ends = rows.fold(extremes, merge=largest).reshape(2, 2) * [-1, 1]
        _check_ends(x_ends, y_ends, rows)
        range_map = RangeMap()
        if robust:
            range_map = RangeMap.fit(*rows.distribution(DEPTHS))
        low, high = range_map(x_ends) / 2
        if high - low < _TINY:
            found = f"{2 * (high - low):.3g}: rescale them"
            raise ValueError(f"expected inputs that vary by more than {2 * _TINY:.3g}, got {found}")
        total, target = rows.fold(lambda x, y, w: np.array([w.sum(), (w * y).sum()])).tolist()
        # As yet a power of two near the scale keeps squares and products in floating point's range.
        rough = 2.0 ** math.frexp(float(np.diff(y_ends)[0]))[1]
        units = cls(range_map, low + high, high - low, target / total, rough)
        x_mean, x_square, product, y_square = (rows.fold(_moments, units) / total).tolist()
        x_spread, y_spread = math.sqrt(x_square - x_mean**2), math.sqrt(y_square)
        units = cls(range_map, low + high, high - low, target / total, rough * y_spread)
        return units, Moments(total, product / (x_spread * y_spread), x_spread)

    def inputs(self, x: Array) -> Tensor:
        """Inputs in standard units."""
        return torch.from_numpy((self.range_map(x) - self.x_location) / self.x_scale)

    def targets(self, y: Array) -> Tensor:
        """Targets in standard units."""
        return torch.from_numpy((y - self.y_location) / self.y_scale)

    def original_inputs(self, u: list[float]) -> list[float]:
        """Inputs in their own units."""
        return self.range_map.inverse(self.x_location + self.x_scale * np.array(u)).tolist()

    def original_targets(self, v: Tensor) -> Array:
        """Targets in their own units."""
        return self.y_location + self.y_scale * v.numpy()


def _check_ends(x: Array, y: Array, rows: Rows) -> None:
    for name, ends in (("X", x), ("y", y)):
        if np.isnan(ends).any() or (np.isinf(ends).any() and ends[0] <= ends[1]):
            raise ValueError(f"expected finite {name}, got NaN or infinity")
    if x[0] >= x[1]:
        raise ValueError(f"expected at least 2 distinct inputs, got {int(x[0] == x[1])}")
    if y[0] == y[1]:
        n = rows.fold(lambda x, y, weight: len(x))
        raise ValueError(f"expected a target that varies, got {n} times {y[0]}")
    spread, (least, most) = y[1] / 2 - y[0] / 2, (1e-150, 1e150)  # whose squares are numbers
    if not least < spread < most:
        found = f"{2 * spread:.3g}: rescale it"
        raise ValueError(f"expected a target that varies by {least:g} to {most:g}, got {found}")


def _moments(x: Array, y: Array, weight: Array, units: StandardUnits) -> Array:
    """The sums of u, u^2, u v and v^2."""
    u, v = units.inputs(x).numpy(), units.targets(y).numpy()
    wu = weight * u
    return np.array([wu.sum(), wu @ u, wu @ v, (weight * v**2).sum()])
