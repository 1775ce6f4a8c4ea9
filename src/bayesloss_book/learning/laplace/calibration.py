"""Are the bands of Laplace's approximation calibrated? Ranks and coverage over simulated data sets.

If a method is right, the rank of the true nu(x) among its draws is uniform (Talts, Betancourt,
Simpson, Vehtari and Gelman 2018). The long run of Markov chains is the control: it must pass.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.learning.estimators.monotone import ISGPRegressor
from bayesloss.learning.evidence.evidence import evidence_gradient
from bayesloss.learning.inference.laplace import Posterior, approximate, laplace
from bayesloss.learning.inference.likelihoods import Bernoulli, Gaussian
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode
from bayesloss.learning.sources.priors import ISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book.learning.laplace.chains import long_run
from bayesloss_book.problems import source_problems
from bayesloss_book.rivals.baselines import PLUG_IN
from paperledger.stores.results import crossed, runs

METHODS = {
    "laplace": "Laplace, true hyper-parameters",
    "chains": "long run, true hyper-parameters",
    "fitted": "Laplace, fitted hyper-parameters",
    "mixture": "Laplace, mixture over hyper-parameters",
}
LEVELS = (50, 80, 95)  # per cent
PLACES = {"left": -40.0, "centre": 0.0, "right": 40.0}
N_DRAWS = 99  # ranks run from 0 to this
_WIDEST = 1.0  # standard deviation of a log hyper-parameter, where the evidence is flat


@dataclass(frozen=True)
class _Belief:
    """What a method says of nu on the grid: moments, draws (N_DRAWS, points), noise variance."""

    mean: np.ndarray
    std: np.ndarray
    draws: np.ndarray
    noise: float


def measure(*, task: str, method: str, seed: int, n: int, n_basis: int) -> dict[str, float]:
    """Simulate a data set, infer nu by one method, and compare with the truth.

    ``rank_left``, ``rank_centre``, ``rank_right``: how many of 99 draws of nu(x) lie below the true
    nu(x). ``covered_50``, ``covered_80``, ``covered_95``: the part of the 21 points of the grid
    where the truth lies in the band mean +- z standard deviations. ``covered_new``: the probability
    that a new target lies in its 95 % band, averaged over the grid (NaN for labels). ``width``: the
    mean standard deviation of nu.
    """
    Gamma, x, y = source_problems.simulate(task, n, n_basis, seed)
    prior, likelihood = source_problems.prior_and_likelihood(task, n_basis)
    points = source_problems.grid()
    truth = prior.source(points, Gamma).numpy()
    if method == "laplace":
        belief = _of_posterior(laplace(prior, likelihood, x, y), likelihood, seed)
    elif method == "chains":
        belief = _by_chains(prior, likelihood, x, y, seed)
    else:
        belief = _by_estimator(x, y, n_basis, method == "mixture", seed)
    ranks = {
        f"rank_{name}": int((belief.draws < truth)[:, int((points - at).abs().argmin())].sum())
        for name, at in PLACES.items()
    }
    miss = np.abs(truth - belief.mean) / belief.std
    covered = {
        f"covered_{level}": float((miss <= stats.norm.ppf(0.5 + level / 200)).mean())
        for level in LEVELS
    }
    new = np.nan
    if isinstance(likelihood, Gaussian):
        half = 1.96 * np.sqrt(belief.std**2 + belief.noise)
        true_noise = stats.norm(truth, float(likelihood.alpha) ** -0.5)
        inside = true_noise.cdf(belief.mean + half) - true_noise.cdf(belief.mean - half)
        new = float(inside.mean())
    return {**ranks, **covered, "covered_new": new, "width": float(belief.std.mean())}


def hyper_mixture(
    posterior: Posterior, x: Tensor, y: Tensor, *, n_points: int = 32, seed: int = 0
) -> tuple[list[Posterior], Tensor]:
    """Posteriors at hyper-parameters drawn around the evidence maximum, and their weights."""
    prior = posterior.prior
    likelihood = posterior.likelihood
    if not isinstance(likelihood, Gaussian):
        raise TypeError(f"expected a Gaussian likelihood, which has a bound, got {likelihood!r}")
    data = likelihood.condense(prior.features, x, y)

    def joint_at(theta: Tensor) -> LogJoint:
        c = prior.kernel.c
        n_basis = prior.kernel.n_basis
        kernel = TrigonometricKernel(a=1 + theta[0].exp(), c=c, n_basis=n_basis)
        there = ISGP(kernel.scaled(theta[1].exp()), mu=prior.mu, gamma=prior.gamma)
        return LogJoint(there, Gaussian(theta[2].exp()), data)

    centre = torch.stack([prior.kernel.a - 1, prior.kernel.variance, likelihood.alpha]).log()
    steps = 0.05 * torch.eye(3, dtype=torch.float64)
    ahead, behind = (
        torch.stack([evidence_gradient(at, joint_at, posterior.mode, "bound")[1] for at in points])
        for points in (centre + steps, centre - steps)
    )
    hessian = (ahead - behind) / 0.1
    values, vectors = torch.linalg.eigh(-(hessian + hessian.T) / 2)
    spread = values.clamp_min(_WIDEST**-2).rsqrt()
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn((n_points, 3), dtype=torch.float64, generator=generator)
    found = []
    log_weights = []
    for point in z:
        theta = centre + vectors @ (spread * point)
        theta[0] = theta[0].clamp(np.log(0.01), np.log(30.0))  # the range of the estimator's search
        joint = joint_at(theta)
        mode = find_mode(joint, posterior.mode)
        if not mode.converged:
            continue
        found.append(approximate(joint, mode))
        log_weights.append(found[-1].evidence_bound + 0.5 * float(point @ point))
    return found, torch.softmax(torch.tensor(log_weights, dtype=torch.float64), dim=0)


def _of_posterior(posterior: Posterior, likelihood: Gaussian | Bernoulli, seed: int) -> _Belief:
    mean, variance = posterior.moments(source_problems.grid())
    Gamma = posterior.sample(N_DRAWS, torch.Generator().manual_seed(seed + 1_000_000))
    draws = posterior.prior.source(source_problems.grid(), Gamma).numpy()
    return _Belief(mean.numpy(), variance.sqrt().numpy(), draws, _noise(likelihood))


def _noise(likelihood: Gaussian | Bernoulli) -> float:
    return float(1 / likelihood.alpha) if isinstance(likelihood, Gaussian) else np.nan


def _by_chains(
    prior: ISGP, likelihood: Gaussian | Bernoulli, x: Tensor, y: Tensor, seed: int
) -> _Belief:
    posterior = laplace(prior, likelihood, x, y)
    joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))
    sizes = {"n_chains": 33, "n_draws": 150, "n_burn_in": 100}
    sizes |= {"n_annealed": 96, "n_temperatures": 60}
    chains = long_run(joint, posterior, seed=seed + 1_000_000, **sizes)
    nu = source_problems.source_of_chains(prior, source_problems.grid(), chains.Gamma)
    # Three draws of each chain, 50 apart: as good as independent.
    draws = nu[:, 49::50].reshape(N_DRAWS, -1)
    return _Belief(nu.mean(axis=(0, 1)), nu.std(axis=(0, 1)), draws, _noise(likelihood))


def _by_estimator(x: Tensor, y: Tensor, n_basis: int, mix: bool, seed: int) -> _Belief:
    """The estimator as it comes, or the mixture around what it found."""
    model = ISGPRegressor(n_basis=n_basis, period_fraction=0.5, increasing=True, **PLUG_IN)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        model.fit(x.numpy()[:, None], y.numpy())
    at = source_problems.grid().numpy()
    if not mix:
        # The grid ends a little outside the data.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            mean, std = model.predict(at[:, None], return_std=True)
            draws = model.sample_source(at[:, None], N_DRAWS, seed).T
        return _Belief(mean, std, draws, model.noise_variance_)
    data = model.standardise(x.numpy(), y.numpy())
    found, weights = hyper_mixture(model.posterior_, *data, seed=seed)
    new_x, zero = model.standardise(at, np.zeros_like(at))
    _, one = model.standardise(at, np.ones_like(at))
    scale = 1 / float(one[0] - zero[0])
    moments = [posterior.moments(new_x) for posterior in found]
    means, variances = (torch.stack(part) for part in zip(*moments, strict=True))
    mean = weights @ means
    std = (weights @ (variances + (means - mean) ** 2)).sqrt()
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.multinomial(weights, N_DRAWS, replacement=True, generator=generator)
    parts = [found[index] for index in chosen.tolist()]
    draws = torch.stack([part.prior.source(new_x, part.sample(1, generator)[0]) for part in parts])
    noise = sum(
        float(weight / posterior.likelihood.alpha)
        for weight, posterior in zip(weights, found, strict=True)
        if isinstance(posterior.likelihood, Gaussian)
    )
    return _Belief(
        mean=scale * (mean - zero[0]).numpy(),
        std=scale * std.numpy(),
        draws=scale * (draws - zero[0]).numpy(),
        noise=scale**2 * noise,
    )


def cells() -> list[dict[str, Any]]:
    """400 data sets for Laplace, 80 for the estimator and its mixture, 50 for the long runs."""
    found = crossed(task=source_problems.TASKS, method=["laplace"], seed=range(400))
    found += crossed(task=["regression"], method=["fitted", "mixture"], seed=range(80))
    return found + crossed(task=source_problems.TASKS, method=["chains"], seed=range(50))


run = runs(measure, cells, "laplace_calibration", n=100, n_basis=16)
