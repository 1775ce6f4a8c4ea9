"""Elliptical slice sampling: long runs for any likelihood under a Gaussian prior.

It asks for no gradient and has no step size (Murray, Adams and MacKay 2010). It is at its best
where the likelihood does not say much more than the prior; where it does, see
:func:`bayesloss.sampling.hamiltonian_monte_carlo`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["elliptical_slice_sampling"]


def elliptical_slice_sampling(
    log_likelihood: Callable[[Tensor], Tensor],
    dimension: int,
    *,
    n_chains: int = 16,
    n_draws: int = 1000,
    n_burn_in: int = 500,
    seed: int = 0,
) -> Tensor:
    """Run Markov chains whose stationary distribution is standard normal x likelihood.

    The chains begin at independent draws from the normal distribution.

    A move draws a second point from the normal distribution; the ellipse through both is invariant
    under it. A height below the present likelihood is drawn, and then angles on the ellipse from an
    interval that shrinks towards the present point, until the likelihood there is no
    less than the height. It need not exceed it: where rounding makes the height the present
    likelihood, the present point must do.

    Parameters
    ----------
    log_likelihood : callable
        Takes points of shape (k, dimension) to log likelihoods of shape (k,), for any k.
    dimension : int
    n_chains, n_draws, n_burn_in : int
        Independent chains, draws kept of each, and moves before the first of them.
    seed : int

    Returns
    -------
    Tensor of shape (n_chains, n_draws, dimension)

    Raises
    ------
    ValueError
        If a number is below 1 (``n_burn_in`` below 0), or a log likelihood is not finite where a
        chain begins.

    Notes
    -----
    Murray, Adams and MacKay (2010), figure 2. All chains take their steps together; those that have
    found their point wait for the others.
    """
    counts = (dimension, n_chains, n_draws, n_burn_in + 1)
    if min(counts) < 1:
        raise ValueError(
            "expected positive numbers, and a burn-in that is not negative, got "
            f"{dimension=}, {n_chains=}, {n_draws=}, {n_burn_in=}"
        )
    generator = torch.Generator().manual_seed(seed)

    def uniform() -> Tensor:
        return torch.rand(n_chains, dtype=torch.float64, generator=generator)

    def normal() -> Tensor:
        return torch.randn((n_chains, dimension), dtype=torch.float64, generator=generator)

    points = normal()
    values = log_likelihood(points)
    if not torch.isfinite(values).all():
        raise ValueError(f"expected finite log likelihoods at the start, got {values}")
    draws = points.new_empty((n_chains, n_draws, dimension))
    for move in range(-n_burn_in, n_draws):
        other, height = normal(), values + uniform().log()
        angle = 2 * math.pi * uniform()
        low, high = angle - 2 * math.pi, angle.clone()
        new, new_values = points.clone(), values.clone()
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
            low, high = torch.where(above, low, angle), torch.where(above, angle, high)
            # Always one number a chain: what a chain draws does not depend on the others' luck.
            angle = low + (high - low) * uniform()
        points, values = new, new_values
        if move >= 0:
            draws[:, move] = points
    return draws
