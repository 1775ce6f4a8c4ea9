"""Laplace's approximation for probit classification, with or without a loss in it.

LHG section 4.2, E-step of Table 3; for the plain one Rasmussen and Williams (2006), GPML, section
3.4. Newton's method, with halved steps. With a loss the posterior may have several modes, and the
start decides which is found (LHG's conjugate gradients may end at another).
"""

from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.calibrating.probit.whitened_gp import (
    Features,
    GaussianWeights,
    Labels,
    Weights,
    curvature,
    hazard,
    log_likelihood,
    warn_if_unsettled,
)
from bayesloss.threads import one_thread

_GRADIENT = 1e-9  # a mode is found when no entry of the gradient is larger


class LogTerm(Protocol):
    """A factor of the posterior, such as the utility of loss-EM: its logarithm at weights z."""

    def value(self, z: Tensor) -> Tensor:
        """At weights of shape (..., r), of shape (...)."""

    def derivatives(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradient, minus the Hessian, and a positive semidefinite stand-in for the latter."""

    def log_expectation(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The log of the factor's mean under a Gaussian; its gradient and Hessian by the mean."""

    def select(self, rows: Tensor) -> "LogTerm":
        """The same for some of the data sets."""


def log_joint(
    z: Weights, features: Features, y: Labels, term: LogTerm | None = None
) -> Float[Tensor, "*m"]:
    """Log of likelihood x standard normal prior (without its constant), and of the term."""
    margin = y * (features @ z[..., None]).squeeze(-1)
    value = log_likelihood(margin).sum(-1) - 0.5 * (z**2).sum(-1)
    return value if term is None else value + term.value(z)


def laplace_probit(features: Features, y: Labels, **how: Any) -> GaussianWeights:
    """What :func:`find_mode` finds; a ConvergenceWarning tells of what it does not."""
    q = find_mode(features, y, **how)
    within = f"was not found in {q.n_iterations} iterations, or is a saddle"
    warn_if_unsettled(q, "mode", within, "another start")
    return q


def find_mode(
    features: Features,
    y: Labels,
    term: LogTerm | None = None,
    start: Weights | None = None,
    max_iter: int = 100,
) -> GaussianWeights:
    """A mode of each data set's posterior and the Gaussian there, found or not."""
    z = features.new_zeros(len(y), features.shape[-1]) if start is None else start.clone()
    active = torch.arange(len(y), device=y.device)
    for iteration in range(max_iter + 1):
        gradient, hessian, safe = _derivatives(z[active], *_some(features, y, term, active))
        unfinished = gradient.abs().amax(-1) > _GRADIENT
        active, gradient = active[unfinished], gradient[unfinished]
        if not len(active) or iteration == max_iter:
            break
        factor, failed = torch.linalg.cholesky_ex(hessian[unfinished])
        # GPML (3.18). Near a saddle Newton's own step may lead downhill; the stand-in's never does.
        stand_in = torch.linalg.cholesky(safe[unfinished])
        factor = torch.where((failed > 0)[:, None, None], stand_in, factor)
        step = torch.cholesky_solve(gradient[..., None], factor).squeeze(-1)
        z[active] = _line_search(z[active], step, gradient, _some(features, y, term, active))
    _, hessian, _ = _derivatives(z, features, y, term)
    factor, failed = torch.linalg.cholesky_ex(hessian)
    converged = failed == 0
    fallback = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
    factor = torch.where(converged[:, None, None], factor, fallback)
    converged[active] = False
    log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    latent = (features @ z[..., None]).squeeze(-1)
    weight = curvature(y * latent)
    with one_thread():
        covariance = torch.cholesky_inverse(factor)  # LHG Table 3, line 4
    return GaussianWeights(
        mean=z,
        covariance=covariance,
        log_evidence=log_joint(z, features, y, term) - 0.5 * log_det,  # GPML (3.32)
        converged=converged,
        n_iterations=iteration,
        # The quadratic that touches log Phi at the mode: W, and W f + slope as in GPML (3.18).
        sites=(weight, weight * latent + y * hazard(y * latent)) if term is None else None,
    )


_Data = tuple[Tensor, Tensor, LogTerm | None]
_Three = tuple[Tensor, Tensor, Tensor]


def _some(features: Tensor, y: Tensor, term: LogTerm | None, rows: Tensor) -> _Data:
    return features[rows], y[rows], None if term is None else term.select(rows)


def _derivatives(z: Weights, features: Features, y: Labels, term: LogTerm | None) -> _Three:
    margin = y * (features @ z[..., None]).squeeze(-1)
    gradient = ((y * hazard(margin))[..., None, :] @ features).squeeze(-2) - z  # LHG eq. (27)
    weighted = features * curvature(margin)[..., None]
    hessian = features.mT @ weighted + torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
    if term is None:
        return gradient, hessian, hessian
    slope, minus_hessian, safe = term.derivatives(z)
    return gradient + slope, hessian + minus_hessian, hessian + safe


def _line_search(z: Tensor, step: Tensor, gradient: Tensor, data: _Data) -> Tensor:
    """Halve steps until the log density rises enough (Armijo)."""
    before = log_joint(z, *data)
    rise = (step * gradient).sum(-1)
    length = torch.ones_like(before)
    # Near the mode the rise drowns in rounding errors of the value itself.
    slack = 1e-14 * (1 + before.abs())
    for _ in range(40):
        after = log_joint(z + length[..., None] * step, *data)
        short = ~(after >= before + 1e-4 * length * rise - slack)
        if not bool(short.any()):
            break
        length = torch.where(short, length / 2, length)
    return z + length[..., None] * step
