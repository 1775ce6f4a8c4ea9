"""Do the flat places hurt a fit? Posteriors with and without a constant in the basis.

The priors have the same k(0, 0) = 1: the waves of basis (14), and waves with half of the variance
beside a constant with the other half, so that f need not change its sign.
"""

import math
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from bayesloss.learning.inference.laplace import Posterior, approximate
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode
from bayesloss.learning.sources.basis import Basis
from bayesloss.learning.sources.priors import ISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book import Array
from bayesloss_book.references.samplers import AnnealedSample, annealed_importance_sampling
from paperledger.stores.results import crossed, runs

PRIORS = ("waves", "constant")
SOURCES = {"line": lambda x: x, "kink": lambda x: torch.where(x < 0, 0.3 * x, 2.5 * x) - 0.5}
_REACH = 3.0


class WithConstant(Basis):
    """Basis (14) and a constant function behind it, with a prior variance of its own."""

    def __init__(self, waves: TrigonometricKernel, constant: float) -> None:
        self.waves = waves
        self.n_basis = waves.n_basis + 1
        self.eigenvalues = torch.cat([waves.eigenvalues, waves.eigenvalues.new_tensor([constant])])

    def basis(self, x: Tensor) -> Tensor:
        """The waves and 1: (n,) to (n, M + 1)."""
        return torch.cat([self.waves.basis(x), torch.ones_like(x)[:, None]], dim=1)

    def psi(self, x: Tensor) -> Tensor:
        """The integrals of all products: (n,) to (n, M + 1, M + 1)."""
        speed = math.pi * self.waves.c * torch.arange(1, self.n_basis // 2 + 1, dtype=x.dtype)
        angle = speed * x[:, None]
        once = torch.cat([angle.sin() / speed, (1 - angle.cos()) / speed], dim=1)
        upper = torch.cat([self.waves.psi(x), once[:, :, None]], dim=2)
        return torch.cat([upper, torch.cat([once, x[:, None]], dim=1)[:, None, :]], dim=1)


def grid() -> Tensor:
    """The inputs at which posteriors are compared: 121 in [-3, 3]."""
    return torch.linspace(-_REACH, _REACH, 121, dtype=torch.float64)


def labels(source: str, n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs, and labels 0 or 1 with the log odds that the source says."""
    generator = torch.Generator().manual_seed(seed)
    x, uniform = torch.rand((2, n), dtype=torch.float64, generator=generator)
    x = _REACH * (2 * x - 1)
    return x, (uniform < torch.sigmoid(SOURCES[source](x))).to(x.dtype)


def joint_density(
    prior: str, x: Tensor, y: Tensor, *, filled: float, a: float, n_basis: int = 32
) -> LogJoint:
    """The log joint density of parameters and labels, these shared between a grid's nodes."""
    if prior not in PRIORS:
        raise ValueError(f"expected a prior of {PRIORS}, got {prior!r}")
    waves = TrigonometricKernel(a=a, c=filled / _REACH, n_basis=n_basis)
    kernel = waves if prior == "waves" else WithConstant(waves.scaled(0.5), 0.5)
    source = ISGP(kernel, gamma=0.01)
    likelihood = Bernoulli()
    nodes = torch.linspace(-_REACH, _REACH, 301, dtype=x.dtype)
    shares = likelihood.shares(x, y, torch.ones_like(x), nodes)
    return LogJoint(source, likelihood, likelihood.on_grid(source.features, nodes, shares))


def fit(prior: str, x: Tensor, y: Tensor, **setting: Any) -> Posterior:
    """Laplace's posterior; the setting is that of :func:`joint_density`."""
    joint = joint_density(prior, x, y, **setting)
    start = joint.prior.start(torch.linspace(-_REACH, _REACH, 301, dtype=x.dtype))
    return approximate(joint, find_mode(joint, start), with_bound=False)


def exact(joint: LogJoint, *, n_chains: int, n_temperatures: int, seed: int) -> AnnealedSample:
    """Weighted draws from the exact posterior, in units of the prior's deviations."""
    prior = joint.prior
    data = joint.data

    def log_likelihood(z: Tensor) -> Tensor:
        nu = prior.coefficients(prior.location + prior.precision.rsqrt() * z) @ data.features.T
        one, zero = (torch.nn.functional.logsigmoid(sign * nu) for sign in (1, -1))
        return (data.targets * one + (1 - data.targets) * zero) @ data.weights

    how = {"n_chains": n_chains, "n_temperatures": n_temperatures, "seed": seed}
    return annealed_importance_sampling(log_likelihood, len(prior.location), **how)


def excess(source: str, said: Array) -> float:
    """The log loss of probabilities on the grid beyond the truth's, in nats a datum."""
    p = torch.sigmoid(SOURCES[source](grid())).numpy()
    return float((p * np.log(p / said) + (1 - p) * np.log((1 - p) / (1 - said))).mean())


def source_draws(posterior: Posterior, n: int = 400) -> Array:
    """Draws of nu on the grid, one a row."""
    draws = posterior.sample(n, torch.Generator().manual_seed(0))
    return posterior.prior.source(grid(), draws).numpy()


def measure(
    *, source: str, n: int, filled: float, a: float, seed: int, n_basis: int
) -> dict[str, float]:
    """``excess`` in nats a datum, and ``covered`` at 95 %, of both priors on one data set."""
    x, y = labels(source, n, seed)
    true = SOURCES[source](grid()).numpy()
    found: dict[str, float] = {}
    for prior in PRIORS:
        nu = source_draws(fit(prior, x, y, filled=filled, a=a, n_basis=n_basis))
        low, high = np.quantile(nu, [0.025, 0.975], axis=0)
        found[f"{prior}_excess"] = excess(source, expit(nu).mean(axis=0))
        found[f"{prior}_covered"] = float(((low <= true) & (true <= high)).mean())
    return found


def measure_exact(
    *,
    source: str,
    n: int,
    filled: float,
    a: float,
    seed: int,
    n_basis: int,
    n_chains: int,
    n_temperatures: int,
) -> dict[str, float]:
    """``excess``, ``evidence`` and ``size`` of both priors, if their posteriors are exact."""
    x, y = labels(source, n, seed)
    found: dict[str, float] = {}
    for prior in PRIORS:
        joint = joint_density(prior, x, y, filled=filled, a=a, n_basis=n_basis)
        sample = exact(joint, n_chains=n_chains, n_temperatures=n_temperatures, seed=seed)
        Gamma = joint.prior.location + joint.prior.precision.rsqrt() * sample.points
        said = sample.weights @ torch.sigmoid(joint.prior.source(grid(), Gamma))
        found[f"{prior}_excess"] = excess(source, said.numpy())
        found[f"{prior}_evidence"] = sample.log_evidence
        found[f"{prior}_size"] = sample.effective_size
    return found


# Twenty data sets of each.
run = runs(
    measure,
    lambda: crossed(
        source=SOURCES, n=(100, 1000), filled=(0.25, 0.5, 1.0), a=(1.2, 2.0), seed=range(20)
    ),
    "flat_places",
    n_basis=32,
)
_EXACT = {"source": "line", "n": 1000, "filled": 0.5, "a": 1.2, "n_basis": 32}
_EXACT |= {"n_chains": 48, "n_temperatures": 120}
run_exact = runs(measure_exact, lambda: crossed(seed=range(3)), "flat_places_exact", **_EXACT)
