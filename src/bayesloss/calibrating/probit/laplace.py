"""Laplace's approximation for probit classification, with or without a loss in it.

LHG section 4.2, E-step of Table 3; for the plain one Rasmussen and Williams (2006), GPML, section
3.4. Newton's method, with halved steps. With a loss the posterior may have several modes, and the
start decides which is found (LHG's conjugate gradients may end at another).
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.calibrating.probit.whitened_gp import (
    Features,
    GaussianWeights,
    Labels,
    PerInput,
    Sites,
    Weights,
    curvature,
    hazard,
    log_likelihood,
    lower_gram,
    warn_if_unsettled,
)
from bayesloss.threads import one_thread

_GRADIENT = 1e-9  # a mode is found when no entry of the gradient is larger
_ARMIJO = 1e-4  # part of the rise that the slope promises, and a step has to bring: as usual
_HALVINGS = 40  # of a step: it is then 1e-12 of Newton's, and changes nothing any more


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


def laplace_probit(
    features: Features,
    y: Labels,
    term: LogTerm | None = None,
    start: Weights | None = None,
    max_iter: int = 100,
) -> GaussianWeights:
    """What :func:`find_mode` finds; a ConvergenceWarning tells of what it does not."""
    q = find_mode(features, y, term=term, start=start, max_iter=max_iter)
    warn_if_no_mode(q)
    return q


def warn_if_no_mode(q: GaussianWeights) -> None:
    """A ConvergenceWarning of data sets whose mode was not found."""
    within = f"was not found in {q.n_iterations} iterations, or is a saddle"
    warn_if_unsettled(q, "mode", within, "another start")


def find_mode(
    features: Features,
    y: Labels,
    term: LogTerm | None = None,
    start: Weights | None = None,
    max_iter: int = 100,
) -> GaussianWeights:
    """A mode of each data set's posterior and the Gaussian there, found or not."""
    z = features.new_zeros(len(y), features.shape[-1]) if start is None else start.clone()
    posterior = _Posterior(features, y, term)
    minus_hessian = z.new_empty((*z.shape, z.shape[-1]))  # each data set's where it was last
    active = torch.arange(len(y), device=y.device)
    for iteration in range(max_iter + 1):
        at = posterior.select(active).derivatives(z[active])
        minus_hessian[active] = at.minus_hessian
        unfinished = at.gradient.abs().amax(-1) > _GRADIENT
        active = active[unfinished]
        gradient = at.gradient[unfinished]
        if not len(active) or iteration == max_iter:
            break
        factor, failed = torch.linalg.cholesky_ex(at.minus_hessian[unfinished])
        # GPML (3.18). Near a saddle Newton's own step may lead downhill; the stand-in's never does.
        saddle = failed > 0
        if bool(saddle.any()):
            factor[saddle] = torch.linalg.cholesky(at.positive_definite[unfinished][saddle])
        step = torch.cholesky_solve(gradient[..., None], factor).squeeze(-1)
        z[active] = _line_search(posterior.select(active), z[active], step, gradient)
    factor, failed = torch.linalg.cholesky_ex(minus_hessian)
    converged = failed == 0
    # A saddle has no Gaussian: the identity, the prior's, stands in, and `converged` tells of it.
    fallback = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
    factor = torch.where(converged[:, None, None], factor, fallback)
    converged[active] = False
    log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    with one_thread():  # small matrices on several threads wait for each other
        covariance = torch.cholesky_inverse(factor)  # LHG Table 3, line 4
    return GaussianWeights(
        mean=z,
        covariance=covariance,
        log_evidence=posterior.log_density(z) - 0.5 * log_det,  # GPML (3.32)
        converged=converged,
        n_iterations=iteration,
        sites=touching_sites((features @ z[..., None]).squeeze(-1), y) if term is None else None,
    )


def touching_sites(latent: PerInput, y: Labels) -> Sites:
    """The quadratics that touch log Phi at latent values f: W, and W f + slope (GPML (3.18))."""
    weight = curvature(y * latent)
    return Sites(precision=weight, shift=weight * latent + y * hazard(y * latent))


class _Derivatives(NamedTuple):
    """Of the log density by the weights; the last stands in for minus the Hessian at a saddle.

    Of both matrices the lower triangle counts.
    """

    gradient: Tensor
    minus_hessian: Tensor
    positive_definite: Tensor


@dataclass(frozen=True)
class _Posterior:
    """The posterior of each data set, as a density of the weights without its constant."""

    features: Features
    y: Labels
    term: LogTerm | None

    def select(self, rows: Tensor) -> "_Posterior":
        """The same for some of the data sets."""
        term = None if self.term is None else self.term.select(rows)
        return _Posterior(self.features[rows], self.y[rows], term)

    def log_density(self, z: Weights) -> Tensor:
        return log_joint(z, self.features, self.y, self.term)

    def derivatives(self, z: Weights) -> _Derivatives:
        margin = self.y * (self.features @ z[..., None]).squeeze(-1)
        slope = self.y * hazard(margin)
        gradient = (slope[..., None, :] @ self.features).squeeze(-2) - z  # LHG eq. (27)
        unit = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
        minus_hessian = lower_gram(self.features, curvature(margin)) + unit
        if self.term is None:
            return _Derivatives(gradient, minus_hessian, positive_definite=minus_hessian)
        term_gradient, term_minus_hessian, term_stand_in = self.term.derivatives(z)
        return _Derivatives(
            gradient=gradient + term_gradient,
            minus_hessian=minus_hessian + term_minus_hessian,
            positive_definite=minus_hessian + term_stand_in,
        )


def _line_search(posterior: _Posterior, z: Tensor, step: Tensor, gradient: Tensor) -> Tensor:
    """Halve steps until the log density rises enough (Armijo)."""
    before = posterior.log_density(z)
    rise = (step * gradient).sum(-1)
    length = torch.ones_like(before)
    # Near the mode the rise drowns in rounding errors of the value itself.
    slack = 1e-14 * (1 + before.abs())
    for _ in range(_HALVINGS):
        after = posterior.log_density(z + length[..., None] * step)
        too_long = ~(after >= before + _ARMIJO * length * rise - slack)
        if not bool(too_long.any()):
            break
        length = torch.where(too_long, length / 2, length)
    return z + length[..., None] * step
