"""Laplace's approximation for probit classification, with or without a loss in it.

LHG section 4.2, E-step of Table 3; Rasmussen and Williams (2006), GPML, section 3.4, for the plain
one.
"""

from typing import Protocol

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.calibrating.probit.whitened_gp import (
    GaussianWeights,
    check_data,
    check_max_iter,
    check_real,
    curvature,
    hazard,
    log_likelihood,
)
from bayesloss.warnings import warn_caller

__all__ = ["LogTerm", "find_mode", "laplace_probit", "log_joint"]


class LogTerm(Protocol):
    """A term that is added to the log posterior, such as the log utility of loss-EM."""

    def value(self, z: Tensor) -> Tensor:
        """Of shape (...), at weights of shape (..., r)."""

    def derivatives(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradient, minus the Hessian, and a positive semidefinite stand-in for the latter."""

    def select(self, rows: Tensor) -> "LogTerm":
        """The same for some of the data sets."""


def log_joint(z: Tensor, features: Tensor, y: Tensor, term: LogTerm | None = None) -> Tensor:
    """Log of likelihood x standard normal prior (without its constant), of shape (...)."""
    margin = y * (features @ z[..., None]).squeeze(-1)
    value = log_likelihood(margin).sum(-1) - 0.5 * (z**2).sum(-1)
    return value if term is None else value + term.value(z)


def laplace_probit(
    features: Tensor,
    y: Tensor,
    *,
    term: LogTerm | None = None,
    start: Tensor | None = None,
    max_iter: int = 100,
    tolerance: float = 1e-9,
) -> GaussianWeights:
    """Find a mode of every data set's posterior, and the Gaussian with its curvature.

    Newton's method, with steps halved until the log density rises, and a positive definite stand-in
    for the second derivatives where they are indefinite. The plain posterior is
    log-concave and has one mode. With a loss in it there may be several, and the one that is
    reached depends on the start (LHG use conjugate gradients, which may end at another).

    Parameters
    ----------
    features : Tensor of shape (m, n, r)
    y : Tensor of shape (m, n)
        +1 or -1.
    term : LogTerm, optional
        Added to the log posterior.
    start : Tensor of shape (m, r), optional
        Zero if none is given.
    max_iter : int, default=100
    tolerance : float, default=1e-9
        A mode is found when no entry of the gradient is larger.

    Returns
    -------
    GaussianWeights
        With sites where there is no term.

    Raises
    ------
    ValueError
        If the shapes do not fit together, a value is not finite, a label is neither +1 nor -1, or
        ``max_iter`` is less than 1.

    Warns
    -----
    ConvergenceWarning
        If the search for a mode did not end, or ended where the curvature is not positive.
    """
    features, y = check_data(features, y)
    m, _, r = features.shape
    if start is not None:
        start = check_real(start, "start")
        if start.shape != (m, r) or not bool(torch.isfinite(start).all()):
            raise ValueError(
                f"expected a finite start of shape {(m, r)}, got one of shape {tuple(start.shape)}"
            )
    q = find_mode(features, y, term, start, max_iter, tolerance)
    if not bool(q.converged.all()):
        warn_caller(
            f"the mode of {int((~q.converged).sum())} of {m} posteriors was not found in "
            f"{max_iter} iterations, or is a saddle: use a larger max_iter, or another start",
            ConvergenceWarning,
        )
    return q


def find_mode(
    features: Tensor,
    y: Tensor,
    term: LogTerm | None = None,
    start: Tensor | None = None,
    max_iter: int = 100,
    tolerance: float = 1e-9,
) -> GaussianWeights:
    """:func:`laplace_probit` without a check or a word: for searches that call it often."""
    check_max_iter(max_iter)
    m, _, r = features.shape
    z = features.new_zeros((m, r)) if start is None else start.clone()
    gradient = torch.full_like(z, torch.inf)
    active = torch.arange(m, device=features.device)
    iteration = 0
    for iteration in range(max_iter + 1):
        part = None if term is None else term.select(active)
        gradient, hessian, safe = _derivatives(z[active], features[active], y[active], part)
        unfinished = gradient.abs().amax(-1) > tolerance
        active, gradient = active[unfinished], gradient[unfinished]
        hessian, safe = hessian[unfinished], safe[unfinished]
        if not len(active) or iteration == max_iter:
            break
        part = None if term is None else term.select(active)
        factor, failed = torch.linalg.cholesky_ex(hessian)
        # GPML (3.18). Near a saddle Newton's own step may lead downhill; the stand-in's never does.
        factor = torch.where((failed > 0)[:, None, None], torch.linalg.cholesky(safe), factor)
        step = torch.cholesky_solve(gradient[..., None], factor).squeeze(-1)
        z[active] = _line_search(z[active], step, gradient, features[active], y[active], part)
    _, hessian, _ = _derivatives(z, features, y, term)
    factor, failed = torch.linalg.cholesky_ex(hessian)
    converged = failed == 0
    converged[active] = False
    if bool(failed.any()):
        fallback = torch.eye(r, dtype=z.dtype, device=z.device).expand_as(factor)
        factor = torch.where((failed == 0)[:, None, None], factor, fallback)
    log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    latent = (features @ z[..., None]).squeeze(-1)
    weight = curvature(y * latent)
    return GaussianWeights(
        mean=z,
        covariance=torch.cholesky_inverse(factor),  # LHG Table 3, line 4
        log_evidence=log_joint(z, features, y, term) - 0.5 * log_det,  # GPML (3.32)
        converged=converged,
        n_iterations=iteration,
        # The quadratic that touches log Phi at the mode: W, and W f + slope as in GPML (3.18).
        sites=(weight, weight * latent + y * hazard(y * latent)) if term is None else None,
    )


def _derivatives(
    z: Tensor, features: Tensor, y: Tensor, term: LogTerm | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient, minus the Hessian, and a positive definite stand-in for the latter."""
    margin = y * (features @ z[..., None]).squeeze(-1)
    gradient = ((y * hazard(margin))[..., None, :] @ features).squeeze(-2) - z  # LHG eq. (27)
    weighted = features * curvature(margin)[..., None]
    hessian = features.mT @ weighted + torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
    if term is None:
        return gradient, hessian, hessian
    slope, minus_hessian, safe = term.derivatives(z)
    return gradient + slope, hessian + minus_hessian, hessian + safe


def _line_search(
    z: Tensor,
    step: Tensor,
    gradient: Tensor,
    features: Tensor,
    y: Tensor,
    term: LogTerm | None,
) -> Tensor:
    """Halve the steps of those data sets whose log density would not rise enough (Armijo)."""
    before = log_joint(z, features, y, term)
    rise = (step * gradient).sum(-1)
    length = torch.ones_like(before)
    # Near the mode the rise drowns in rounding errors of the value itself.
    slack = 1e-14 * (1 + before.abs())
    for _ in range(40):
        after = log_joint(z + length[..., None] * step, features, y, term)
        short = ~(after >= before + 1e-4 * length * rise - slack)
        if not bool(short.any()):
            break
        length = torch.where(short, length / 2, length)
    return z + length[..., None] * step
