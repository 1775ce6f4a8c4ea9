r"""The utility :math:`U_M = M - L`, with which loss-EM weighs the posterior (LHG section 3).

Of decisions on S target inputs, with costs :math:`\ell_s` and margins :math:`t_s`, it is LHG (7)
and (12) with the same mass on every target,

.. math:: U_M(\theta, h) = M - \tfrac1S \sum_s \ell_s \Phi(-t_s(\theta)).
"""

import math
from dataclasses import dataclass, replace

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
        features, noise = self.features[rows], self.noise[rows]
        return replace(self, features=features, noise=noise, decisions=self.decisions[rows])

    def utility(self, z: Float[Tensor, "*m r"]) -> Float[Tensor, "*m"]:
        """M - L."""
        return self.max_loss * self._relative(*self._cost_and_margin(z))

    def value(self, z: Float[Tensor, "*m r"]) -> Float[Tensor, "*m"]:
        """The log utility."""
        return self._relative(*self._cost_and_margin(z)).log() + math.log(self.max_loss)

    def derivatives(self, z: Float[Tensor, "*m r"]) -> tuple[Tensor, Tensor, Tensor]:
        """The last term of LHG (27), minus the (indefinite) Hessian, and that made semidefinite."""
        _, gradient, outer, bend = self._slope(z)
        hessian, safe = (self._spread(weight) + outer for weight in (bend, bend.clamp(min=0.0)))
        return gradient, hessian, safe

    def log_expectation(
        self, mean: Float[Tensor, "*m r"], covariance: Float[Tensor, "*m r r"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The log of the utility's mean under a Gaussian; its gradient and Hessian by the mean."""
        variance = ((self.features @ covariance) * self.features).sum(-1)
        # A Gaussian only adds its variance to the noise: GPML (3.82).
        wide = replace(self, noise=(self.noise**2 + variance).sqrt())
        utility, gradient, outer, bend = wide._slope(mean)
        value = utility.log() + math.log(self.max_loss)
        return value, gradient, -(wide._spread(bend) + outer)

    def _slope(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The utility in units of M, its log's gradient, that times itself, and each bend."""
        cost, t = self._cost_and_margin(z)
        utility = self._relative(cost, t)
        density = torch.exp(-0.5 * t**2) * (cost / self.noise / (2 * math.pi) ** 0.5)
        density = density / (utility[..., None] * t.shape[-1])
        gradient = ((density * self.decisions)[..., None, :] @ self.features).squeeze(-2)
        outer = gradient[..., :, None] * gradient[..., None, :]
        return utility, gradient, outer, t * density / self.noise

    def _spread(self, weight: Tensor) -> Tensor:
        return self.features.mT @ (self.features * weight[..., None])

    def _relative(self, cost: Tensor, t: Tensor) -> Tensor:
        # In units of M, which may be too large to be summed. (M - l Phi(-t)) / M is
        # (M - l) / M + (l / M) Phi(t): nothing cancels where M is the larger cost.
        return ((1 - cost) + cost * torch.special.ndtr(t)).mean(-1)

    def _cost_and_margin(self, z: Tensor) -> tuple[Tensor, Tensor]:
        # Of two Python numbers torch.where would make single precision.
        costs = (self.costs.c_plus / self.max_loss, self.costs.c_minus / self.max_loss)
        c_plus, c_minus = self.noise.new_tensor(costs)
        cost = torch.where(self.decisions > 0, c_plus, c_minus)
        latent = (self.features @ z[..., None]).squeeze(-1)
        return cost, self.decisions * latent / self.noise
