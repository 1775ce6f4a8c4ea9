"""Parametric families of approximate posteriors over K states, and their nearest members.

Loss-EM's E-step looks for the member nearest to a given distribution (LHG Table 1); so does
variational inference. A family here is any differentiable map from parameters to log masses.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.calibrating.decision_theory import checked_masses

_MAX_ITER = 500
_GRADIENT = 1e-6  # nats per unit of a parameter: far below what a figure or a decision shows


@dataclass(frozen=True)
class Member:
    """A member of a family: parameters (P,), masses q (K,), and how it was found."""

    parameters: Tensor
    q: Tensor
    divergence: float  # the KL divergence that was minimised, up to a constant of the target
    converged: bool


@dataclass(frozen=True)
class Family:
    """A family of distributions over K states: (P,) to normalised log masses, and starts (S, P)."""

    log_masses: Callable[[Tensor], Tensor]  # differentiable
    starts: Tensor  # KL(q || target) may have several minima: the more starts, the safer

    def nearest(self, log_target: Tensor, *, start: Tensor | None = None) -> Member:
        """The member of least KL(q || target), the E-step of LHG Table 1; ``start`` is one more.

        The target (K,) is known up to a constant. A ValueError if every start has an infinite
        divergence: the target is zero where all members have mass.
        """
        log_target = log_target.to(torch.float64)

        def divergence(parameters: Tensor) -> Tensor:
            log_q = self.log_masses(parameters)
            q = log_q.exp()
            # A member whose mass underflows to zero costs nothing there.
            return torch.where(q > 0, q * (log_q - log_target), 0.0).sum()

        return self._least(divergence, start)

    def moment_matching(self, p: Tensor) -> Member:
        """The member of least KL(p || q), which for a Gaussian has the moments of p (K,)."""
        p = checked_masses(p)

        def divergence(parameters: Tensor) -> Tensor:
            return torch.where(p > 0, p * (p.log() - self.log_masses(parameters)), 0.0).sum()

        return self._least(divergence, None)

    def _least(self, objective: Callable[[Tensor], Tensor], start: Tensor | None) -> Member:
        starts = list(self.starts) if start is None else [start, *self.starts]
        best = None
        warned = False

        def with_gradient(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            at = torch.tensor(parameters, dtype=torch.float64, requires_grad=True)
            value = objective(at)
            (gradient,) = torch.autograd.grad(value, at)
            return float(value.detach()), gradient.numpy()

        for first in starts:
            value = float(objective(first))
            if not math.isfinite(value):
                continue
            found = minimize(
                with_gradient,
                first.numpy(),
                jac=True,
                method="BFGS",
                options={"gtol": _GRADIENT, "maxiter": _MAX_ITER},
            )
            # BFGS also stops where rounding hides any descent; the gradient says how good that is.
            done = bool(np.abs(found.jac).max() < 1e3 * _GRADIENT)
            # BFGS descends, but may leave for parameters where the objective is not finite.
            if not found.fun <= value:
                found.x = first.numpy()
                found.fun = value
                done = False
            if best is None or found.fun < best[1]:
                best = (found.x, float(found.fun))
                warned = not done
        if best is None:
            raise ValueError(
                "expected a target with mass wherever the family has mass; from every start "
                "the divergence is infinite"
            )
        if warned:
            warnings.warn(
                f"the search for the nearest member stopped before its gradient vanished, "
                f"at a divergence of {best[1]:.6g}",
                ConvergenceWarning,
                stacklevel=3,
            )
        parameters = torch.as_tensor(best[0], dtype=torch.float64)
        with torch.no_grad():
            q = self.log_masses(parameters).exp()
        return Member(parameters, q, best[1], not warned)


def gaussians(states: Tensor, *, n_means: int = 5) -> Family:
    """Gaussians over a real state, cut into cells of equal width with rising middles (K,).

    The parameters are the mean, as multiples of half the grid's range from its middle, and the
    logarithm of the standard deviation in the same unit; searches have ``n_means`` starting means.
    """
    if states.ndim != 1 or len(states) < 2:
        raise ValueError(f"expected at least two states of shape (K,), got {tuple(states.shape)}")
    middle = (states[0] + states[-1]) / 2
    half = (states[-1] - states[0]) / 2
    z = (states - middle) / half

    def log_masses(parameters: Tensor) -> Tensor:
        mean, log_deviation = parameters
        return torch.log_softmax(-0.5 * ((z - mean) / log_deviation.exp()) ** 2, dim=0)

    means = torch.linspace(-1, 1, n_means + 2, dtype=torch.float64)[1:-1]
    deviations = torch.tensor([math.log(0.1), math.log(0.4)], dtype=torch.float64)
    return Family(log_masses, torch.cartesian_prod(means, deviations))
