"""The parts of calibrators' fits that need PyTorch: the posterior of a curve, and searches."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from bayesloss.arrays import Array
from bayesloss.learning.calibration.calibrator_base import matrix_precision
from bayesloss.learning.calibration.monotone_curves import CurvePosterior, MonotoneCurve
from bayesloss.learning.data.rows import Rows
from bayesloss.learning.evidence.mixtures import NormalBernoulli, PosteriorMixture, average_priors
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.sources.priors import CentredISGP, grid_size
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.optimise import differentiated, minimise
from bayesloss.threads import one_thread

_CURVE_FILLED = 0.8  # the part of [-1/c, 1/c] that the scores of a LinkCalibrator span
_FILLED = 0.5  # and the u of a class of a SoftmaxCalibrator
MAX_ITER = 500  # of its searches


@one_thread()
def fit_curve(
    rows: Rows, centre: float, half: float, total: float, power: float
) -> tuple[CurvePosterior, bool]:
    """The posterior of nu given log odds within centre +- half, and whether it was all found."""
    c, edge = (_CURVE_FILLED / half, half) if half > 0 else (1.0, 1.0)
    priors, likelihood = _priors(c, centre), NormalBernoulli()
    nodes = torch.linspace(-edge, edge, grid_size(priors[0], 2 * edge, total), dtype=torch.float64)
    shares = power * rows.fold(_shares, centre, nodes)
    data = likelihood.on_grid(priors[0].features, nodes, shares)
    found = average_priors(priors, likelihood, data, priors[-1].location)
    # In the order of the fields of Posterior.
    own, _, modes, roots, *facts = zip(*(vars(q).values() for q in found.components), strict=True)
    facts = list(zip(map(priors.index, own), *facts, strict=True))
    modes, roots = torch.stack(modes).numpy(), torch.stack(roots).numpy()
    return CurvePosterior(c, found.weights.numpy(), modes, roots, facts), found.converged


def mixture(q: CurvePosterior, centre: float) -> PosteriorMixture:
    """The same posterior with its priors, as inference has it."""
    priors, likelihood = _priors(q.c, centre), NormalBernoulli()
    parts = [
        Posterior(priors[place], likelihood, torch.from_numpy(mode), torch.from_numpy(root), *facts)
        for mode, root, (place, *facts) in zip(q.modes, q.roots, q.facts, strict=True)
    ]
    return PosteriorMixture(parts, torch.from_numpy(q.weights))


def _priors(c: float, centre: float) -> list[CentredISGP]:
    """The family that is averaged over; a priori the slope of a path lies in 0 to 4 or so."""
    kernels = [
        TrigonometricKernel(a=a, c=c, n_basis=32).scaled(variance)
        for variance in (0.5, 0.15, 0.03)
        for a in (1.3, 2.0, 5.0)
    ]
    return [CentredISGP(each, tau=0.5, mu=centre, gamma=0.25) for each in kernels]


def _shares(x: Array, y: Array, weight: Array, centre: float, nodes: Tensor) -> Tensor:
    x, y, weight = map(torch.from_numpy, (x - centre, y, weight))
    return NormalBernoulli.shares(x, y, weight, nodes)


@dataclass(frozen=True)
class CrossEntropy:
    """The weighted log loss of logits (n, K) for cases of known classes, in nats."""

    codes: NDArray
    weight: Array

    def __call__(self, logits: Tensor) -> Tensor:
        """The loss, of shape ()."""
        target, cross_entropy = torch.from_numpy(self.codes), torch.nn.functional.cross_entropy
        return torch.from_numpy(self.weight) @ cross_entropy(logits, target, reduction="none")


@one_thread()
def fit_temperature(logits: Array, loss: CrossEntropy) -> float:
    """The factor of logits; a weak prior keeps it finite where classes can be separated."""
    z = torch.from_numpy(logits)
    found = minimize_scalar(
        lambda log_t: float(loss(math.exp(log_t) * z)) + log_t**2 / 8,
        bounds=np.log([1e-4, 1e4]),
        method="bounded",
    )
    return math.exp(found.x)


@one_thread()
def fit_matrix(logits: Array, loss: CrossEntropy) -> tuple[Array, Array, bool]:
    """Matrix and intercept, and whether the search for them converged."""
    K, z = logits.shape[1], torch.from_numpy(logits)
    penalty = torch.from_numpy(matrix_precision(K)) / 2

    def objective(theta: Tensor) -> Tensor:
        W = theta.reshape(K, K + 1)
        return loss(z + z @ W[:, :K].T + W[:, K]) + (penalty * W**2).sum()

    mode, converged = _minimum(objective, penalty)
    mode = np.eye(K, K + 1) + mode
    return mode[:, :K].copy(), mode[:, K].copy(), converged


@one_thread()
def fit_sources(u: Array, loss: CrossEntropy) -> tuple[list[MonotoneCurve], bool]:
    """All sources together, in units of their priors' standard deviations."""
    priors, features = [], []
    for column in torch.from_numpy(u).T:
        centre = (column.min() + column.max()) / 2
        reach = float((column - centre).abs().max())
        c = _FILLED / reach if reach > 0 else 1.0
        kernel = TrigonometricKernel(a=2.5, c=c, n_basis=16).scaled(0.03)
        prior = CentredISGP(kernel, tau=0.05, mu=float(centre), gamma=20.0)
        priors.append(prior)
        features.append(prior.features(column - centre))
    location = torch.stack([prior.location for prior in priors])
    spread = priors[0].precision.rsqrt()  # the same for all

    def objective(theta: Tensor) -> Tensor:
        Gamma = location + theta.reshape(location.shape) * spread
        terms = zip(features, priors, Gamma, strict=True)
        columns = [h @ prior.coefficients(each) for h, prior, each in terms]
        return loss(torch.stack(columns, dim=1)) + (theta**2).sum() / 2

    theta, converged = _minimum(objective, location)
    Gamma = (location + torch.from_numpy(theta) * spread).numpy()
    modes = zip(priors, Gamma, strict=True)
    curves = [MonotoneCurve(float(p.mu), p.kernel.c, G, p.precision.numpy()) for p, G in modes]
    return curves, converged


def _minimum(objective: Callable[[Tensor], Tensor], like: Tensor) -> tuple[Array, bool]:
    """Where the objective is least, from zero, and whether the search for it converged."""
    start, options = like.new_zeros(like.numel()), {"maxiter": MAX_ITER}
    found = minimise(differentiated(objective), start, options=options)
    return found.x.reshape(like.shape), bool(found.success)
