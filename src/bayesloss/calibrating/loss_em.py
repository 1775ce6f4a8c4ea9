"""Loss-EM and its linearised form, on any finite action set and discretised state (LHG section 3).

Three algorithms alternate two steps. The E-step tilts the posterior by the last action h,

    q = the member of a family nearest to  p(theta) exp(tilt(theta, h)),

and the M-step takes the action of the highest score, the mean of score(theta, h) under q:

=====================  ================  ==================
algorithm              tilt              score
=====================  ================  ==================
loss-EM, Table 1       log(M - L)        log(M - L)
linearised, Table 2    -L / M            -L
mixed, as in Table 3   log(M - L)        -L
=====================  ================  ==================

Without a family the E-step is exact: q is the tilted posterior itself.
"""

import math
import warnings
from dataclasses import dataclass

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.calibrating.decision_theory import (
    checked_losses,
    checked_masses,
    discretise,
    posterior_risk,
)
from bayesloss.calibrating.families import Family

__all__ = [
    "LossEM",
    "linearised_loss_em",
    "log_gain",
    "loss_em",
    "lower_bound",
    "mixed_loss_em",
    "tilted_posterior",
    "utility",
]


@dataclass(frozen=True)
class LossEM:
    """Where an algorithm ended, and its way there.

    Attributes
    ----------
    action : int
        The last action.
    q : Tensor of shape (K,)
        The last approximate posterior.
    actions : tuple of int
        All actions, the start first.
    objective : tuple of float
        E_q[tilt] - KL(q || p) after each half step: E, M, E, M, ... For loss-EM it is the bound of
        LHG eq. (10). Loss-EM and its linearised form never lower it, the mixed form may.
    converged : bool
        Whether the last M-step left the action as it was.
    """

    action: int
    q: Tensor
    actions: tuple[int, ...]
    objective: tuple[float, ...]
    converged: bool


def utility(losses: Tensor, M: float) -> Tensor:
    """The utility M - L, LHG eq. (7), of shape (K, A).

    Raises
    ------
    ValueError
        If M is not finite or lies below a loss. M may equal the largest loss, as in LHG section 5;
        the utility is zero there, and its logarithm -inf.
    """
    return M - _checked(losses, M)  # LHG eq. (7)


def log_gain(p: Tensor, losses: Tensor, M: float) -> Tensor:
    """The logarithm of each action's gain, LHG eqs. (8) and (9), of shape (..., A)."""
    return (posterior_risk(p, utility(losses, M))).log()  # LHG eq. (8) is eq. (2) of utilities


def lower_bound(q: Tensor, p: Tensor, losses: Tensor, M: float) -> Tensor:
    """The lower bound of the log gain of each action, LHG eq. (10).

    It is finite for the actions whose utility, like p, is positive wherever q has mass; else -inf.

    Parameters
    ----------
    q, p : Tensor of shape (K,)
    losses : Tensor of shape (K, A)
    M : float

    Returns
    -------
    Tensor of shape (A,)
    """
    return _objective(checked_masses(q), checked_masses(p), utility(losses, M).log())


def tilted_posterior(p: Tensor, losses: Tensor, action: int, M: float) -> Tensor:
    """The posterior weighted by the utility of an action, LHG eq. (11), of shape (K,).

    Raises
    ------
    ValueError
        If the action's gain is zero: it costs M in every state that p allows.
    """
    return _tilt(checked_masses(p).log(), utility(losses, M).log(), action).exp()


def loss_em(
    p: Tensor,
    losses: Tensor,
    M: float,
    *,
    start: int,
    family: Family | None = None,
    max_iter: int = 100,
) -> LossEM:
    """Loss-EM, LHG Table 1: coordinate ascent on a lower bound of the log gain.

    Parameters
    ----------
    p : Tensor of shape (K,)
        The posterior.
    losses : Tensor of shape (K, A)
    M : float
        At least the largest loss.
    start : int
        The first action. Where loss-EM ends may depend on it.
    family : Family, optional
        What q is restricted to.
    max_iter : int, default=100

    Raises
    ------
    ValueError
        If the input is no posterior, no loss or no M; if the gain of the start is zero; or if M is
        the largest loss and no member of the family avoids the states of zero utility.

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
    return _alternate(p, log_utility, log_utility, start, family, max_iter)  # LHG Table 1


def linearised_loss_em(
    p: Tensor,
    losses: Tensor,
    M: float,
    *,
    start: int,
    family: Family | None = None,
    max_iter: int = 100,
) -> LossEM:
    """Linearised loss-EM, LHG Table 2, with the parameters of :func:`loss_em`.

    It is coordinate ascent on E_q[-L/M] - KL(q || p), a lower bound of log E_p[exp(-L/M)]. The
    returned action is optimal for the returned q.

    Raises
    ------
    ValueError
        As :func:`loss_em`; and if M is not positive.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import linearised_loss_em
    >>> losses = torch.tensor([[0.0, 1.0], [19.0, 1.0]], dtype=torch.float64)
    >>> p = torch.tensor([0.75, 0.25], dtype=torch.float64)
    >>> found = linearised_loss_em(p, losses, 38.0, start=0)
    >>> found.action, found.converged
    (1, True)
    """
    losses = _checked(losses, M)
    if M <= 0:
        raise ValueError(f"expected a positive M, got {M}")
    return _alternate(p, -losses / M, -losses, start, family, max_iter)  # LHG Table 2


def mixed_loss_em(
    p: Tensor,
    losses: Tensor,
    M: float,
    *,
    start: int,
    family: Family | None = None,
    max_iter: int = 100,
) -> LossEM:
    """The E-step of Table 1 with the M-step of Table 2, as in LHG Table 3.

    The parameters are those of :func:`loss_em`. With an exact E-step the second moment of the
    utility, E_p[(M - L)^2], never falls from one action to the next.
    """
    losses = _checked(losses, M)
    return _alternate(p, (M - losses).log(), -losses, start, family, max_iter)  # LHG Table 3


def _checked(losses: Tensor, M: float) -> Tensor:
    """Losses as float64 of shape (K, A), of which M is finite and exceeds none, or a ValueError."""
    losses = checked_losses(losses)
    if not (math.isfinite(M) and float(losses.max()) <= M):
        raise ValueError(
            f"expected a finite M of at least the largest loss {losses.max()}, got {M}"
        )
    return losses


def _alternate(
    p: Tensor, tilt: Tensor, score: Tensor, start: int, family: Family | None, max_iter: int
) -> LossEM:
    p = checked_masses(p)
    if p.shape != tilt.shape[:1]:
        raise ValueError(f"expected p of shape ({tilt.shape[0]},), got {tuple(p.shape)}")
    if not 0 <= start < tilt.shape[1]:
        raise ValueError(f"expected a start from 0 to {tilt.shape[1] - 1}, got {start}")
    log_p, parameters = p.log(), None
    actions, objective = [start], []
    for _ in range(max_iter):
        h = actions[-1]
        log_target = _tilt(log_p, tilt, h)  # LHG Tables 1 and 2, E-step
        if family is None:
            q = log_target.exp()
        else:  # from where the last q was, so that the E-step cannot lose
            member = family.nearest(log_target, start=parameters)
            q, parameters = member.q, member.parameters
        objective.append(float(_objective(q, p, tilt)[h]))
        means = _mean(q, score)  # LHG Tables 1 and 2, M-step
        best = int(means.argmax())
        # Without a gain the action stays, so that ties end the search.
        actions.append(best if means[best] > means[h] else h)
        objective.append(float(_objective(q, p, tilt)[actions[-1]]))
        if actions[-1] == h:  # LHG Table 3, line 7
            return LossEM(h, q, tuple(actions), tuple(objective), True)
    warnings.warn(f"no fixed point within {max_iter} rounds", ConvergenceWarning, stacklevel=3)
    return LossEM(actions[-1], q, tuple(actions), tuple(objective), False)


def _tilt(log_p: Tensor, tilt: Tensor, action: int) -> Tensor:
    """The log masses of p(theta) exp(tilt(theta, action)), normalised."""
    log_target = log_p + tilt[:, action]  # LHG eq. (11)
    if not bool(torch.isfinite(log_target).any()):
        raise ValueError(
            f"expected an action with a positive gain; action {action} costs M in every state "
            "that the posterior allows"
        )
    return discretise(log_target).log()


def _mean(q: Tensor, values: Tensor) -> Tensor:
    """The mean of each column under q; what has no mass adds nothing, even if infinite."""
    return torch.where(q[:, None] > 0, q[:, None] * values, 0.0).sum(dim=0)


def _objective(q: Tensor, p: Tensor, tilt: Tensor) -> Tensor:
    """E_q[tilt] - KL(q || p) for each action, of shape (A,)."""
    return _mean(q, p.log()[:, None] + tilt - q.log()[:, None])  # LHG eq. (10)
