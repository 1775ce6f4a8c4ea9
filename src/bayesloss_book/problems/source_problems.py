"""Toy problems of sources at fixed hyper-parameters, and what exact posteriors are compared by."""

import math
from collections.abc import Callable
from typing import Any

import torch
from arviz_stats.base.array import array_stats
from torch import Tensor

from bayesloss.learning.inference.likelihoods import Bernoulli, Gaussian
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.sources.priors import ISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book import Array
from bayesloss_book.problems.toys import NOISE, classification_problem, regression_problem
from paperledger.stores.results import crossed

TASKS = ("regression", "classification")
SIZES = (10, 50, 200, 1000)


def grid() -> Tensor:
    """The inputs at which sources are compared: 21 in [-50, 50]."""
    return torch.linspace(-50, 50, 21, dtype=torch.float64)


def prior_and_likelihood(task: str, n_basis: int) -> tuple[ISGP, Gaussian | Bernoulli]:
    """The model of a toy: round numbers near the maximum of the evidence at n = 200."""
    if task == "regression":
        kernel = TrigonometricKernel(a=2.0, c=0.01, n_basis=n_basis).scaled(0.04)
        return ISGP(kernel, mu=0.0, gamma=0.5), Gaussian(NOISE**-2)
    kernel = TrigonometricKernel(a=1.5, c=0.01, n_basis=n_basis).scaled(0.08)
    return ISGP(kernel, mu=-2.0, gamma=0.1), Bernoulli()


def data_set(task: str, n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets (or labels) of a toy problem."""
    draw = regression_problem if task == "regression" else classification_problem
    problem = draw(n, seed)
    return problem.x, problem.y


def cells() -> list[dict[str, Any]]:
    """Both toys, four sizes, three data sets of each."""
    return crossed(task=TASKS, n=SIZES, seed=range(3))


def simulate(task: str, n: int, n_basis: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Gamma from the prior, inputs uniform on [-50, 50], targets or labels."""
    prior, likelihood = prior_and_likelihood(task, n_basis)
    generator = torch.Generator().manual_seed(seed)
    Gamma = prior.sample(1, generator)[0]
    x = 100 * torch.rand(n, dtype=torch.float64, generator=generator) - 50
    nu = prior.source(x, Gamma)
    if isinstance(likelihood, Gaussian):
        noise = torch.randn(n, dtype=torch.float64, generator=generator)
        return Gamma, x, nu + likelihood.alpha**-0.5 * noise
    uniform = torch.rand(n, dtype=torch.float64, generator=generator)
    return Gamma, x, (uniform < torch.sigmoid(nu)).to(torch.float64)


def batched_log_likelihood(joint: LogJoint) -> Callable[[Tensor], Tensor]:
    """The log likelihood (K,) of an ISGP's Gamma (K, M + 1), by Fourier coefficients."""
    kernel = joint.prior.kernel
    data = joint.data
    likelihood = joint.likelihood
    size = 2 * kernel.n_basis + 2
    t = torch.arange(size, dtype=torch.float64) * (2 / (kernel.c * size))
    harmonics = torch.arange(1, kernel.n_basis + 1, dtype=torch.float64)[:, None]
    waves = torch.polar(torch.ones((), dtype=torch.float64), math.pi * kernel.c * harmonics * t)
    to_coefficients = torch.cat([torch.ones_like(t)[None], 2 * waves.real, 2 * waves.imag]) / size
    from_squares = (data.features[:, :-1] @ to_coefficients).T.contiguous()
    basis = kernel.basis(t).T.contiguous()

    def log_likelihood(Gamma: Tensor) -> Tensor:
        nu = (Gamma[:, :-1] @ basis) ** 2 @ from_squares + Gamma[:, -1:] * data.features[:, -1]
        if isinstance(likelihood, Gaussian):
            return -0.5 * likelihood.alpha * ((nu - data.targets) ** 2).sum(dim=1)
        return torch.nn.functional.logsigmoid((2 * data.targets - 1) * nu).sum(dim=1)

    # The constant, and what condensing has left over.
    centre = joint.prior.location
    constant = joint.log_likelihood(centre) - log_likelihood(centre[None])[0]
    return lambda Gamma: log_likelihood(Gamma) + constant


def whitened_log_likelihood(joint: LogJoint) -> Callable[[Tensor], Tensor]:
    """The same of Gamma in the prior's deviations, for samplers from a standard normal prior."""
    log_likelihood = batched_log_likelihood(joint)
    prior = joint.prior
    return lambda z: log_likelihood(prior.location + prior.precision.rsqrt() * z)


def source_of_chains(prior: ISGP, x: Tensor, Gamma: Tensor) -> Array:
    """The values of nu at x for chains of Gamma: (chains, draws, M + 1) to (chains, draws, n)."""
    return prior.source(x, Gamma.flatten(0, 1)).reshape(*Gamma.shape[:2], len(x)).numpy()


def log_loss(nu: Tensor, y: Tensor, likelihood: Gaussian | Bernoulli) -> float:
    """The mean of -log p(y | D) in nats, from draws nu of shape (S, n)."""
    if isinstance(likelihood, Gaussian):
        densities = torch.distributions.Normal(nu, likelihood.alpha**-0.5).log_prob(y)
    else:
        densities = torch.nn.functional.logsigmoid((2 * y - 1) * nu)
    return float(math.log(len(nu)) - torch.logsumexp(densities, dim=0).mean())


def diagnose(nu: Array) -> dict[str, float]:
    """The worst split R-hat, bulk effective size and error of the mean in standard deviations."""
    columns = [nu[:, :, point] for point in range(nu.shape[2])]
    return {
        "r_hat": float(max(array_stats.rhat(column) for column in columns)),
        "ess": float(min(array_stats.ess(column) for column in columns)),
        "mcse": float(max(array_stats.mcse(column) / column.std() for column in columns)),
    }
