r"""Standard units of inputs and targets, so that the start of a fit suits any units.

Inputs, mapped by g (:mod:`bayesloss.learning.data.range_map`), span [-1, 1]; targets have mean 0
and standard deviation 1, and decreasing ones are turned by a negative scale:

    u = (g(x) - x_location) / x_scale,      v = (y - y_location) / y_scale.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayesloss.arrays import Array
from bayesloss.learning.data.range_map import DEPTHS, RangeMap
from bayesloss.learning.data.rows import Rows, extremes, largest

_TINY = np.finfo(np.float64).tiny  # smaller numbers have fewer digits
# Targets may vary by as much or as little: squares, and their sums, stay numbers.
_LEAST_SPREAD = 1e-150
_MOST_SPREAD = 1e150


class Moments(NamedTuple):
    """In standard units: the sum of weights, the correlation, and the inputs' spread."""

    total: float
    correlation: float
    x_spread: float

    @property
    def direction_in_doubt(self) -> bool:
        """Whether its sign may be an accident of sampling, by Fisher's transformation."""
        n = self.total
        # The transformed correlation has the variance 1 / (n - 3); 1.96 as for 95 %, both sides.
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
            points, weight = rows.distribution(DEPTHS)
            range_map = RangeMap.fit(points, weight)
        low, high = range_map(x_ends) / 2  # halves, so that their sum and difference are finite
        x_scale = high - low
        if x_scale < _TINY:
            got = f"{2 * x_scale:.3g}: rescale them"
            raise ValueError(f"expected inputs that vary by more than {2 * _TINY:.3g}, got {got}")
        total, target = rows.fold(lambda x, y, w: np.array([w.sum(), (w * y).sum()])).tolist()
        # As yet a power of two near the scale keeps squares and products in floating point's range.
        _, exponent = math.frexp(float(np.diff(y_ends)[0]))
        rough = cls(
            range_map=range_map,
            x_location=low + high,
            x_scale=x_scale,
            y_location=target / total,
            y_scale=2.0**exponent,
        )
        x_mean, x_square, product, y_square = (rows.fold(_moments, rough) / total).tolist()
        x_spread = math.sqrt(x_square - x_mean**2)
        y_spread = math.sqrt(y_square)
        units = replace(rough, y_scale=rough.y_scale * y_spread)
        correlation = product / (x_spread * y_spread)
        return units, Moments(total=total, correlation=correlation, x_spread=x_spread)

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
    spread = y[1] / 2 - y[0] / 2
    if not _LEAST_SPREAD < spread < _MOST_SPREAD:
        limits = f"{_LEAST_SPREAD:g} to {_MOST_SPREAD:g}"
        got = f"{2 * spread:.3g}: rescale it"
        raise ValueError(f"expected a target that varies by {limits}, got {got}")


def _moments(x: Array, y: Array, weight: Array, units: StandardUnits) -> Array:
    """The sums of u, u^2, u v and v^2."""
    u = units.inputs(x).numpy()
    v = units.targets(y).numpy()
    wu = weight * u
    return np.array([wu.sum(), wu @ u, wu @ v, (weight * v**2).sum()])
