"""Tables of functions by Hermite's cubics: errors are step^4 / 384 times the fourth derivative."""

import copy
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


class HermiteTable:
    """Cubics with given values and slopes at equally spaced nodes; straight lines outside."""

    def __init__(
        self, nodes: Float[Tensor, " t"], values: Float[Tensor, "r t"], slopes: Float[Tensor, "r t"]
    ) -> None:
        self.low, self.high = float(nodes[0]), float(nodes[-1])
        self.end = math.inf
        self.cells = len(nodes) - 1
        self.step = (self.high - self.low) / self.cells
        start, end = values[:, :-1], values[:, 1:]
        rise, fall = self.step * slopes[:, :-1], self.step * slopes[:, 1:]
        gain = end - start
        cubic = [start, rise, 3 * gain - 2 * rise - fall, rise + fall - 2 * gain]
        self.coefficients = torch.stack(cubic, dim=2).reshape(-1, 4)  # a row for each cell

    def __call__(self, x: Tensor, row: Tensor | int = 0) -> tuple[Tensor, Tensor]:
        """Value and slope at x of the functions in the given rows, both of the shape of x."""
        inside = x.clamp(max(self.low, -self.end), min(self.high, self.end))
        position = (inside - self.low) / self.step
        cell = position.to(torch.int64).clamp_(max=self.cells - 1)
        t = position.sub_(cell)
        zero, one, two, three = self.coefficients[cell.add_(row, alpha=self.cells)].unbind(-1)
        # Horner's rule for both; in place, as new memory costs more than arithmetic.
        value = (three * t).add_(two)
        slope = (three * t).add_(value).mul_(t)
        value.mul_(t).add_(one)
        slope.add_(value).div_(self.step)
        value.mul_(t).add_(zero)
        if self.end < math.inf:
            return value, torch.where(x.abs() > self.end, 0.0, slope)
        return value + slope * (x - inside), slope

    def constant_beyond(self, end: float) -> "HermiteTable":
        """The same functions within [-end, end], where end is a node; constant outside."""
        other = copy.copy(self)
        other.end = end
        return other


def moved(tables: Sequence[HermiteTable], device: torch.device) -> list[HermiteTable]:
    """The same tables on another device, sent there together."""
    sent = torch.cat([table.coefficients for table in tables]).to(device)
    others = [copy.copy(table) for table in tables]
    parts = sent.split([len(table.coefficients) for table in tables])
    for other, part in zip(others, parts, strict=True):
        other.coefficients = part
    return others
