"""The parts of calibrators' fits that need PyTorch: the posterior of a curve, and searches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesloss.arrays import Array
from bayesloss.learning.calibration.calibrator_base import matrix_precision
from bayesloss.learning.calibration.monotone_curves import (
    CurveComponent,
    CurvePosterior,
    MonotoneCurve,
)
from bayesloss.learning.data.rows import Rows
from bayesloss.learning.evidence.mixtures import NormalBernoulli, PosteriorMixture, average_priors
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.sources.priors import CentredISGP, SourcePrior, grid_size
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.optimise import differentiated, minimise
from bayesloss.threads import one_thread

_CURVE_FILLED = 0.8  # the part of [-1/c, 1/c] that the scores of a LinkCalibrator span
_SOURCE_FILLED = 0.5  # and the u of a class of a SoftmaxCalibrator
MAX_ITER = 500  # of its searches


@one_thread()
def fit_curve(rows: Rows, centre: float, half: float, total: float, power: float) -> CurvePosterior:
    """The posterior of nu given log odds within centre +- half, of a total weight."""
    c = 1.0
    edge = 1.0
    if half > 0:
        c = _CURVE_FILLED / half
        edge = half
    priors: Sequence[SourcePrior] = _priors(c, centre)
    likelihood = NormalBernoulli()
    size = grid_size(priors[0], 2 * edge, total)
    nodes = torch.linspace(-edge, edge, size, dtype=torch.float64)
    shares = power * rows.fold(_shares, centre, nodes)
    observations = likelihood.on_grid(priors[0].features, nodes, shares)
    average = average_priors(priors, likelihood, observations, priors[-1].location)
    upper = np.triu_indices(len(priors[0].location))
    components = [
        CurveComponent(
            prior=priors.index(posterior.prior),
            weight=weight,
            mode=posterior.mode.numpy(),
            triangle=posterior.root.numpy()[upper],
            log_evidence=posterior.log_evidence,
            evidence_bound=posterior.evidence_bound,
            least_curvature=posterior.least_curvature,
            converged=posterior.converged,
            n_iter=posterior.n_iter,
        )
        for posterior, weight in zip(average.components, average.weights.tolist(), strict=True)
    ]
    return CurvePosterior(c=c, components=components, converged=average.converged)


def mixture(curves: CurvePosterior, centre: float) -> PosteriorMixture:
    """The same posterior with its priors, as inference has it."""
    priors = _priors(curves.c, centre)
    likelihood = NormalBernoulli()
    components = [
        Posterior(
            prior=priors[component.prior],
            likelihood=likelihood,
            mode=torch.from_numpy(component.mode),
            root=torch.from_numpy(component.root),
            log_evidence=component.log_evidence,
            evidence_bound=component.evidence_bound,
            least_curvature=component.least_curvature,
            converged=component.converged,
            n_iter=component.n_iter,
        )
        for component in curves.components
    ]
    return PosteriorMixture(components, torch.from_numpy(curves.weights))


def _priors(c: float, centre: float) -> list[CentredISGP]:
    """The family that is averaged over: how far a path strays from a line, and how smoothly.

    A priori its slope lies in 0 to 4 or so, by tau; in the middle of the scores its standard
    deviation is 2, by gamma.
    """
    kernels = [
        TrigonometricKernel(a=a, c=c, n_basis=32).scaled(variance)
        for variance in (0.5, 0.15, 0.03)
        for a in (1.3, 2.0, 5.0)
    ]
    return [CentredISGP(kernel, tau=0.5, mu=centre, gamma=0.25) for kernel in kernels]


def _shares(x: Array, y: Array, weight: Array, centre: float, nodes: Tensor) -> Tensor:
    return NormalBernoulli.shares(
        torch.from_numpy(x - centre), torch.from_numpy(y), torch.from_numpy(weight), nodes
    )


@dataclass(frozen=True)
class CrossEntropy:
    """The weighted log loss of logits (n, K) for cases of known classes, in nats."""

    codes: NDArray
    weight: Array

    def __call__(self, logits: Tensor) -> Tensor:
        """The loss, of shape ()."""
        codes = torch.from_numpy(self.codes)
        losses = torch.nn.functional.cross_entropy(logits, codes, reduction="none")
        return torch.from_numpy(self.weight) @ losses


@dataclass(frozen=True)
class MatrixFit:
    """The matrix I + W and intercept b of a SoftmaxCalibrator, and whether these are at a mode."""

    matrix: Array  # (K, K)
    intercept: Array  # (K,)
    converged: bool


@one_thread()
def fit_matrix(logits: Array, loss: CrossEntropy) -> MatrixFit:
    """The mode of matrix and intercept, from the identity."""
    K = logits.shape[1]
    z = torch.from_numpy(logits)
    penalty = torch.from_numpy(matrix_precision(K)) / 2

    def objective(theta: Tensor) -> Tensor:
        W = theta.reshape(K, K + 1)
        return loss(z + z @ W[:, :K].T + W[:, K]) + (penalty * W**2).sum()

    mode, converged = _minimum(objective, penalty)
    mode = np.eye(K, K + 1) + mode
    return MatrixFit(matrix=mode[:, :K].copy(), intercept=mode[:, K].copy(), converged=converged)


@one_thread()
def fit_sources(u: Array, loss: CrossEntropy) -> tuple[list[MonotoneCurve], bool]:
    """The mode of all sources together, and whether it was found.

    The search is in units of the priors' standard deviations.
    """
    columns = torch.from_numpy(u).T
    priors = [_source_prior(column) for column in columns]
    features = [
        prior.features(column - prior.mu) for prior, column in zip(priors, columns, strict=True)
    ]
    location = torch.stack([prior.location for prior in priors])
    spread = priors[0].precision.rsqrt()  # the same for all

    def objective(theta: Tensor) -> Tensor:
        Gammas = location + theta.reshape(location.shape) * spread
        logits = [
            h @ prior.coefficients(Gamma)
            for h, prior, Gamma in zip(features, priors, Gammas, strict=True)
        ]
        return loss(torch.stack(logits, dim=1)) + (theta**2).sum() / 2

    theta, converged = _minimum(objective, location)
    modes = (location + torch.from_numpy(theta) * spread).numpy()
    curves = [
        MonotoneCurve(
            centre=float(prior.mu),
            c=prior.kernel.c,
            Gamma=mode,
            precision=prior.precision.numpy(),
        )
        for prior, mode in zip(priors, modes, strict=True)
    ]
    return curves, converged


def _source_prior(u: Tensor) -> CentredISGP:
    """The prior of a class's source: standard deviations of .05 and .22 of level and intercept."""
    centre = (u.min() + u.max()) / 2
    reach = float((u - centre).abs().max())
    c = 1.0
    if reach > 0:
        c = _SOURCE_FILLED / reach
    kernel = TrigonometricKernel(a=2.5, c=c, n_basis=16).scaled(0.03)
    return CentredISGP(kernel, tau=0.05, mu=float(centre), gamma=20.0)


def _minimum(objective: Callable[[Tensor], Tensor], like: Tensor) -> tuple[Array, bool]:
    """Where the objective is least, from zero, and whether the search for it converged."""
    start = like.new_zeros(like.numel())
    search = minimise(differentiated(objective), start, options={"maxiter": MAX_ITER})
    return search.x.reshape(like.shape), bool(search.success)
