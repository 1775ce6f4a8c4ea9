r"""Laplace's method and EP under a kernel matrix, for a search of the kernel and for many inputs.

A search meets another matrix K at each step. Whitening it, as :mod:`whitened_gp` does, takes its
eigenvectors, and these ten times as long as a Cholesky factor; and where there are nearly as many
weights as inputs, their precision takes a product besides, twice as long as its factor. Here only

.. math:: B = I + T^{1/2} K T^{1/2}

is factorised, T the precisions of the sites, whose eigenvalues are at least one however singular K
is (GPML (3.26)).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.calibrating.probit.expectation_propagation import (
    SETTLED,
    LatentPosterior,
    expectation_propagation,
    fit_sites,
    log_evidence_of_sites,
    mean_by_sites,
    update_together,
)
from bayesloss.calibrating.probit.laplace import (
    find_mode,
    laplace_probit,
    touching_sites,
    warn_if_no_mode,
)
from bayesloss.calibrating.probit.whitened_gp import (
    MANY_INPUTS,
    GaussianWeights,
    Inference,
    Labels,
    Moments,
    PerInput,
    Sites,
    WhitenedGP,
    inverse_of_factor,
    log_likelihood,
    skewness,
)

_NEWTON_STEPS = 100  # at most, where 4 to 15 are usual
_HALVINGS = 40  # of a step: it is then 1e-12 of Newton's, and changes nothing any more
# Newton's method converges quadratically: after a step that gains so little no other one is needed.
_LEAST_RISE = 1e-10
_ROUGH_RISE = 1.0  # of Newton's method before EP: more steps of it save no sweep
_FLAT = 1e-2  # a precision below which rounding, 1e-13 divided by it, would count in EP
_SWEEPS = 100  # of EP, before its sites are updated one by one


class Evidence(NamedTuple):
    """The log evidence of a kernel matrix, summed over data sets, and its slopes."""

    value: float
    by_kernel: Float[Tensor, "n n"]
    """G: the log evidence changes by half the sum of G dK."""

    sites: Sites


def evidence_under(
    K: Float[Tensor, "n n"],
    y: Labels,
    inference: Inference,
    start: Sites | None = None,
    settled: float = SETTLED,
) -> Evidence:
    """Log evidence by Laplace's method or EP, from the sites of start.

    EP ends when no site changes by more than ``settled``. Its evidence is stationary in the sites,
    so that the error is the square of that; the slopes' is of the same size.
    """
    if inference == "laplace":
        return _laplace_evidence(K, y, start)
    return _ep_evidence(K, y, start, settled)


def fit_weights(
    prior: WhitenedGP, y: Labels, inference: Inference, *, start: Sites | None, max_iter: int
) -> GaussianWeights:
    """The Gaussian of the weights by EP or Laplace's method, from the sites of start.

    For many inputs and nearly as many weights the steps are those under the kernel matrix.
    """
    features = prior.features.expand(len(y), -1, -1)
    _, n, rank = features.shape
    if n <= MANY_INPUTS or 2 * rank < n:
        if inference == "ep":
            return expectation_propagation(features, y, start=start, max_iter=max_iter)
        weights = None if start is None else mean_by_sites(features, start)
        return laplace_probit(features, y, start=weights, max_iter=max_iter)
    K = prior.kernel(prior.inputs[0], prior.inputs[0])
    if inference == "ep":
        if start is None:
            start = touching_sites(_find_mode(K, y, least_rise=_ROUGH_RISE).latent, y)
        return expectation_propagation(
            features, y, start=start, posterior=_KernelPosterior(K), max_iter=max_iter
        )
    mode = _find_mode(K, y, start, max_iter=max_iter)
    weights = (mode.alpha[:, None, :] @ features).squeeze(-2)
    q = find_mode(features, y, start=weights, max_iter=max_iter - mode.n_steps)
    q = replace(
        q,
        n_iterations=q.n_iterations + mode.n_steps,
        at_inputs=_KernelPosterior(K).marginals(q.label_sites()),
    )
    warn_if_no_mode(q)
    return q


def laplace_sites(K: Float[Tensor, "n n"], y: Labels, start: Sites | None = None) -> Sites:
    """The sites that touch the likelihood at the mode."""
    return touching_sites(_find_mode(K, y, start).latent, y)


class _Mode(NamedTuple):
    """Of each data set: the most probable latent values f, and K^-1 f."""

    latent: PerInput
    alpha: PerInput
    n_steps: int


def _find_mode(
    K: Float[Tensor, "n n"],
    y: Labels,
    start: Sites | None = None,
    *,
    max_iter: int = _NEWTON_STEPS,
    least_rise: float = _LEAST_RISE,
) -> _Mode:
    """GPML Algorithm 3.1, with halved steps."""
    alpha = torch.zeros_like(y)
    if start is not None:
        alpha = _condition(K, start).alpha
    latent = alpha @ K
    value = log_likelihood(y * latent).sum(-1) - 0.5 * (alpha * latent).sum(-1)
    n_steps = 0
    while n_steps < max_iter:
        n_steps += 1
        step = _condition(K, touching_sites(latent, y)).alpha - alpha
        latent_step = step @ K
        length = torch.ones_like(value)[:, None]
        for _ in range(_HALVINGS):
            new_alpha = alpha + length * step
            new_latent = latent + length * latent_step
            prior = -0.5 * (new_alpha * new_latent).sum(-1)
            new_value = log_likelihood(y * new_latent).sum(-1) + prior
            # Near the mode the rise drowns in rounding errors of the value itself.
            too_long = ~(new_value >= value - 1e-14 * (1 + value.abs()))
            if not bool(too_long.any()):
                break
            length = torch.where(too_long[:, None], length / 2, length)
        rise = new_value - value
        alpha = new_alpha
        latent = new_latent
        value = new_value
        if bool((rise < least_rise).all()):
            break
    return _Mode(latent=latent, alpha=alpha, n_steps=n_steps)


def ep_sites(K: Float[Tensor, "n n"], y: Labels, start: Sites, settled: float = SETTLED) -> Sites:
    """The sites of EP, from those of start."""
    sites = Sites(precision=start.precision.clone(), shift=start.shift.clone())
    swept = update_together(_KernelPosterior(K), y, sites, _SWEEPS, settled)
    if not len(swept.unsettled):
        return sites
    values, vectors = torch.linalg.eigh(K)
    features = (vectors * values.clamp(min=0.0).sqrt()).expand(len(y), -1, -1)
    return fit_sites(features, y, start=sites).label_sites()


class _Conditioned(NamedTuple):
    """Latent values f given sites, for each data set."""

    root: PerInput  # T^(1/2), the diagonal
    factor: Float[Tensor, "m n n"]  # of B, Cholesky's
    alpha: PerInput  # K^-1 times the mean of f


def _condition(K: Tensor, sites: Sites) -> _Conditioned:
    root = sites.precision.sqrt()
    B = root[:, :, None] * K
    B *= root[:, None, :]
    B.diagonal(dim1=-2, dim2=-1).add_(1.0)
    factor, failed = torch.linalg.cholesky_ex(B)
    factor[failed > 0] = torch.nan
    inner = torch.cholesky_solve((root * (sites.shift @ K))[..., None], factor).squeeze(-1)
    return _Conditioned(root=root, factor=factor, alpha=sites.shift - root * inner)


@dataclass(frozen=True)
class _KernelPosterior(LatentPosterior):
    K: Float[Tensor, "n n"]

    def marginals(self, sites: Sites) -> Moments:
        return _marginals(self.K, _condition(self.K, sites))

    def select(self, rows: Tensor) -> Self:
        return self


def _marginals(K: Tensor, given: _Conditioned) -> Moments:
    variances = [_variance(K, *each) for each in zip(given.root, given.factor, strict=True)]
    return Moments(mean=given.alpha @ K, variance=torch.stack(variances))


def _variance(
    K: Float[Tensor, "n n"], root: Float[Tensor, " n"], factor: Float[Tensor, "n n"]
) -> Float[Tensor, " n"]:
    """The diagonal of V = K - K T^(1/2) B^-1 T^(1/2) K, GPML (3.68), of one data set.

    As T^(1/2) V T^(1/2) = I - B^-1, the inverse of B's factor tells it, in a third of the time that
    half of the product takes; where the precision is small, the difference cancels.
    """
    lost = 1 - torch.linalg.vector_norm(inverse_of_factor(factor), dim=0) ** 2
    variance = lost / root**2
    flat = root**2 < _FLAT
    half = torch.linalg.solve_triangular(factor, root[:, None] * K[:, flat], upper=False)
    variance[flat] = K.diagonal()[flat] - torch.linalg.vector_norm(half, dim=0) ** 2
    return variance


def _laplace_evidence(K: Tensor, y: Labels, start: Sites | None) -> Evidence:
    sites = laplace_sites(K, y, start)
    given = _condition(K, sites)
    b = given.alpha
    mean = b @ K
    value = log_likelihood(y * mean) - 0.5 * b * mean
    inverse, R = _inverses(given)
    # The variance of f. Where the precision vanishes, so does what it is multiplied with.
    lost = 1 - inverse.diagonal(dim1=-2, dim2=-1)
    variance = lost / sites.precision.clamp(min=1e-300)
    s = 0.5 * variance * y * skewness(y * mean)  # GPML (5.23)
    u = s - (R @ (s @ K)[..., None]).squeeze(-1)  # GPML (5.24)
    G = b.mT @ b - R.sum(0) + u.mT @ b + b.mT @ u
    return Evidence(value=float(value.sum()) - 0.5 * _log_det(given), by_kernel=G, sites=sites)


def _ep_evidence(K: Tensor, y: Labels, start: Sites | None, settled: float) -> Evidence:
    if start is None:
        start = laplace_sites(K, y)
    sites = ep_sites(K, y, start, settled)
    given = _condition(K, sites)
    latent = _marginals(K, given)
    log_mass = 0.5 * (sites.shift * latent.mean).sum(-1)
    value = log_evidence_of_sites(y, sites, latent, log_mass)
    _, R = _inverses(given)
    b = given.alpha
    return Evidence(
        value=float(value.sum()) - 0.5 * _log_det(given),
        by_kernel=b.mT @ b - R.sum(0),
        sites=sites,
    )


def _inverses(given: _Conditioned) -> tuple[Tensor, Tensor]:
    """B^-1, and R = T^(1/2) B^-1 T^(1/2)."""
    inverse = torch.cholesky_inverse(given.factor)
    return inverse, given.root[:, :, None] * inverse * given.root[:, None, :]


def _log_det(given: _Conditioned) -> float:
    """The log determinants of B, summed over the data sets."""
    return 2 * float(given.factor.diagonal(dim1=-2, dim2=-1).log().sum())
