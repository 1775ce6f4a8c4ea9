"""Annealed importance sampling: an independent route to an evidence and to posterior means.

Chains start as exact draws from a standard normal prior and are led to the posterior through the
distributions prior x likelihood^beta, beta from 0 to 1 (Neal 2001). At each beta they move by
Hamiltonian Monte Carlo. The product of the ratios that a chain collects on its way is an unbiased
estimate of the evidence, and weights its end point.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

__all__ = ["AnnealedSample", "annealed_importance_sampling"]


@dataclass(frozen=True)
class AnnealedSample:
    """Weighted draws from a posterior, and its evidence.

    Attributes
    ----------
    log_evidence : float
        In nats.
    error : float
        The standard error of ``log_evidence`` over the chains.
    points : Tensor of shape (chains, dimension)
    weights : Tensor of shape (chains,)
        They sum to 1.
    effective_size : float
        The number of equally weighted draws that would be worth as much.
    acceptance : float
        The part of the moves that was accepted at the last temperature.
    """

    log_evidence: float
    error: float
    points: Tensor
    weights: Tensor
    effective_size: float
    acceptance: float


def annealed_importance_sampling(
    log_likelihood: Callable[[Tensor], Tensor],
    dimension: int,
    *,
    n_chains: int = 128,
    n_temperatures: int = 150,
    n_moves: int = 3,
    n_steps: int = 8,
    seed: int = 0,
) -> AnnealedSample:
    """Sample from standard normal x likelihood, and estimate its integral.

    Parameters
    ----------
    log_likelihood : callable
        Takes points of shape (chains, dimension) to log likelihoods of shape (chains,),
        differentiably.
    dimension : int
    n_chains, n_temperatures, n_moves, n_steps : int
        Chains; values of beta after 0; moves at each; leapfrog steps of a move.
    seed : int

    Returns
    -------
    AnnealedSample

    Raises
    ------
    ValueError
        If a number is below 1, or fewer than two chains are asked for.
    """
    counts = (dimension, n_temperatures, n_moves, n_steps)
    if min(counts) < 1 or n_chains < 2:
        raise ValueError(f"expected positive numbers and two chains, got {counts}, {n_chains=}")
    generator = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return torch.randn((n_chains, dimension), dtype=torch.float64, generator=generator)

    def evaluate(points: Tensor) -> tuple[Tensor, Tensor]:
        points = points.detach().requires_grad_()
        values = log_likelihood(points)
        (slopes,) = torch.autograd.grad(values.sum(), points)
        return values.detach(), slopes

    points = normal()
    values, slopes = evaluate(points)
    log_weights = torch.zeros(n_chains, dtype=torch.float64)
    step, acceptance = 0.2, 1.0
    # Fine steps where the likelihood is tempered most: the prior is far from the posterior.
    betas = torch.linspace(0, 1, n_temperatures + 1, dtype=torch.float64) ** 5
    for beta_before, beta in pairwise(betas):
        log_weights = log_weights + (beta - beta_before) * values
        for _ in range(n_moves):
            momentum = normal()
            start = -0.5 * (points**2).sum(1) + beta * values - 0.5 * (momentum**2).sum(1)
            new, new_values, new_slopes = points, values, slopes
            for _ in range(n_steps):
                momentum = momentum + 0.5 * step * (beta * new_slopes - new)
                new = new + step * momentum
                new_values, new_slopes = evaluate(new)
                momentum = momentum + 0.5 * step * (beta * new_slopes - new)
            end = -0.5 * (new**2).sum(1) + beta * new_values - 0.5 * (momentum**2).sum(1)
            uniform = torch.rand(n_chains, dtype=torch.float64, generator=generator)
            accepted = uniform.log() < end - start  # false where the trajectory diverged to NaN
            points = torch.where(accepted[:, None], new, points)
            values = torch.where(accepted, new_values, values)
            slopes = torch.where(accepted[:, None], new_slopes, slopes)
            acceptance = float(accepted.to(torch.float64).mean())
            step *= math.exp(0.1 * (acceptance - 0.8))
    relative = (log_weights - log_weights.max()).exp()
    weights = relative / relative.sum()
    return AnnealedSample(
        log_evidence=float(torch.logsumexp(log_weights, 0)) - math.log(n_chains),
        error=float(relative.std() / relative.mean()) / math.sqrt(n_chains),
        points=points,
        weights=weights,
        effective_size=float(1 / (weights**2).sum()),
        acceptance=acceptance,
    )
