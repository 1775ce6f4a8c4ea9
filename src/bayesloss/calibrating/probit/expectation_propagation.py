r"""Expectation propagation for probit classification, vectorised over data sets.

Minka (2001); Rasmussen and Williams (2006), GPML, section 3.6. LHG section 5 compares with it. Each
likelihood factor :math:`\Phi(y_i f_i)` is replaced with a Gaussian *site*

.. math:: \exp(\tilde\nu_i f_i - \tfrac12 \tilde\tau_i f_i^2),

so that the *cavity*, the posterior without that site, has the same moments times the site as times
the factor. This fixed point is sought for all sites at once, with Anderson's extrapolation against
cycles; where that does not settle, site by site.
"""

from dataclasses import replace

import torch
from torch import Tensor

from bayesloss.calibrating.probit.whitened_gp import (
    Features,
    GaussianWeights,
    Labels,
    Pair,
    Weights,
    cavity,
    curvature,
    hazard,
    log_likelihood,
    warn_if_unsettled,
)
from bayesloss.threads import one_thread

_DEPTH = 3  # sweeps over which the extrapolation looks back
# The sites have settled when none would change by more, relative to 1 + its size, in units of the
# latent value's spread and the probit noise.
_SETTLED = 1e-9


def expectation_propagation(
    features: Features, y: Labels, *, max_iter: int = 200
) -> GaussianWeights:
    """Match the moments of all sites until none changes; a ConvergenceWarning if that fails."""
    q = fit_sites(features, y, max_iter=max_iter)
    within = f"did not settle in {q.n_iterations} sweeps"
    warn_if_unsettled(q, "sites", within, "a smaller amplitude")
    return q


def fit_sites(
    features: Features,
    y: Labels,
    *,
    start: Pair | None = None,
    factor: Pair | None = None,
    max_iter: int = 200,
) -> GaussianWeights:
    """EP from given sites, with a Gaussian ``factor`` beside the prior, and without a warning."""
    prior = standard_normal(features)
    if factor is not None:
        prior = prior[0] + factor[0], prior[1] + factor[1]
    zero = torch.zeros_like(y)
    precision, shift = (site.clone() for site in start or (zero, zero))
    unsettled, sweeps = torch.arange(len(y), device=y.device), 0
    for sweep, most in ((_all_at_once, max(1, max_iter // 2)), (_one_by_one, max_iter)):
        if len(unsettled) and sweeps < most:
            sites = precision[unsettled], shift[unsettled]
            part = prior[0][unsettled], prior[1][unsettled]
            left, used = sweep(features[unsettled], y[unsettled], sites, part, most - sweeps)
            precision[unsettled], shift[unsettled] = sites
            unsettled, sweeps = unsettled[left], sweeps + used
    mean, covariance, log_det = combine_sites(features, precision, shift, prior)
    converged = torch.ones(len(y), dtype=torch.bool, device=y.device)
    converged[unsettled] = False
    q = GaussianWeights(mean, covariance, log_det, converged, sweeps, (precision, shift))
    cavity_mean, cavity_variance = q.held_out(features)
    # GPML (3.65), its terms gathered: a site is scaled so that it has the mass of the likelihood
    # under its cavity.
    spread = 1 + precision * cavity_variance
    power = 2 * shift * cavity_mean + shift**2 * cavity_variance - precision * cavity_mean**2
    mass_of_site = 0.5 * power / spread - 0.5 * spread.log()
    margin = y * cavity_mean / (1 + cavity_variance).sqrt()
    log_evidence = (log_likelihood(margin) - mass_of_site).sum(-1) - 0.5 * log_det
    log_evidence += 0.5 * ((shift * q.latent(features)[0]).sum(-1) + (prior[1] * mean).sum(-1))
    sound = ((cavity_variance >= 0) & torch.isfinite(cavity_variance)).all(-1)
    log_evidence = torch.where(sound, log_evidence, torch.nan)
    return replace(q, log_evidence=log_evidence, converged=converged & sound)


def standard_normal(features: Features) -> Pair:
    """Precision and shift of the weights' prior."""
    m, _, r = features.shape
    unit = torch.eye(r, dtype=features.dtype, device=features.device)
    return unit.expand(m, r, r), features.new_zeros((m, r))


def combine_sites(
    features: Features, precision: Labels, shift: Labels, prior: Pair
) -> tuple[Weights, Tensor, Tensor]:
    """Mean and covariance of the weights by prior and sites; log determinant of the precision."""
    factor = _factor(features, precision, prior[0])
    with one_thread():
        covariance = torch.cholesky_inverse(factor)
    mean = (covariance @ (features.mT @ shift[..., None] + prior[1][..., None])).squeeze(-1)
    return mean, covariance, 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _all_at_once(
    features: Tensor, y: Tensor, sites: Pair, prior: Pair, max_iter: int
) -> tuple[Tensor, int]:
    """Update every site in place from one posterior; return unsettled data sets and sweeps."""
    (precision, shift), n = sites, y.shape[-1]
    rows = torch.arange(len(y), device=y.device)  # what has not settled
    history: list[Pair] = []
    sweep = 0
    while len(rows) and sweep < max_iter:
        sweep += 1
        old = precision[rows], shift[rows]
        factor = _factor(features, old[0], prior[0])
        half = torch.linalg.solve_triangular(factor, features.mT, upper=False)
        shifted = torch.linalg.solve_triangular(factor, prior[1][..., None], upper=False)
        marginal_mean = (half.mT @ (half @ old[1][..., None] + shifted)).squeeze(-1)
        new, changes = match_moments(y, marginal_mean, (half**2).sum(-2), old)
        step = torch.cat([new[0] - old[0], new[1] - old[1]], -1)
        history = [*history[-_DEPTH:], (torch.cat(old, -1), step)]
        taken = _extrapolate(history)
        done = changes.amax(-1) < _SETTLED
        # A negative precision comes from the extrapolation alone: the likelihood is log-concave.
        precision[rows] = torch.where(done[:, None], new[0], taken[:, :n].clamp(min=0.0))
        shift[rows] = torch.where(done[:, None], new[1], taken[:, n:])
        rows, features, y = rows[~done], features[~done], y[~done]
        prior = prior[0][~done], prior[1][~done]
        history = [(x[~done], f[~done]) for x, f in history]
    return rows, sweep


def _one_by_one(
    features: Tensor, y: Tensor, sites: Pair, prior: Pair, max_iter: int
) -> tuple[Tensor, int]:
    """GPML Algorithm 3.5: update one site, in every data set, and then the posterior."""
    precision, shift = sites
    mean, covariance, _ = combine_sites(features, precision, shift, prior)
    change, sweep = torch.full_like(mean[:, 0], torch.inf), 0
    while sweep < max_iter and not bool((change < _SETTLED).all()):
        sweep += 1
        change = torch.zeros_like(change)
        for i in range(y.shape[-1]):
            a, old = features[:, i], (precision[:, i], shift[:, i])
            along = (covariance @ a[..., None]).squeeze(-1)
            moments = (a * mean).sum(-1), (a * along).sum(-1)
            new, changed = match_moments(y[:, i], *moments, old)  # lines 5 to 9
            change = torch.maximum(change, changed)
            d_precision, d_shift = new[0] - old[0], new[1] - old[1]
            precision[:, i], shift[:, i] = new
            # Lines 10, 11: one site is one direction, a rank-one update of the posterior.
            gain = 1 / (1 + d_precision * moments[1])
            mean = mean + (gain * (d_shift - d_precision * moments[0]))[:, None] * along
            outer = along[:, :, None] * along[:, None, :]
            covariance = covariance - (d_precision * gain)[:, None, None] * outer
        # Lines 13 to 15: rounding errors of the updates do not pile up over the sweeps.
        mean, covariance, _ = combine_sites(features, precision, shift, prior)
    return torch.nonzero(~(change < _SETTLED))[:, 0], sweep


def match_moments(y: Tensor, mean: Tensor, variance: Tensor, old: Pair) -> tuple[Pair, Tensor]:
    """The sites by GPML (3.58) and (3.59), and how much they change on the posterior's scale."""
    m, v = cavity(mean, variance, *old)
    usable = (v >= 0) & torch.isfinite(v) & torch.isfinite(m)
    scale = (1 + v).sqrt()
    margin = y * m / scale
    slope = y * hazard(margin) / scale
    weight = curvature(margin) / scale**2
    left = 1 / (1 - weight * v)
    precision = torch.where(usable, weight * left, old[0])
    shift = torch.where(usable, (slope + weight * m) * left, old[1])
    unit = 1 + variance  # of the latent value and the probit noise
    change = torch.maximum(
        (precision - old[0]).abs() * unit / (1 + precision.abs() * unit),
        (shift - old[1]).abs() * unit.sqrt() / (1 + shift.abs() * unit.sqrt()),
    )
    return (precision, shift), torch.where(usable, change, torch.inf)


def _extrapolate(history: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Anderson's step from points and residuals: Walker and Ni (2011), SIAM J. Numer. Anal. 49."""
    x, f = history[-1]
    if len(history) == 1:
        return x + f
    points, residuals = (torch.stack(parts, -1) for parts in zip(*history, strict=True))
    dx, df = points.diff(dim=-1), residuals.diff(dim=-1)
    gram = df.mT @ df
    # Differences that are parallel, or zero, leave the equations singular.
    ridge = 1e-12 * gram.diagonal(dim1=-2, dim2=-1).amax(-1) + 1e-300
    gram = gram + ridge[:, None, None] * torch.eye(len(history) - 1, dtype=x.dtype, device=x.device)
    weights = torch.linalg.solve(gram, df.mT @ f[..., None])
    return x + f - ((dx + df) @ weights).squeeze(-1)


def _factor(features: Tensor, precision: Tensor, prior: Tensor) -> Tensor:
    """Cholesky factor of the weights' precision, prior + A'TA; NaN if that is not positive."""
    weighted = features.mT @ (features * precision[..., None])
    factor, failed = torch.linalg.cholesky_ex(prior + weighted)
    return torch.where((failed > 0)[:, None, None], torch.nan, factor)
