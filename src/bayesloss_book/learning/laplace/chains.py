"""Laplace's approximation against long runs of Markov chains, on the toy problems.

Hamiltonian chains begin where annealed importance sampling ends, on all modes in about the right
shares. What is compared is nu(x), not w: -w gives the same source.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bayesloss.learning.inference.laplace import Posterior, approximate, laplace
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode
from bayesloss_book.problems.source_problems import (
    batched_log_likelihood,
    cells,
    data_set,
    diagnose,
    grid,
    log_loss,
    prior_and_likelihood,
    source_of_chains,
)
from bayesloss_book.references import samplers
from paperledger.stores.results import runs


@dataclass(frozen=True)
class LongRun:
    """Draws from an exact posterior."""

    Gamma: Tensor  # (chains, draws, M + 1)
    annealed: samplers.AnnealedSample  # where the chains began, and the evidence
    acceptance: float  # of the Hamiltonian moves, the mean over chains


def long_run(
    joint: LogJoint,
    posterior: Posterior,
    *,
    n_chains: int = 32,
    n_draws: int = 1000,
    n_burn_in: int = 300,
    n_annealed: int = 128,
    n_temperatures: int = 150,
    seed: int = 0,
) -> LongRun:
    """Sample the exact posterior; Laplace's covariance serves as a unit of length only."""
    prior = joint.prior
    scale = prior.precision.rsqrt()
    log_likelihood = batched_log_likelihood(joint)
    how = {"n_chains": n_annealed, "n_temperatures": n_temperatures, "seed": seed}
    annealed = samplers.annealed_importance_sampling(
        lambda z: log_likelihood(prior.location + scale * z), len(scale), **how
    )
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.multinomial(annealed.weights, n_chains, True, generator=generator)
    start = prior.location + scale * annealed.points[chosen] - posterior.mode

    def log_density(z: Tensor) -> Tensor:
        Gamma = posterior.mode + z @ posterior.root.T
        distance = prior.precision * (Gamma - prior.location) ** 2
        return log_likelihood(Gamma) - 0.5 * distance.sum(dim=1)

    start = torch.linalg.solve(posterior.root, start.T).T
    how = {"n_draws": n_draws, "n_burn_in": n_burn_in, "n_steps": 6, "seed": seed}
    sample = samplers.hamiltonian_monte_carlo(log_density, start, **how)
    Gamma = posterior.mode + sample.points.transpose(0, 1) @ posterior.root.T
    return LongRun(Gamma, annealed, float(sample.acceptance.mean()))


def modes(joint: LogJoint, n_starts: int, seed: int) -> tuple[list[Posterior], float]:
    """Different modes from draws of the prior, and the share of starts that lead to the highest."""
    starts = joint.prior.sample(n_starts, torch.Generator().manual_seed(seed))
    found = [mode for mode in (find_mode(joint, start) for start in starts) if mode.converged]
    found.sort(key=lambda mode: -float(joint(mode.Gamma)))
    values = np.array([float(joint(mode.Gamma)) for mode in found])
    # Modes are known to about 1e-10 nats: what differs by more than 1e-5 is another mode.
    new = np.diff(values, prepend=np.inf) < -1e-5
    distinct = [mode for mode, is_new in zip(found, new, strict=True) if is_new]
    share = float((values > values[0] - 1e-5).mean())
    return [approximate(joint, mode) for mode in distinct], share


def mixture_moments(found: list[Posterior], x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of nu(x) under the Gaussians of several modes, weighted by evidence."""
    weights = torch.tensor([mode.log_evidence for mode in found], dtype=torch.float64).softmax(0)
    moments = [mode.moments(x) for mode in found]
    means, variances = (torch.stack(part) for part in zip(*moments, strict=True))
    mean = weights @ means
    return mean, weights @ (variances + (means - mean) ** 2)


def measure(*, task: str, n: int, seed: int, n_basis: int) -> dict[str, float]:
    """Compare Laplace's approximation with a long run on one data set.

    ``shift`` and ``shift_max``: the error of the mean of nu(x), in exact standard deviations, root
    mean square and largest over the grid. ``sd_low``, ``sd_ratio``, ``sd_high``: Laplace's standard
    deviation over the exact one, least, geometric mean, largest. ``shift_mixed`` and
    ``sd_ratio_mixed``: the same for the mixture of the Gaussians at all modes found. ``r_hat``,
    ``ess``, ``mcse``: the worst over the grid (the error of the mean in exact standard deviations).
    ``laplace``, ``all_modes``, ``bound``, ``annealed``, ``annealed_error``, ``annealed_size``: log
    evidences in nats by one mode, summed over all modes found, the lower bound, and the truth with
    its error and effective size. ``n_modes``, ``share_best`` and ``below_best``: of 40 starts, and
    how many nats of log joint density the estimator's mode lies below the best. ``loss_laplace``,
    ``loss_exact``: log losses of 2000 new data, in nats a datum.
    """
    prior, likelihood = prior_and_likelihood(task, n_basis)
    x, y = data_set(task, n, seed)
    posterior = laplace(prior, likelihood, x, y)
    joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))
    chains = long_run(joint, posterior, seed=seed)
    nu = source_of_chains(prior, grid(), chains.Gamma)
    mean = nu.mean(axis=(0, 1))
    std = nu.std(axis=(0, 1))
    laplace_mean, laplace_variance = (part.numpy() for part in posterior.moments(grid()))
    shift = (laplace_mean - mean) / std
    ratio = np.sqrt(laplace_variance) / std
    found, share = modes(joint, 40, seed)
    mixed_mean, mixed_variance = mixture_moments(found, grid())
    highest = max(float(joint(mode.mode)) for mode in found)
    new_x, new_y = data_set(task, 2000, 10_000 + seed)
    kept = chains.Gamma.flatten(0, 1)[:: chains.Gamma.shape[1] // 50]
    evidences = torch.tensor([mode.log_evidence for mode in found])
    drawn = posterior.sample(len(kept), torch.Generator().manual_seed(seed))
    return {
        "shift": float(np.sqrt((shift**2).mean())),
        "shift_max": float(np.abs(shift).max()),
        "sd_low": float(ratio.min()),
        "sd_ratio": float(np.exp(np.log(ratio).mean())),
        "sd_high": float(ratio.max()),
        "shift_mixed": float(np.sqrt((((mixed_mean.numpy() - mean) / std) ** 2).mean())),
        "sd_ratio_mixed": float(
            (mixed_variance.log() / 2).mean().exp() / np.exp(np.log(std).mean())
        ),
        **diagnose(nu),
        "laplace": posterior.log_evidence,
        "all_modes": float(torch.logsumexp(evidences, dim=0)),
        "bound": posterior.evidence_bound,
        "annealed": chains.annealed.log_evidence,
        "annealed_error": chains.annealed.error,
        "annealed_size": chains.annealed.effective_size,
        "n_modes": len(found),
        "share_best": share,
        "below_best": highest - float(joint(posterior.mode)),
        "loss_laplace": log_loss(prior.source(new_x, drawn), new_y, likelihood),
        "loss_exact": log_loss(prior.source(new_x, kept), new_y, likelihood),
    }


run = runs(measure, cells, "laplace_mcmc", n_basis=64)
