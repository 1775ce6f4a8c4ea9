r"""Expectation propagation for probit classification, vectorised over data sets.

Minka (2001); Rasmussen and Williams (2006), GPML, section 3.6. LHG section 5 compares with it. Each
likelihood factor :math:`\Phi(y_i f_i)` is replaced with a Gaussian *site*

.. math:: \exp(\tilde\nu_i f_i - \tfrac12 \tilde\tau_i f_i^2),

so that the *cavity*, the posterior without that site, has the same moments times the site as times
the factor. This fixed point is sought for all sites at once, with Anderson's extrapolation against
cycles; where that does not settle, site by site.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.calibrating.probit.whitened_gp import (
    Features,
    GaussianWeights,
    Labels,
    Moments,
    NaturalGaussian,
    PerInput,
    Sites,
    Weights,
    cavity,
    curvature,
    hazard,
    log_likelihood,
    lower_gram,
    warn_if_unsettled,
)
from bayesloss.threads import one_thread

# Sweeps over which the extrapolation looks back. Of 40 labels under an amplitude of 30, three take
# 27 sweeps, six 39, and one up to 106.
_DEPTH = 3
# The sites have settled when none would change by more, relative to 1 + its size, in units of the
# latent value's spread and the probit noise.
SETTLED = 1e-9


def expectation_propagation(
    features: Features,
    y: Labels,
    *,
    start: Sites | None = None,
    posterior: "LatentPosterior | None" = None,
    max_iter: int = 200,
) -> GaussianWeights:
    """Match the moments of all sites until none changes; a ConvergenceWarning if that fails."""
    q = fit_sites(features, y, start=start, posterior=posterior, max_iter=max_iter)
    within = f"did not settle in {q.n_iterations} sweeps"
    warn_if_unsettled(q, "sites", within, "a smaller amplitude")
    return q


def fit_sites(
    features: Features,
    y: Labels,
    *,
    start: Sites | None = None,
    factor: NaturalGaussian | None = None,
    posterior: "LatentPosterior | None" = None,
    max_iter: int = 200,
) -> GaussianWeights:
    """EP from given sites, with a Gaussian ``factor`` beside the prior, and without a warning.

    All sites are updated from ``posterior``, by default from that of the weights.
    """
    prior = standard_normal(features)
    if factor is not None:
        prior = NaturalGaussian(
            precision=prior.precision + factor.precision, shift=prior.shift + factor.shift
        )
    if start is None:
        precision = torch.zeros_like(y)
        shift = torch.zeros_like(y)
    else:
        precision = start.precision.clone()
        shift = start.shift.clone()
    sites = Sites(precision, shift)
    by_weights = _WeightsPosterior(features, prior)
    latent_posterior = by_weights if posterior is None else posterior
    unsettled, n_sweeps = update_together(latent_posterior, y, sites, max(1, max_iter // 2))
    if len(unsettled) and n_sweeps < max_iter:
        swung = sites.select(unsettled)
        swept = _one_by_one(
            features[unsettled], y[unsettled], swung, prior.select(unsettled), max_iter - n_sweeps
        )
        precision[unsettled] = swung.precision
        shift[unsettled] = swung.shift
        unsettled = unsettled[swept.unsettled]
        n_sweeps += swept.n_sweeps
    mean, covariance, log_det = combine_sites(features, precision, shift, prior)
    converged = torch.ones(len(y), dtype=torch.bool, device=y.device)
    converged[unsettled] = False
    q = GaussianWeights(
        mean=mean,
        covariance=covariance,
        log_evidence=torch.full_like(log_det, torch.nan),  # known below
        converged=converged,
        n_iterations=n_sweeps,
        sites=sites,
    )
    latent = q.latent(features) if posterior is None else posterior.marginals(sites)
    normaliser = 0.5 * ((shift * latent.mean).sum(-1) + (prior.shift * mean).sum(-1))
    log_evidence = log_evidence_of_sites(y, sites, latent, normaliser - 0.5 * log_det)
    return replace(
        q,
        log_evidence=log_evidence,
        converged=converged & log_evidence.isfinite(),
        at_inputs=latent,
    )


def log_evidence_of_sites(
    y: Labels, sites: Sites, latent: Moments, log_mass: Float[Tensor, "*m"]
) -> Float[Tensor, "*m"]:
    """GPML (3.65), with the log mass of prior and sites; NaN where a cavity has no variance."""
    cavities = cavity(latent.mean, latent.variance, sites.precision, sites.shift)
    sound = ((cavities.variance >= 0) & torch.isfinite(cavities.variance)).all(-1)
    log_evidence = _log_scales(y, cavities, sites).sum(-1) + log_mass
    return torch.where(sound, log_evidence, torch.nan)


def _log_scales(y: Labels, cavities: Moments, sites: Sites) -> Tensor:
    """The logs of the factors that sites have, so that their mass is that of the likelihood."""
    # GPML (3.65), its terms gathered: both masses are under the cavity.
    m, v = cavities
    precision, shift = sites
    spread = 1 + precision * v
    power = 2 * shift * m + shift**2 * v - precision * m**2
    mass_of_site = 0.5 * power / spread - 0.5 * spread.log()
    margin = y * m / (1 + v).sqrt()
    return log_likelihood(margin) - mass_of_site


def standard_normal(features: Features) -> NaturalGaussian:
    """Precision and shift of the weights' prior."""
    m, _, r = features.shape
    unit = torch.eye(r, dtype=features.dtype, device=features.device)
    return NaturalGaussian(precision=unit.expand(m, r, r), shift=features.new_zeros((m, r)))


class Combined(NamedTuple):
    """A Gaussian of the weights: its moments, and the log determinant of its precision."""

    mean: Weights
    covariance: Float[Tensor, "*m r r"]
    log_det: Float[Tensor, "*m"]


def combine_sites(
    features: Features, precision: PerInput, shift: PerInput, prior: NaturalGaussian
) -> Combined:
    """The Gaussian of the weights by prior and sites, each given as precision and shift."""
    prior_precision, prior_shift = prior
    factor = _factor(features, precision, prior_precision)
    with one_thread():  # small matrices on several threads wait for each other
        covariance = torch.cholesky_inverse(factor)
    mean = (covariance @ (features.mT @ shift[..., None] + prior_shift[..., None])).squeeze(-1)
    log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return Combined(mean=mean, covariance=covariance, log_det=log_det)


def mean_by_sites(features: Features, sites: Sites) -> Weights:
    """The weights' mean by a standard normal prior and the sites."""
    return combine_sites(features, *sites, standard_normal(features)).mean


class _Swept(NamedTuple):
    """The positions of data sets that have not settled, and how many sweeps there were."""

    unsettled: Tensor
    n_sweeps: int


class _Sweep(NamedTuple):
    """All sites of each data set in one vector, and by how much EP would change them."""

    sites: Tensor
    step: Tensor


class LatentPosterior(ABC):
    """What sites make of the prior of the latent values, for each of some data sets."""

    @abstractmethod
    def marginals(self, sites: Sites) -> Moments:
        """Mean and variance of each latent value."""

    @abstractmethod
    def select(self, rows: Tensor) -> Self:
        """The same for some of the data sets."""


@dataclass(frozen=True)
class _WeightsPosterior(LatentPosterior):
    """By the whitened weights."""

    features: Features
    prior: NaturalGaussian

    def marginals(self, sites: Sites) -> Moments:
        factor = _factor(self.features, sites.precision, self.prior.precision)
        half = torch.linalg.solve_triangular(factor, self.features.mT, upper=False)
        shifted = torch.linalg.solve_triangular(factor, self.prior.shift[..., None], upper=False)
        mean = half.mT @ (half @ sites.shift[..., None] + shifted)
        return Moments(mean=mean.squeeze(-1), variance=(half**2).sum(-2))

    def select(self, rows: Tensor) -> Self:
        return replace(self, features=self.features[rows], prior=self.prior.select(rows))


def update_together(
    posterior: LatentPosterior,
    y: Labels,
    sites: Sites,
    max_iter: int,
    settled: float = SETTLED,
) -> _Swept:
    """Update all sites, in place, from one posterior, until none changes by more than settled."""
    precision, shift = sites
    n = y.shape[-1]
    rows = torch.arange(len(y), device=y.device)  # what has not settled
    history: list[_Sweep] = []
    n_sweeps = 0
    while len(rows) and n_sweeps < max_iter:
        n_sweeps += 1
        old = sites.select(rows)
        mean, variance = posterior.marginals(old)
        new, changes = match_moments(y, mean, variance, old)
        step = torch.cat([new.precision - old.precision, new.shift - old.shift], -1)
        history = [*history[-_DEPTH:], _Sweep(sites=torch.cat(old, -1), step=step)]
        extrapolated = _extrapolate(history)
        done = changes.amax(-1) < settled
        # A negative precision comes from the extrapolation alone: the likelihood is log-concave.
        extrapolated_precision = extrapolated[:, :n].clamp(min=0.0)
        precision[rows] = torch.where(done[:, None], new.precision, extrapolated_precision)
        shift[rows] = torch.where(done[:, None], new.shift, extrapolated[:, n:])
        if not bool(done.any()):
            continue
        rows = rows[~done]
        y = y[~done]
        posterior = posterior.select(~done)
        history = [_Sweep(past.sites[~done], past.step[~done]) for past in history]
    return _Swept(unsettled=rows, n_sweeps=n_sweeps)


def _one_by_one(
    features: Tensor, y: Tensor, sites: Sites, prior: NaturalGaussian, max_iter: int
) -> _Swept:
    """GPML Algorithm 3.5: update one site, in every data set, and then the posterior."""
    precision, shift = sites
    mean, covariance, _ = combine_sites(features, precision, shift, prior)
    change = torch.full_like(mean[:, 0], torch.inf)
    n_sweeps = 0
    while n_sweeps < max_iter and not bool((change < SETTLED).all()):
        n_sweeps += 1
        change = torch.zeros_like(change)
        for i in range(y.shape[-1]):
            a = features[:, i]
            old = Sites(precision[:, i], shift[:, i])
            along = (covariance @ a[..., None]).squeeze(-1)
            f_mean = (a * mean).sum(-1)
            f_variance = (a * along).sum(-1)
            new, changed = match_moments(y[:, i], f_mean, f_variance, old)  # lines 5 to 9
            change = torch.maximum(change, changed)
            d_precision = new.precision - old.precision
            d_shift = new.shift - old.shift
            precision[:, i] = new.precision
            shift[:, i] = new.shift
            # Lines 10, 11: one site is one direction, a rank-one update of the posterior.
            gain = 1 / (1 + d_precision * f_variance)
            mean = mean + (gain * (d_shift - d_precision * f_mean))[:, None] * along
            outer = along[:, :, None] * along[:, None, :]
            covariance = covariance - (d_precision * gain)[:, None, None] * outer
        # Lines 13 to 15: rounding errors of the updates do not pile up over the sweeps.
        mean, covariance, _ = combine_sites(features, precision, shift, prior)
    unsettled = torch.nonzero(~(change < SETTLED))[:, 0]
    return _Swept(unsettled=unsettled, n_sweeps=n_sweeps)


def match_moments(y: Tensor, mean: Tensor, variance: Tensor, old: Sites) -> tuple[Sites, Tensor]:
    """The sites by GPML (3.58) and (3.59), and how much they change on the posterior's scale.

    With the cavity's mean m and variance v, and s and -w the first and second derivative of
    log Phi(y m / (1 + v)^1/2) by m, (3.58) has the moments mu = m + v s and sigma^2 = v (1 - w v).
    So the site, (3.59), has

        precision = 1 / sigma^2 - 1 / v = w / (1 - w v),
        shift = mu / sigma^2 - m / v = (s + w m) / (1 - w v).
    """
    old_precision, old_shift = old
    m, v = cavity(mean, variance, old_precision, old_shift)
    usable = (v >= 0) & torch.isfinite(v) & torch.isfinite(m)
    scale = (1 + v).sqrt()
    margin = y * m / scale
    slope = y * hazard(margin) / scale  # s
    weight = curvature(margin) / scale**2  # w
    inflation = 1 / (1 - weight * v)
    precision = torch.where(usable, weight * inflation, old_precision)
    shift = torch.where(usable, (slope + weight * m) * inflation, old_shift)
    unit = 1 + variance  # of the latent value and the probit noise
    change = torch.maximum(
        (precision - old_precision).abs() * unit / (1 + precision.abs() * unit),
        (shift - old_shift).abs() * unit.sqrt() / (1 + shift.abs() * unit.sqrt()),
    )
    return Sites(precision, shift), torch.where(usable, change, torch.inf)


def _extrapolate(history: list[_Sweep]) -> Tensor:
    """Anderson's step from points and residuals: Walker and Ni (2011), SIAM J. Numer. Anal. 49."""
    x, f = history[-1]
    if len(history) == 1:
        return x + f
    dx = torch.stack([sweep.sites for sweep in history], -1).diff(dim=-1)
    df = torch.stack([sweep.step for sweep in history], -1).diff(dim=-1)
    gram = df.mT @ df
    # Differences that are parallel, or zero, leave the equations singular.
    ridge = 1e-12 * gram.diagonal(dim1=-2, dim2=-1).amax(-1) + 1e-300
    gram = gram + ridge[:, None, None] * torch.eye(len(history) - 1, dtype=x.dtype, device=x.device)
    weights = torch.linalg.solve(gram, df.mT @ f[..., None])
    return x + f - ((dx + df) @ weights).squeeze(-1)


def _factor(features: Tensor, precision: Tensor, prior: Tensor) -> Tensor:
    """Cholesky factor of the weights' precision, prior + A'TA; NaN if that is not positive."""
    factor, failed = torch.linalg.cholesky_ex(prior + lower_gram(features, precision))
    return torch.where((failed > 0)[:, None, None], torch.nan, factor)
