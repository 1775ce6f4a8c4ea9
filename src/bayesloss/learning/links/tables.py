"""A posterior over links as functions of one variable, tabulated (W&N section 4.2).

In the M-step the posterior of nu enters only through two functions of the score x,

    E_q[log u(nu(x))]   and   E_q[log(1 - u(nu(x)))],   u the loss's inverse canonical link,

and in a prediction through the log odds of E_q[u(nu(x))]. They and their derivatives (13) are
tabulated once per E-step, so that an M-step's cost depends on neither basis functions nor draws.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.data.hermite import HermiteTable
from bayesloss.learning.sources.priors import SourcePrior, trigonometric
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.proper_losses import ProperLoss

_PERIODS = 3  # of the kernel that a table covers; beyond them its functions are straight lines
_NODES = 400  # for each half period, more than six for a wave of the highest harmonic of f^2


def table_nodes(
    prior: SourcePrior[TrigonometricKernel], reach: float = math.inf, n_half: int = _NODES
) -> Tensor:
    """Equal steps, 800 a period, for scores up to `reach`, at most three periods."""
    edge = trigonometric(prior, "whose periods the table covers").edge
    periods = max(1, math.ceil(min(reach / edge, _PERIODS)))
    end, steps = periods * edge, 2 * periods * n_half
    return torch.linspace(-end, end, steps + 1, dtype=torch.float64)


def enough_nodes(prior: SourcePrior[TrigonometricKernel], reach: float = math.inf) -> Tensor:
    """The same periods with nodes for M: twelve per wave of the highest harmonic."""
    return table_nodes(prior, reach, 6 * prior.kernel.n_basis)


def expected_log_probabilities(
    prior: SourcePrior[TrigonometricKernel],
    loss: ProperLoss,
    Gamma: Float[Tensor, "s m"],
    nodes: Float[Tensor, " t"] | None = None,
) -> HermiteTable:
    """The means over draws of log(1 - u(nu(x))), row 0, and log u(nu(x)), row 1, at nodes."""
    nodes = table_nodes(prior) if nodes is None else nodes
    value, first, _ = loss.log_probabilities(prior.source(nodes, Gamma))
    slope = first * prior.derivative(nodes, Gamma)
    return HermiteTable(nodes, value.mean(dim=1), slope.mean(dim=1))  # Q of section 4.2, a datum


def predictive_log_odds(
    prior: SourcePrior[TrigonometricKernel], loss: ProperLoss, Gamma: Float[Tensor, "s m"]
) -> HermiteTable:
    """The log odds of the mean of u(nu(x)) over draws; tails would round to 0 or 1 but for logs."""
    nodes = table_nodes(prior)
    value, first, _ = loss.log_probabilities(prior.source(nodes, Gamma))
    slope = first * prior.derivative(nodes, Gamma)
    mean = value.logsumexp(dim=1)  # eq. (4) averaged, less log S, which cancels
    slopes = (torch.softmax(value, dim=1) * slope).sum(dim=1)
    return HermiteTable(nodes, (mean[1] - mean[0])[None], (slopes[1] - slopes[0])[None])
