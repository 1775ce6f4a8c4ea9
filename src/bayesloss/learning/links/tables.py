r"""A posterior over links as functions of one variable, tabulated (W&N section 4.2).

In the M-step the posterior of nu enters through two functions of the score x alone,

    E_q[log u(nu(x))]   and   E_q[log(1 - u(nu(x)))],   u the loss's inverse canonical link,

and a prediction through a third, the log odds of E_q[u(nu(x))]. With their derivatives, which (13)
gives, they are tabulated once an E-step and interpolated: what an M-step costs depends neither on
the number of basis functions nor on that of posterior draws.
"""

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bayesloss.learning.sources.priors import SourcePrior, trigonometric
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.proper_losses import ProperLoss

__all__ = [
    "HermiteTable",
    "enough_nodes",
    "expected_log_probabilities",
    "moved",
    "predictive_log_odds",
    "table_nodes",
]

_PERIODS = 3  # of the kernel that a table covers; beyond them its functions are straight lines
_NODES = 400  # for each half period, more than six for a wave of the highest harmonic of f^2


class HermiteTable:
    """Functions of one variable given by values and slopes at equally spaced nodes.

    Between two nodes each is the cubic with their values and slopes; outside, a straight line. The
    error is (step)^4 / 384 times the largest fourth derivative.

    Parameters
    ----------
    nodes : Tensor of shape (T,)
        Equally spaced, ascending.
    values, slopes : Tensor of shape (R, T)
        A row for each of R functions.
    """

    def __init__(self, nodes: Tensor, values: Tensor, slopes: Tensor) -> None:
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
        """Value and slope at x of the functions in the rows given, both of the shape of x.

        Parameters
        ----------
        x : Tensor of any shape
        row : int, or Tensor of integers of the shape of x, default=0
        """
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

    def held(self, end: float) -> "HermiteTable":
        """The same functions within [-end, end], which lies among the nodes; constant outside."""
        other = copy.copy(self)
        other.end = end
        return other

    def to(self, device: torch.device) -> "HermiteTable":
        """The same table on another device."""
        return moved([self], device)[0]


def moved(tables: Sequence[HermiteTable], device: torch.device) -> list[HermiteTable]:
    """The same tables on another device, sent there together."""
    sent = torch.cat([table.coefficients for table in tables]).to(device)
    others = [copy.copy(table) for table in tables]
    parts = sent.split([len(table.coefficients) for table in tables])
    for other, part in zip(others, parts, strict=True):
        other.coefficients = part
    return others


def table_nodes(prior: SourcePrior[TrigonometricKernel], reach: float = math.inf) -> Tensor:
    """Where functions of nu are tabulated: up to three of the kernel's periods, 800 nodes each.

    As many periods as scores of absolute value up to `reach` lie in.

    Raises
    ------
    TypeError
        If the prior has another basis than a TrigonometricKernel.
    """
    return _equal_steps(prior, reach, _NODES)


def enough_nodes(prior: SourcePrior[TrigonometricKernel], reach: float = math.inf) -> Tensor:
    """The same periods with as many nodes as M asks for: twelve for a wave of f^2's highest one."""
    return _equal_steps(prior, reach, 6 * prior.kernel.n_basis)


def _equal_steps(prior: SourcePrior[TrigonometricKernel], reach: float, n_half: int) -> Tensor:
    """Nodes with n_half steps for each half period."""
    edge = trigonometric(prior, "whose periods the table covers").edge
    periods = max(1, math.ceil(min(reach / edge, _PERIODS)))
    return torch.linspace(
        -periods * edge, periods * edge, 2 * periods * n_half + 1, dtype=torch.float64
    )


def expected_log_probabilities(
    prior: SourcePrior[TrigonometricKernel],
    loss: ProperLoss,
    Gamma: Tensor,
    nodes: Tensor | None = None,
) -> HermiteTable:
    """The means of log(1 - u(nu(x))), row 0, and of log u(nu(x)), row 1, over draws of Gamma.

    Parameters
    ----------
    prior : SourcePrior
    loss : ProperLoss
        With a canonical link onto all real numbers.
    Gamma : Tensor of shape (S, M + 1)
    nodes : Tensor of shape (T,), optional
        Others than :func:`table_nodes` gives.
    """
    nodes = table_nodes(prior) if nodes is None else nodes
    value, first, _ = loss.log_probabilities(prior.source(nodes, Gamma))
    slope = first * prior.derivative(nodes, Gamma)
    return HermiteTable(nodes, value.mean(dim=1), slope.mean(dim=1))  # Q of section 4.2, a datum


def predictive_log_odds(
    prior: SourcePrior[TrigonometricKernel], loss: ProperLoss, Gamma: Tensor
) -> HermiteTable:
    """The log odds of the mean of u(nu(x)) over draws of Gamma, as a table of one row.

    Both tails are averaged on the log scale: the odds keep their digits where a probability would
    be rounded to 0 or 1.
    """
    nodes = table_nodes(prior)
    value, first, _ = loss.log_probabilities(prior.source(nodes, Gamma))
    slope = first * prior.derivative(nodes, Gamma)
    mean = value.logsumexp(dim=1)  # eq. (4) averaged, less log S, which cancels
    slopes = (torch.softmax(value, dim=1) * slope).sum(dim=1)
    return HermiteTable(nodes, (mean[1] - mean[0])[None], (slopes[1] - slopes[0])[None])
