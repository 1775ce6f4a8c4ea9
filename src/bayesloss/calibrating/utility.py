r"""The utility :math:`U_M = M - L`, with which loss-EM weighs the posterior (LHG section 3).

Of decisions on S target inputs, with costs :math:`\ell_s` and margins :math:`t_s`, it is LHG (7)
and (12) with the same mass on every target,

.. math:: U_M(\theta, h) = M - \tfrac1S \sum_s \ell_s \Phi(-t_s(\theta)).
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.decision_theory import checked_losses


def utility(losses: Tensor, M: float) -> Tensor:
    """The utility M - L, LHG eq. (7); zero at the largest loss if M equals it (LHG section 5)."""
    return M - losses_below(losses, M)  # LHG eq. (7)


def losses_below(losses: Tensor, M: float) -> Tensor:
    """Losses as float64 of shape (K, A), all at most a finite M, or a ValueError."""
    losses = checked_losses(losses)
    if not float(losses.max()) <= M < math.inf:
        raise ValueError(
            f"expected a finite M of at least the largest loss {losses.max()}, got {M}"
        )
    return losses


def check_max_loss(max_loss: float | None, costs: CostMatrix) -> float:
    """M, or the larger cost if none is given; below it the utility could be negative."""
    largest = max(costs.c_plus, costs.c_minus)
    if max_loss is None:
        return largest
    if not largest <= max_loss < torch.inf:
        raise ValueError(f"expected a finite max_loss >= the larger cost {largest}, got {max_loss}")
    return float(max_loss)


class Derivatives(NamedTuple):
    """Of the log utility by the weights; minus the Hessian may be indefinite, its stand-in not."""

    gradient: Tensor
    minus_hessian: Tensor
    semidefinite: Tensor


class LogExpectation(NamedTuple):
    """The log of the utility's mean under a Gaussian, and its derivatives by that one's mean."""

    value: Tensor
    gradient: Tensor
    hessian: Tensor


@dataclass(frozen=True)
class _Slope:
    """The utility in units of M, its log's gradient, and what the Hessian of the log is made of."""

    relative: Float[Tensor, "*m"]
    gradient: Float[Tensor, "*m r"]
    outer: Float[Tensor, "*m r r"]  # the gradient times itself
    bend: Float[Tensor, "*m s"]  # what each target adds along its features


@dataclass(frozen=True)
class LogUtility:
    """The log utility of decisions on targets, +1 or -1, as a function of whitened weights z."""

    features: Float[Tensor, "*m s r"]
    noise: Float[Tensor, "*m s"]
    decisions: Float[Tensor, "*m s"]
    costs: CostMatrix
    max_loss: float

    def select(self, rows: Int[Tensor, " k"]) -> "LogUtility":
        """The same for some of the data sets."""
        return replace(
            self,
            features=self.features[rows],
            noise=self.noise[rows],
            decisions=self.decisions[rows],
        )

    def utility(self, z: Float[Tensor, "*m r"]) -> Float[Tensor, "*m"]:
        """M - L."""
        return self.max_loss * self._relative(self._cost(), self._margin(z))

    def value(self, z: Float[Tensor, "*m r"]) -> Float[Tensor, "*m"]:
        """The log utility."""
        return self._relative(self._cost(), self._margin(z)).log() + math.log(self.max_loss)

    def derivatives(self, z: Float[Tensor, "*m r"]) -> Derivatives:
        """The last term of LHG (27), minus the (indefinite) Hessian, and that made semidefinite."""
        slope = self._slope(z)
        return Derivatives(
            gradient=slope.gradient,
            minus_hessian=self._spread(slope.bend) + slope.outer,
            semidefinite=self._spread(slope.bend.clamp(min=0.0)) + slope.outer,
        )

    def log_expectation(
        self, mean: Float[Tensor, "*m r"], covariance: Float[Tensor, "*m r r"]
    ) -> LogExpectation:
        """The log of the utility's mean under a Gaussian, with its derivatives."""
        variance = ((self.features @ covariance) * self.features).sum(-1)
        # A Gaussian only adds its variance to the noise: GPML (3.82).
        wide = replace(self, noise=(self.noise**2 + variance).sqrt())
        slope = wide._slope(mean)
        return LogExpectation(
            value=slope.relative.log() + math.log(self.max_loss),
            gradient=slope.gradient,
            hessian=-(wide._spread(slope.bend) + slope.outer),
        )

    def _slope(self, z: Tensor) -> _Slope:
        """With g the gradient of log U, -Hessian = sum_s bend_s features_s features_s' + g g'.

        A margin t = h f / noise, h the decision, has U = 1 - mean(cost Phi(-t)) in units of M. So
        dU / df = cost phi(t) h / noise / S, and phi' = -t phi gives the second derivative.
        """
        cost = self._cost()
        t = self._margin(z)
        relative = self._relative(cost, t)
        slope_of_utility = torch.exp(-0.5 * t**2) * (cost / self.noise / (2 * math.pi) ** 0.5)
        slope = slope_of_utility / (relative[..., None] * t.shape[-1])  # of log U, but for h
        gradient = ((slope * self.decisions)[..., None, :] @ self.features).squeeze(-2)
        return _Slope(
            relative=relative,
            gradient=gradient,
            outer=gradient[..., :, None] * gradient[..., None, :],
            bend=t * slope / self.noise,
        )

    def _spread(self, weight: Tensor) -> Tensor:
        """The sum over targets of weight times features times features."""
        return self.features.mT @ (self.features * weight[..., None])

    def _relative(self, cost: Tensor, t: Tensor) -> Tensor:
        """The utility at margins t, in units of M: M may be too large to be summed."""
        # (M - l Phi(-t)) / M is (M - l) / M + (l / M) Phi(t): nothing cancels where M is the larger
        # cost.
        return ((1 - cost) + cost * torch.special.ndtr(t)).mean(-1)

    def _cost(self) -> Tensor:
        """What each decision costs where it is wrong, in units of M."""
        # Of two Python numbers torch.where would make single precision.
        c_plus = self.noise.new_tensor(self.costs.c_plus / self.max_loss)
        c_minus = self.noise.new_tensor(self.costs.c_minus / self.max_loss)
        return torch.where(self.decisions > 0, c_plus, c_minus)

    def _margin(self, z: Tensor) -> Tensor:
        """The margin t of each decision: its sign times f over the noise."""
        latent = (self.features @ z[..., None]).squeeze(-1)
        return self.decisions * latent / self.noise
