"""Loss-EM and its linearised form, on any finite action set and discretised state (LHG section 3).

The E-step takes for q the member of a family (or of all) nearest to p(theta) exp(tilt(theta, h)),
with the last action h; the M-step takes the action of the largest E_q[score(theta, h)]:

=====================  ================  ==================
algorithm              tilt              score
=====================  ================  ==================
loss-EM, Table 1       log(M - L)        log(M - L)
linearised, Table 2    -L / M            -L
mixed, as in Table 3   log(M - L)        -L
=====================  ================  ==================

The first two never lower E_q[tilt] - KL(q || p); the mixed form, which
:mod:`bayesloss.calibrating.loss_em_probit` has for classification, may.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesloss.calibrating.decision_theory import checked_masses
from bayesloss.calibrating.utility import losses_below, utility
from bayesloss.threads import one_thread
from bayesloss.warnings import warn_unconverged


@dataclass(frozen=True)
class LossEM:
    """Where an algorithm ended, with all actions, the start first.

    Objectives are E_q[tilt] - KL(q || p) after each half step, for loss-EM LHG eq. (10).
    """

    action: int
    q: Tensor
    actions: tuple[int, ...]
    objective: tuple[float, ...]
    converged: bool


@one_thread()
def loss_em(
    p: Tensor, losses: Tensor, M: float, *, start: int, family: Any = None, max_iter: int = 100
) -> LossEM:
    """Loss-EM, LHG Table 1: coordinate ascent on a lower bound of the log gain.

    Parameters
    ----------
    p, losses : Tensor of shape (K,), (K, A)
        The posterior, and the loss of each action in each state.
    M : float
        At least the largest loss.
    start : int
        The first action, on which the last may depend.
    family : object with a method ``nearest``, optional
        What q is restricted to: ``nearest(log_target, start=None)`` returns the member of least
        KL(q || target), with its masses ``q`` and its ``parameters``, both Tensors.
    max_iter : int, default=100
        A ConvergenceWarning is given if the action still changed in the last round.

    Raises
    ------
    ValueError
        If p, a loss or M is invalid, the start has a gain in no possible state, or all of the
        family give mass to a state of zero utility.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import loss_em
    >>> losses = torch.tensor([[0.0, 1.0], [19.0, 1.0]], dtype=torch.float64)
    >>> p = torch.tensor([0.75, 0.25], dtype=torch.float64)
    >>> found = loss_em(p, losses, 38.0, start=0)
    >>> found.action, found.converged
    (1, True)
    """
    log_utility = utility(losses, M).log()
    return alternate(p, log_utility, log_utility, start, family, max_iter)  # LHG Table 1


@one_thread()
def linearised_loss_em(
    p: Tensor, losses: Tensor, M: float, *, start: int, family: Any = None, max_iter: int = 100
) -> LossEM:
    """Linearised loss-EM, LHG Table 2: coordinate ascent on E_q[-L/M] - KL(q || p).

    That is a lower bound of log E_p[exp(-L/M)]. The action returned is optimal for the q returned.
    All else is as for :func:`loss_em`; M has to be positive.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import linearised_loss_em
    >>> losses, p = torch.tensor([[0.0, 1.0], [19.0, 1.0]]), torch.tensor([0.75, 0.25])
    >>> linearised_loss_em(p, losses, 38.0, start=0).action
    1
    """
    losses = losses_below(losses, M)
    if M <= 0:
        raise ValueError(f"expected a positive M, got {M}")
    return alternate(p, -losses / M, -losses, start, family, max_iter)  # LHG Table 2


def alternate(
    p: Tensor, tilt: Tensor, score: Tensor, start: int, family: Any, max_iter: int
) -> LossEM:
    """E-steps and M-steps in turn, until the action stays; tilt and score are of shape (K, A)."""
    p = checked_masses(p)
    if p.shape != tilt.shape[:1]:
        raise ValueError(f"expected p of shape ({tilt.shape[0]},), got {tuple(p.shape)}")
    if not 0 <= start < tilt.shape[1]:
        raise ValueError(f"expected a start from 0 to {tilt.shape[1] - 1}, got {start}")
    log_p = p.log()
    parameters = None
    actions = [start]
    objectives: list[float] = []
    converged = False
    for _ in range(max_iter):
        h = actions[-1]
        log_target = tilted(log_p, tilt, h)  # LHG Tables 1 and 2, E-step
        if family is None:
            q = log_target.exp()
        else:  # from where the last q was, so that the E-step cannot lose
            member = family.nearest(log_target, start=parameters)
            q = member.q
            parameters = member.parameters
        means = _mean(q, score)  # LHG Tables 1 and 2, M-step
        best = int(means.argmax())
        # Without a gain the action stays, so that ties end the search.
        actions.append(best if means[best] > means[h] else h)
        objectives += objective(q, p, tilt)[actions[-2:]].tolist()
        converged = actions[-1] == h  # LHG Table 3, line 7
        if converged:
            break
    if not converged:
        warn_unconverged(f"no fixed point within {max_iter} rounds")
    return LossEM(
        action=actions[-1],
        q=q,
        actions=tuple(actions),
        objective=tuple(objectives),
        converged=converged,
    )


def tilted(log_p: Tensor, tilt: Tensor, action: int) -> Tensor:
    """The log masses of p(theta) exp(tilt(theta, action)), normalised."""
    log_target = log_p + tilt[:, action]  # LHG eq. (11)
    if not bool(torch.isfinite(log_target).any()):
        raise ValueError(
            f"expected an action with a positive gain; action {action} costs M in every state "
            "that the posterior allows"
        )
    return torch.softmax(log_target, dim=0).log()


def objective(q: Tensor, p: Tensor, tilt: Tensor) -> Tensor:
    """E_q[tilt] - KL(q || p) for each action, of shape (A,)."""
    return _mean(q, p.log()[:, None] + tilt - q.log()[:, None])  # LHG eq. (10)


def _mean(q: Tensor, values: Tensor) -> Tensor:
    """The mean of each column under q; where q is zero, infinite values add nothing."""
    return torch.where(q[:, None] > 0, q[:, None] * values, 0.0).sum(dim=0)
