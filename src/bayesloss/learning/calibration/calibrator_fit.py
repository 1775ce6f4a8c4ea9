"""The parts of calibrators' fits that need PyTorch: the posterior of a curve, and searches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.utils import gen_batches
from torch import Tensor

from bayesloss.arrays import Array
from bayesloss.learning.calibration.calibrator_base import matrix_precision
from bayesloss.learning.calibration.monotone_curves import (
    CurveComponent,
    CurvePosterior,
    MonotoneCurve,
)
from bayesloss.learning.data.folds import Folds, content_folds, group_folds
from bayesloss.learning.data.inputs import equal_rows
from bayesloss.learning.data.rows import Rows
from bayesloss.learning.evidence.mixtures import NormalBernoulli, PosteriorMixture, average_priors
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.sources.priors import CentredISGP, SourcePrior, grid_size
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.optimise import differentiated, minimise
from bayesloss.threads import one_thread, threads_for

_CURVE_FILLED = 0.8  # the part of [-1/c, 1/c] that the scores of a LinkCalibrator span
_SOURCE_FILLED = 0.5  # and the u of a class of a SoftmaxCalibrator
_SOURCE_NODES = 257  # of a period: sixteen for a wave of f^2's highest harmonic
# The prior of a class's source: standard deviations of .05 and .22 of level and intercept.
_SOURCE_KERNEL = TrigonometricKernel(a=2.5, c=1.0, n_basis=16).scaled(0.03)
MAX_ITER = 500  # of its searches
_FOLDS = 5  # that decide on its matrix and sources
_ENOUGH = 2**22  # logits: of more, one of the folds tells enough
_DIGITS = 6  # of log probabilities: what lies below may differ between processors
_PART = 2**20  # numbers that a step of the matrix's search takes at a time


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
class Shares:
    """How much of matrix and sources is used: z = l + matrix (u - l + sources (nu(u) - u))."""

    matrix: float
    sources: float


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

    def some(self, rows: Any) -> "CrossEntropy":
        """That of some of the cases."""
        return CrossEntropy(self.codes[rows], self.weight[rows])

    def slopes(self, logits: Tensor) -> tuple[float, Tensor]:
        """The loss, and its derivatives by the logits."""
        rows = torch.arange(len(logits))
        codes = torch.from_numpy(self.codes)
        weight = torch.from_numpy(self.weight)
        log_p = torch.log_softmax(logits, dim=1)
        loss = -float(weight @ log_p[rows, codes])
        slopes = log_p.exp_()
        slopes[rows, codes] -= 1
        return loss, slopes.mul_(weight[:, None])


@dataclass(frozen=True)
class MatrixFit:
    """The matrix I + W and intercept b of a SoftmaxCalibrator, and whether these are at a mode."""

    matrix: Array  # (K, K)
    intercept: Array  # (K,)
    converged: bool

    def __call__(self, logits: Array) -> Array:
        """The logits u = l + W l + b."""
        return logits @ self.matrix.T + self.intercept


def no_matrix(K: int) -> MatrixFit:
    """The identity."""
    return MatrixFit(matrix=np.eye(K), intercept=np.zeros(K), converged=True)


@one_thread()
def fit_matrix(logits: Array, loss: CrossEntropy, start: MatrixFit) -> MatrixFit:
    """The mode of matrix and intercept, in units of the prior's standard deviations."""
    n, K = logits.shape
    z = torch.from_numpy(logits)
    spread = torch.from_numpy(matrix_precision(K)).rsqrt()

    def evaluate(theta: Tensor) -> tuple[float, Tensor]:
        W = theta.reshape(spread.shape) * spread
        value = float(theta @ theta) / 2
        slopes = torch.zeros_like(W)
        for rows in gen_batches(n, max(1, _PART // K)):
            part = z[rows]
            loss_here, by_u = loss.some(rows).slopes(part + part @ W[:, :K].T + W[:, K])
            value += loss_here
            slopes[:, :K] += by_u.T @ part
            slopes[:, K] += by_u.sum(dim=0)
        return value, theta + (slopes * spread).flatten()

    first = np.column_stack([start.matrix - np.eye(K), start.intercept])
    with threads_for(min(n, _PART // K), K, K):
        search = minimise(
            evaluate, (torch.from_numpy(first) / spread).flatten(), options={"maxiter": MAX_ITER}
        )
    mode = search.x.reshape(K, K + 1) * spread.numpy()
    W = mode[:, :K].astype(np.float32)  # half as large when it is stored, and precise enough
    return MatrixFit(
        matrix=np.eye(K) + W,
        intercept=mode[:, K].copy(),
        converged=bool(search.success),
    )


@dataclass(frozen=True)
class SourcesFit:
    """A source a class, and whether these are at a mode."""

    curves: list[MonotoneCurve]
    converged: bool

    def __call__(self, u: Array) -> Array:
        """The logits z = nu(u)."""
        columns = [curve(column) for curve, column in zip(self.curves, u.T, strict=True)]
        return np.stack(columns, axis=1)


@one_thread()
def fit_sources(u: Array, loss: CrossEntropy, start: SourcesFit | None = None) -> SourcesFit:
    """The mode of all sources together, in units of the priors' standard deviations.

    Curves are tabulated at nodes between which they are straight. As all are alike but for a centre
    and a unit 1 / c of u, so is what their parameters are multiplied with.
    """
    K = u.shape[1]
    prior = CentredISGP(_SOURCE_KERNEL, tau=0.05, gamma=20.0)
    if start is None:
        centre = (u.min(axis=0) + u.max(axis=0)) / 2
        reach = np.abs(u - centre).max(axis=0)
        c = np.where(reach > 0, _SOURCE_FILLED / np.where(reach > 0, reach, 1.0), 1.0)
        Gamma = np.tile(prior.location.numpy(), (K, 1))
    else:
        centre = np.array([curve.centre for curve in start.curves])
        c = np.array([curve.c for curve in start.curves])
        Gamma = np.stack([curve.Gamma for curve in start.curves])
        Gamma[:, -1] -= centre
    nodes = torch.linspace(-1, 1, _SOURCE_NODES, dtype=torch.float64)
    features = prior.features(nodes).T
    place = torch.from_numpy(c * (u - centre) + 1) * ((_SOURCE_NODES - 1) / 2)
    below = place.long().clamp_(0, _SOURCE_NODES - 2)
    part = place - below
    below += _SOURCE_NODES * torch.arange(K)
    spread = prior.precision.rsqrt()
    units = torch.from_numpy(1 / c)[:, None]
    level = torch.from_numpy(centre)[:, None]

    def objective(theta: Tensor) -> Tensor:
        Gammas = prior.location + theta.reshape(K, -1) * spread
        of_features = prior.coefficients(Gammas)
        values = (of_features[:, :-1] @ features[:-1]) * units + of_features[:, -1:] + level
        values = values.flatten()
        low = values[below]
        return loss(low + part * (values[below + 1] - low)) + (theta**2).sum() / 2

    first = (torch.from_numpy(Gamma) - prior.location) / spread
    search = minimise(differentiated(objective), first.flatten(), options={"maxiter": MAX_ITER})
    modes = (prior.location + torch.from_numpy(search.x).reshape(K, -1) * spread).numpy()
    modes[:, -1] += centre
    curves = [
        MonotoneCurve(
            centre=float(centre[k]),
            c=float(c[k]),
            Gamma=modes[k],
            precision=prior.precision.numpy(),
        )
        for k in range(K)
    ]
    return SourcesFit(curves=curves, converged=bool(search.success))


@one_thread()
def fit_shares(
    logits: Array,
    loss: CrossEntropy,
    groups: NDArray | None,
    affine: MatrixFit,
    sources: SourcesFit | None,
) -> Shares:
    """The shares under which held-out cases have the least loss.

    Matrix and sources are fitted anew without each fold, from the modes of all cases.
    """
    folds = _folds(logits, loss, groups)
    of_parts = CrossEntropy(loss.codes[folds.rows], folds.weight)
    l = torch.from_numpy(logits[folds.rows])
    mixed = l.clone()
    bent = l.clone()  # what is never held out loses as much whatever is used
    for k in range(_FOLDS if logits.size <= _ENOUGH else 1):
        out = folds.fold == k
        if not out.any():
            continue
        rest = of_parts.some(~out)
        without = l[~out].numpy()
        affine_k = fit_matrix(without, rest, affine)
        u = affine_k(l[out].numpy())
        mixed[out] = torch.from_numpy(u)
        if sources is not None:
            sources_k = fit_sources(affine_k(without), rest, sources)
            bent[out] = torch.from_numpy(sources_k(u))
    if sources is None:
        bent = mixed

    def objective(theta: Tensor) -> Tensor:
        used, by_sources = theta
        return of_parts(l + used * (mixed - l + by_sources * (bent - mixed)))

    # A start inside: at the corners a share of nothing has no slope.
    start = torch.full((2,), 0.5, dtype=torch.float64)
    bounds = torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    search = minimise(
        differentiated(objective), start, bounds=bounds, options={"maxiter": MAX_ITER}
    )
    used, by_sources = search.x.tolist()
    if sources is None:
        by_sources = 0.0
    return Shares(matrix=used, sources=by_sources)


def _folds(logits: Array, loss: CrossEntropy, groups: NDArray | None) -> Folds:
    """Folds that what the cases hold decides, and neither their order nor any names.

    :mod:`bayesloss.learning.data.folds` goes by the numbers of classes and groups. These are first
    numbered by how many cases they have, and then by the scores of these.
    """
    own = np.take_along_axis(logits, loss.codes[:, None], axis=1)[:, 0]
    classes = _numbers_by_content(loss.codes, own, loss.weight, logits.shape[1])
    codes = classes[loss.codes]
    if groups is not None:
        numbers = _numbers_by_content(groups, own, loss.weight, int(groups.max()) + 1)
        folds = group_folds(numbers[groups], codes, loss.weight)
    else:
        rows = np.empty_like(logits)
        rows[:, classes] = np.round(logits, _DIGITS)
        p = softmax(rows, axis=1)
        folds = content_folds(equal_rows(rows), codes, loss.weight, p, spread=False)
    return folds.in_fewer(_FOLDS)


def _numbers_by_content(members: NDArray, values: Array, weight: Array, n_sets: int) -> NDArray:
    """New numbers of sets 0, 1, ..., by their weights and then by the values of their members."""
    total = np.bincount(members, weight, minlength=n_sets)
    of_values = np.bincount(members, weight * values, minlength=n_sets)
    order = np.lexsort((np.round(of_values, _DIGITS), np.round(total, _DIGITS)))
    return np.argsort(order)
