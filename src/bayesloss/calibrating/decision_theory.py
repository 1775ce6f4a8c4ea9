"""Risks, Bayes actions and the divergence of a loss (LHG section 2).

There are K states (a continuous one is cut into cells) and A actions. Distributions ``p`` and ``q``
are masses of shape (..., K) that sum to one; ``losses`` of shape (K, A) are L(theta, a).
"""

import numpy as np
import torch
from torch import Tensor

from bayesloss.arrays import as_array, read_distributions


def posterior_risk(p: Tensor, losses: Tensor) -> Tensor:
    """The expected loss of each action, (..., A); under q it is the q-risk, LHG eq. (2).

    Parameters
    ----------
    p, losses : Tensor of shape (..., K), (K, A)

    Raises
    ------
    ValueError
        If `p` holds no masses that sum to one, a loss is not finite, or the shapes do not fit.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import posterior_risk
    >>> losses = torch.tensor([[0.0, 1.0], [19.0, 1.0]])  # a row a state, a column an action
    >>> posterior_risk(torch.tensor([0.75, 0.25]), losses).tolist()
    [4.75, 1.0]
    """
    p = checked_masses(p)
    losses = checked_losses(losses)
    if p.shape[-1] != losses.shape[0]:
        raise ValueError(f"expected masses of {losses.shape[0]} states, got {p.shape[-1]}")
    return p @ losses  # LHG eq. (2)


def bayes_action(p: Tensor, losses: Tensor) -> Tensor:
    """The index of the first action of least risk; under q the q-optimal action, LHG eq. (3).

    Parameters and errors are those of :func:`posterior_risk`; the result has the shape (...).

    Examples
    --------
    >>> import torch
    >>> from bayesloss import bayes_action
    >>> losses = torch.tensor([[0.0, 1.0], [19.0, 1.0]])
    >>> bayes_action(torch.tensor([[0.75, 0.25], [0.99, 0.01]]), losses).tolist()
    [1, 0]
    """
    return posterior_risk(p, losses).argmin(dim=-1)  # LHG eq. (3)


def loss_divergence(p: Tensor, q: Tensor, losses: Tensor) -> Tensor:
    """What deciding by q costs when p is right, LHG eq. (5): never negative.

    It is zero exactly if the action chosen under q is a Bayes action under p. Parameters and errors
    are those of :func:`posterior_risk`, for p and q; the result has the shape (...).

    Examples
    --------
    >>> import torch
    >>> from bayesloss import loss_divergence
    >>> losses = torch.tensor([[0.0, 1.0], [19.0, 1.0]])
    >>> p, q = torch.tensor([0.75, 0.25]), torch.tensor([1.0, 0.0])
    >>> float(loss_divergence(p, q, losses))  # 4.75 paid instead of 1
    3.75
    """
    risk = posterior_risk(p, losses)
    action = bayes_action(q, losses)
    shape = torch.broadcast_shapes(risk.shape[:-1], action.shape)
    risk = risk.expand(*shape, risk.shape[-1])
    chosen = risk.gather(-1, action.expand(shape)[..., None])[..., 0]
    return chosen - risk.min(dim=-1).values  # LHG eq. (5)


def checked_masses(p: Tensor) -> Tensor:
    """Masses as float64, or a ValueError; scaled to sum to 1 where rounding has moved a sum."""
    p = torch.as_tensor(p).to(torch.float64)
    if p.ndim == 0 or p.shape[-1] == 0:
        raise ValueError(f"expected masses of at least one state, got shape {tuple(p.shape)}")
    rows = as_array(p).reshape(-1, p.shape[-1])
    if np.array_equal(read_distributions(rows), rows):
        return p
    p = p.clip(0, 1)  # the same once more, as p may have a gradient, which arrays have not
    return p / p.sum(dim=-1, keepdim=True)


def checked_losses(losses: Tensor) -> Tensor:
    """Losses as float64 of shape (K, A), or a ValueError."""
    losses = torch.as_tensor(losses).to(torch.float64)
    if losses.ndim != 2 or 0 in losses.shape:
        raise ValueError(f"expected losses of shape (K, A), K, A > 0, got {tuple(losses.shape)}")
    if not bool(torch.isfinite(losses).all()):
        infinite = losses[~torch.isfinite(losses)]
        raise ValueError(f"expected finite losses, got {float(infinite[0])}")
    return losses
