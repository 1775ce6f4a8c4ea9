"""What pages say about finite decision problems, and the library itself does not need.

The notation is that of :mod:`bayesloss.calibrating.decision_theory`: masses p and q of shape
(..., K), losses of shape (K, A).
"""

import itertools
import math

import torch
from torch import Tensor

from bayesloss.calibrating.decision_theory import checked_losses, checked_masses, posterior_risk
from bayesloss.calibrating.loss_em import LossEM, alternate, objective, tilted
from bayesloss.calibrating.utility import utility


def optimal_actions(p: Tensor, losses: Tensor, *, tolerance: float = 1e-12) -> Tensor:
    """Which actions have the least risk, or one larger by no more than the tolerance: (..., A)."""
    risk = posterior_risk(p, losses)
    return risk <= risk.min(dim=-1, keepdim=True).values + tolerance


def kl_divergence(q: Tensor, p: Tensor) -> Tensor:
    """KL(q || p) in nats, of shape (...); infinite if q has mass where p has none."""
    q, p = torch.broadcast_tensors(checked_masses(q), checked_masses(p))
    # Where q has no mass, nothing is added, whatever p is.
    return torch.where(q > 0, q * (q.log() - p.log()), 0.0).sum(dim=-1)


def discretise(log_density: Tensor) -> Tensor:
    """The masses of cells (..., K) of equal width, from the log density at their middles."""
    log_density = log_density.to(torch.float64)
    top = log_density.max(dim=-1).values if log_density.shape[-1] else torch.tensor(-math.inf)
    if not bool(torch.isfinite(top).all()):
        raise ValueError(f"expected a finite log density in at least one cell, got {top.tolist()}")
    return torch.softmax(log_density, dim=-1)


def prediction_losses(joint: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
    """Every function from inputs to outputs as a decision, LHG eq. (1).

    From p(x, y | theta), (K, X, Y), and the costs (Y, Y) of predicting z when the output is y, the
    generalisation error (K, Y ** X) of each hypothesis, and what it predicts, (Y ** X, X).
    """
    if joint.ndim != 3 or cost.shape != (joint.shape[2], joint.shape[2]):
        raise ValueError(
            "expected p(x, y | theta) of shape (K, X, Y) and costs of shape (Y, Y), "
            f"got {tuple(joint.shape)} and {tuple(cost.shape)}"
        )
    joint = checked_masses(joint.flatten(1)).reshape(joint.shape)
    n_inputs, n_outputs = joint.shape[1:]
    expected = joint @ checked_losses(cost)  # of predicting z at x, together with p(x)
    hypotheses = torch.tensor(list(itertools.product(range(n_outputs), repeat=n_inputs)))
    losses = expected[:, torch.arange(n_inputs), hypotheses].sum(dim=-1)  # LHG eq. (1)
    return losses, hypotheses


def log_gain(p: Tensor, losses: Tensor, M: float) -> Tensor:
    """The logarithm of each action's gain, LHG eqs. (8) and (9), of shape (..., A)."""
    return posterior_risk(p, utility(losses, M)).log()  # LHG eq. (8) is eq. (2) of utilities


def lower_bound(q: Tensor, p: Tensor, losses: Tensor, M: float) -> Tensor:
    """The lower bound of the log gain of each action, LHG eq. (10), of shape (A,).

    It is finite for the actions whose utility, like p, is positive wherever q has mass; else -inf.
    """
    return objective(checked_masses(q), checked_masses(p), utility(losses, M).log())


def tilted_posterior(p: Tensor, losses: Tensor, action: int, M: float) -> Tensor:
    """The posterior weighted by the utility of an action, LHG eq. (11), of shape (K,)."""
    return tilted(checked_masses(p).log(), utility(losses, M).log(), action).exp()


def mixed_loss_em(p: Tensor, losses: Tensor, M: float, *, start: int) -> LossEM:
    """The E-step of Table 1 with the M-step of Table 2, as in LHG Table 3.

    With an exact E-step the second moment of the utility, E_p[(M - L)^2], never falls from one
    action to the next.
    """
    log_utility = utility(losses, M).log()
    return alternate(p, log_utility, -checked_losses(losses), start, None, 100)
