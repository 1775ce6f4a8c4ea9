"""A posterior over links as functions of one variable, tabulated (W&N section 4.2).

In the M-step the posterior of nu enters only through two functions of the score x,

    E_q[log u(nu(x))]   and   E_q[log(1 - u(nu(x)))],   u the loss's inverse canonical link,

and in a prediction through the log odds of E_q[u(nu(x))]. They and their derivatives (13) are
tabulated once per E-step, so that an M-step's cost depends on neither basis functions nor draws,
by Hermite's cubics, whose errors are step^4 / 384 times the fourth derivative.
"""

import copy
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.sources.priors import SourcePrior, trigonometric
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.proper_losses import ProperLoss

Prior = SourcePrior[TrigonometricKernel]


class HermiteTable:
    """Cubics with given values and slopes at equally spaced nodes; straight lines outside."""

    def __init__(
        self, nodes: Float[Tensor, " t"], values: Float[Tensor, "r t"], slopes: Float[Tensor, "r t"]
    ) -> None:
        self.low = float(nodes[0])
        self.high = float(nodes[-1])
        self.end = math.inf
        self.cells = len(nodes) - 1
        self.step = (self.high - self.low) / self.cells
        start = values[:, :-1]
        gain = values[:, 1:] - start
        rise = self.step * slopes[:, :-1]
        rise_at_end = self.step * slopes[:, 1:]
        square = 3 * gain - 2 * rise - rise_at_end
        cube = rise + rise_at_end - 2 * gain
        cubic = [start, rise, square, cube]
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


def to_device(tables: Sequence[HermiteTable], device: torch.device) -> list[HermiteTable]:
    """The same tables on another device, sent there together."""
    sent = torch.cat([table.coefficients for table in tables]).to(device)
    others = [copy.copy(table) for table in tables]
    parts = sent.split([len(table.coefficients) for table in tables])
    for other, part in zip(others, parts, strict=True):
        other.coefficients = part
    return others


def table_nodes(prior: Prior, reach: float = math.inf, n_half: int = 400) -> Tensor:
    """Equal steps, so many for each half period, for scores up to `reach`, at most three periods.

    Beyond, functions are straight lines. 400 are 12.5 for each wave of f^2's highest harmonic where
    M is 64: a half period has M / 2 of these waves.
    """
    edge = trigonometric(prior, "whose periods the table covers").edge
    periods = max(1, math.ceil(min(reach / edge, 3)))
    end = periods * edge
    return torch.linspace(-end, end, 2 * periods * n_half + 1, dtype=torch.float64)


def enough_nodes(prior: Prior, reach: float = math.inf) -> Tensor:
    """The same periods with nodes for M: twelve per wave of the highest harmonic."""
    return table_nodes(prior, reach, 6 * prior.kernel.n_basis)


def expected_log_probabilities(
    prior: Prior, loss: ProperLoss, Gamma: Float[Tensor, "s m"], nodes: Tensor | None = None
) -> HermiteTable:
    """The means over draws of log(1 - u(nu(x))), row 0, and log u(nu(x)), row 1, at nodes."""
    if nodes is None:
        nodes = table_nodes(prior)
    value, first, _ = loss.log_probabilities(prior.source(nodes, Gamma))
    slope = first * prior.derivative(nodes, Gamma)
    return HermiteTable(nodes, value.mean(dim=1), slope.mean(dim=1))  # Q of section 4.2, a datum


def predictive_log_odds(
    prior: Prior, loss: ProperLoss, Gamma: Float[Tensor, "s m"]
) -> HermiteTable:
    """The log odds of the mean of u(nu(x)) over draws; tails would round to 0 or 1 but for logs."""
    nodes = table_nodes(prior)
    value, first, _ = loss.log_probabilities(prior.source(nodes, Gamma))
    slope = first * prior.derivative(nodes, Gamma)
    mean = value.logsumexp(dim=1)  # eq. (4) averaged, less log S, which cancels
    slopes = (torch.softmax(value, dim=1) * slope).sum(dim=1)
    return HermiteTable(nodes, (mean[1] - mean[0])[None], (slopes[1] - slopes[0])[None])
