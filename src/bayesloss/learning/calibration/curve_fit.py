"""The fit of a calibrator's curve: the part of :class:`~bayesloss.LinkCalibrator` for PyTorch."""

import torch
from torch import Tensor

from bayesloss.arrays import Array
from bayesloss.learning.calibration.monotone_curves import CurvePosterior
from bayesloss.learning.data.rows import Rows
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.mixtures import NormalBernoulli, PosteriorMixture, average_priors
from bayesloss.learning.sources.priors import CentredISGP, grid_size
from bayesloss.learning.sources.trigonometric import TrigonometricKernel

_N_BASIS = 32
_FILLED = 0.8  # the part of [-1/c, 1/c] that the scores span
_LEVEL_SPREAD = 0.5  # tau: a priori the slope of a path lies in 0 to 4 or so
_GAMMA = 0.25  # the prior precision of nu in the middle of the scores
# The family that is averaged over: the variance s^2 of f about its level, and the smoothness a.
_VARIANCES = (0.5, 0.15, 0.03)
_SMOOTHNESS = (1.3, 2.0, 5.0)
_FACTS = ("log_evidence", "evidence_bound", "least_curvature", "converged", "n_iter")


def fit_curve(
    rows: Rows, centre: float, half: float, total: float, power: float
) -> tuple[CurvePosterior, bool]:
    """The posterior of nu given log odds within centre +- half, and whether it was all found."""
    c, edge = (_FILLED / half, half) if half > 0 else (1.0, 1.0)
    priors, likelihood = _priors(c, centre), NormalBernoulli()
    nodes = torch.linspace(-edge, edge, grid_size(priors[0], 2 * edge, total), dtype=torch.float64)
    shares = power * rows.fold(_shares, centre, nodes)
    data = likelihood.on_grid(priors[0].features, nodes, shares)
    found = average_priors(priors, likelihood, data, priors[-1].location)
    parts, places = found.components, {id(prior): i for i, prior in enumerate(priors)}
    modes = torch.stack([q.mode for q in parts]).numpy()
    roots = torch.stack([q.root for q in parts]).numpy()
    facts = [(places[id(q.prior)], *(getattr(q, name) for name in _FACTS)) for q in parts]
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
    kernels = [
        TrigonometricKernel(a=a, c=c, n_basis=_N_BASIS).scaled(variance)
        for variance in _VARIANCES
        for a in _SMOOTHNESS
    ]
    return [CentredISGP(each, tau=_LEVEL_SPREAD, mu=centre, gamma=_GAMMA) for each in kernels]


def _shares(x: Array, y: Array, weight: Array, centre: float, nodes: Tensor) -> Tensor:
    x, y, weight = map(torch.from_numpy, (x - centre, y, weight))
    return NormalBernoulli.shares(x, y, weight, nodes)
