"""Samplers: independent routes to evidences and posterior means.

Annealed importance sampling leads chains from a standard normal prior to the posterior through the
distributions prior x likelihood^beta, by Hamiltonian moves (Neal 2001); the ratios on its way
estimate the evidence, and weight the end point. Hamiltonian Monte Carlo runs many problems at once
(Neal 2010). Elliptical slice sampling asks for no gradient (Murray, Adams and MacKay 2010), and is
at its best where the likelihood does not say much more than the Gaussian prior.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

# at each temperature, and steps of a move
_MOVES = 3
_LEAPFROG = 8


@dataclass(frozen=True)
class AnnealedSample:
    """Weighted draws from a posterior, and its evidence."""

    log_evidence: float  # in nats
    error: float  # the standard error of ``log_evidence`` over the chains
    points: Tensor  # (chains, dimension)
    weights: Tensor  # (chains,), they sum to 1
    effective_size: float  # the number of equally weighted draws that would be worth as much
    acceptance: float  # the part of the moves that was accepted at the last temperature


def annealed_importance_sampling(
    log_likelihood: Callable[[Tensor], Tensor],
    dimension: int,
    *,
    n_chains: int = 128,
    n_temperatures: int = 150,
    seed: int = 0,
) -> AnnealedSample:
    """Sample from standard normal x likelihood (chains,), and estimate its integral."""
    generator = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return torch.randn((n_chains, dimension), dtype=torch.float64, generator=generator)

    points = normal()
    values, slopes = _with_slopes(log_likelihood, points)
    log_weights = torch.zeros(n_chains, dtype=torch.float64)
    step = 0.2
    acceptance = 1.0
    # Fine steps where the likelihood is tempered most: the prior is far from the posterior.
    betas = torch.linspace(0, 1, n_temperatures + 1, dtype=torch.float64) ** 5
    for beta_before, beta in pairwise(betas):
        log_weights = log_weights + (beta - beta_before) * values
        for _ in range(_MOVES):
            momentum = normal()
            start = -0.5 * (points**2).sum(1) + beta * values - 0.5 * (momentum**2).sum(1)
            new = points
            new_values = values
            new_slopes = slopes
            for _ in range(_LEAPFROG):
                momentum = momentum + 0.5 * step * (beta * new_slopes - new)
                new = new + step * momentum
                new_values, new_slopes = _with_slopes(log_likelihood, new)
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


def _with_slopes(function: Callable[[Tensor], Tensor], points: Tensor) -> tuple[Tensor, Tensor]:
    """The values at points, and their gradients."""
    points = points.detach().requires_grad_()
    values = function(points)
    (slopes,) = torch.autograd.grad(values.sum(), points)
    return values.detach(), slopes


@dataclass(frozen=True)
class HamiltonianSample:
    """Draws from many densities, each by a chain of its own."""

    points: Tensor  # (draws, ..., dimension)
    acceptance: Tensor  # (...), the part of the proposals after burn-in that was accepted
    step_size: Tensor  # (...), of the leapfrog steps after burn-in


def hamiltonian_monte_carlo(
    log_density: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    n_draws: int,
    n_burn_in: int = 200,
    n_steps: int = 3,
    target_acceptance: float = 0.9,
    seed: int = 0,
) -> HamiltonianSample:
    """Sample from many densities at once; chains of the same density are problems like others.

    The log density takes points (..., dimension) to (...), differentiably, up to constants. Momenta
    are standard normal, so scale the coordinates to about unit covariance first. Three steps are
    then about a quarter of an orbit, which forgets the start. Burn-in finds each chain's step size;
    then it stays, but for a factor of 0.8 to 1.2 a draw, lest trajectories close on themselves.
    """
    generator = torch.Generator().manual_seed(seed)
    batch = start.shape[:-1]

    points = start.detach().to(torch.float64)
    values, slopes = _with_slopes(log_density, points)
    if not bool(torch.isfinite(values).all()):
        raise ValueError("expected a finite log density at every start, got NaN or infinities")
    log_step = torch.full(batch, math.log(0.5), dtype=torch.float64)
    averaged = torch.zeros_like(log_step)
    accepted_draws = torch.zeros_like(log_step)
    kept = points.new_empty((n_draws, *points.shape))
    for draw in range(-n_burn_in, n_draws):
        jitter = 0.8 + 0.4 * torch.rand(batch, dtype=torch.float64, generator=generator)
        step = (log_step.exp() * jitter)[..., None]
        momentum = torch.randn(points.shape, dtype=torch.float64, generator=generator)
        energy = values - 0.5 * (momentum**2).sum(-1)
        new = points
        new_values = values
        new_slopes = slopes
        for _ in range(n_steps):
            momentum = momentum + 0.5 * step * new_slopes
            new = new + step * momentum
            new_values, new_slopes = _with_slopes(log_density, new)
            momentum = momentum + 0.5 * step * new_slopes
        gain = new_values - 0.5 * (momentum**2).sum(-1) - energy
        gain = torch.where(torch.isnan(gain), -torch.inf, gain)  # the trajectory diverged
        accepted = torch.rand(batch, dtype=torch.float64, generator=generator).log() < gain
        points = torch.where(accepted[..., None], new, points)
        values = torch.where(accepted, new_values, values)
        slopes = torch.where(accepted[..., None], new_slopes, slopes)
        if draw < 0:  # Robbins and Monro's recursion; its second half is averaged
            surprise = gain.exp().clamp(max=1.0) - target_acceptance
            log_step = log_step + surprise / (10 + draw + n_burn_in) ** 0.6
            if 2 * -draw <= n_burn_in:
                averaged = averaged + log_step / (n_burn_in // 2)
            if draw == -1 and n_burn_in > 1:
                log_step = averaged
        else:
            kept[draw] = points
            accepted_draws += accepted
    return HamiltonianSample(kept, accepted_draws / n_draws, log_step.exp())


def elliptical_slice_sampling(
    log_likelihood: Callable[[Tensor], Tensor],
    dimension: int,
    *,
    n_chains: int = 16,
    n_draws: int = 1000,
    n_burn_in: int = 500,
    seed: int = 0,
    start: Tensor | None = None,
) -> Tensor:
    """Run Markov chains (n_chains, n_draws, dimension) to standard normal x likelihood.

    Murray, Adams and MacKay (2010), figure 2: a second point from the prior spans an ellipse, and
    angles are drawn from a shrinking interval until the likelihood is no less than a random height.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform() -> Tensor:
        return torch.rand(n_chains, dtype=torch.float64, generator=generator)

    def normal() -> Tensor:
        return torch.randn((n_chains, dimension), dtype=torch.float64, generator=generator)

    points = normal() if start is None else start
    values = log_likelihood(points)
    if not torch.isfinite(values).all():
        raise ValueError(f"expected finite log likelihoods at the start, got {values}")
    draws = points.new_empty((n_chains, n_draws, dimension))
    for move in range(-n_burn_in, n_draws):
        other = normal()
        height = values + uniform().log()
        angle = 2 * math.pi * uniform()
        low = angle - 2 * math.pi
        high = angle.clone()
        new = points.clone()
        new_values = values.clone()
        waiting = torch.arange(n_chains)
        while len(waiting):
            turn = angle[waiting, None]
            proposed = points[waiting] * turn.cos() + other[waiting] * turn.sin()
            found = log_likelihood(proposed)
            # False where it is NaN; and no point without likelihood.
            accepted = (found >= height[waiting]) & (found > -math.inf)
            new[waiting[accepted]] = proposed[accepted]
            new_values[waiting[accepted]] = found[accepted]
            waiting = waiting[~accepted]
            above = angle > 0
            low = torch.where(above, low, angle)
            high = torch.where(above, angle, high)
            # Always one number a chain: what a chain draws does not depend on the others' luck.
            angle = low + (high - low) * uniform()
        points = new
        values = new_values
        if move >= 0:
            draws[:, move] = points
    return draws
