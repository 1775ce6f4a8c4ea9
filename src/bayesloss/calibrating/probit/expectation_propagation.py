r"""Expectation propagation for probit classification, vectorised over data sets.

Minka (2001); Rasmussen and Williams (2006), GPML, section 3.6. LHG section 5 compares with it. Each
likelihood factor :math:`\Phi(y_i f_i)` is replaced with a Gaussian *site*

.. math:: \exp(\tilde\nu_i f_i - \tfrac12 \tilde\tau_i f_i^2),

chosen so that the *cavity*, the posterior without that site, times the factor has the moments that
it has times the site. The sites' shifts and precisions are a fixed point. It is sought for all
sites at once: a sweep costs one Cholesky decomposition, and Anderson's extrapolation over the last
sweeps damps the cycles into which sites that change together fall. Where that does not settle, the
sites are visited one after the other.
"""

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.calibrating.probit.whitened_gp import (
    GaussianWeights,
    cavity,
    check_data,
    check_max_iter,
    curvature,
    hazard,
    log_likelihood,
)
from bayesloss.warnings import warn_caller

__all__ = ["combine_sites", "expectation_propagation", "fit_sites"]

_DEPTH = 3  # sweeps over which the extrapolation looks back


_Sites = tuple[Tensor, Tensor]
_Prior = tuple[Tensor, Tensor]  # precision and shift of the weights


def expectation_propagation(
    features: Tensor, y: Tensor, *, max_iter: int = 200, tolerance: float = 1e-9
) -> GaussianWeights:
    """Match the moments of all sites until none changes.

    Parameters
    ----------
    features : Tensor of shape (m, n, r)
    y : Tensor of shape (m, n)
        +1 or -1.
    max_iter : int, default=200
        The largest number of sweeps over the sites: one half of them for all sites at once, the
        rest, if needed, one site after the other.
    tolerance : float, default=1e-9
        The sites have settled when none would change by more, relative to 1 + its size, in units of
        the latent value's spread and the probit noise.

    Returns
    -------
    GaussianWeights
        ``n_iterations`` counts sweeps. A data set with a cavity without variance has not converged.

    Raises
    ------
    ValueError
        If the shapes do not fit together, a feature is not finite, a label is neither +1 nor -1, or
        ``max_iter`` is less than 1.

    Warns
    -----
    ConvergenceWarning
        If the sites of some data set did not settle, or a cavity has no variance.
    """
    features, y = check_data(features, y)
    q = fit_sites(features, y, max_iter=max_iter, tolerance=tolerance)
    if not bool(q.converged.all()):
        broken = int((~torch.isfinite(q.log_evidence)).sum())
        reason = (
            f"; {broken} have cavities without variance: use a smaller amplitude"
            if broken
            else ": use a larger max_iter, or a smaller amplitude"
        )
        warn_caller(
            f"the sites of {int((~q.converged).sum())} of {len(y)} data sets did not settle in "
            f"{q.n_iterations} sweeps{reason}",
            ConvergenceWarning,
        )
    return q


def fit_sites(
    features: Tensor,
    y: Tensor,
    *,
    start: tuple[Tensor, Tensor] | None = None,
    factor: tuple[Tensor, Tensor] | None = None,
    max_iter: int = 200,
    tolerance: float = 1e-9,
) -> GaussianWeights:
    """The same without a check or a word, from given sites: for what calls it often.

    Parameters
    ----------
    features, y, max_iter, tolerance
        As in :func:`expectation_propagation`.
    start : tuple of two Tensors of shape (m, n), optional
        The first precisions and shifts of the sites; zero if none are given.
    factor : tuple of Tensors of shape (m, r, r) and (m, r), optional
        Precision and shift of a Gaussian factor of the weights, beside their standard normal prior.

    Returns
    -------
    GaussianWeights
    """
    check_max_iter(max_iter)
    if start is None:
        start = (torch.zeros_like(y), torch.zeros_like(y))
    precision, shift = start[0].clone(), start[1].clone()
    m, _, r = features.shape
    if factor is None:
        factor = (features.new_zeros((m, r, r)), features.new_zeros((m, r)))
    factor = (factor[0] + torch.eye(r, dtype=features.dtype, device=y.device), factor[1])
    sweeps = 0
    unsettled = torch.arange(m, device=y.device)
    for sweep, most in ((_all_at_once, max(1, max_iter // 2)), (_one_by_one, max_iter)):
        if len(unsettled) and sweeps < most:
            sites, settled, used = sweep(
                features[unsettled],
                y[unsettled],
                (precision[unsettled], shift[unsettled]),
                (factor[0][unsettled], factor[1][unsettled]),
                most - sweeps,
                tolerance,
            )
            precision[unsettled], shift[unsettled] = sites
            unsettled = unsettled[~settled]
            sweeps += used
    converged = torch.ones(m, dtype=torch.bool, device=y.device)
    converged[unsettled] = False
    mean, covariance, log_det = combine_sites(features, precision, shift, factor)
    q = GaussianWeights(mean, covariance, log_det, converged, sweeps, (precision, shift))
    marginal_mean, _ = q.latent(features)
    cavity_mean, cavity_variance = q.held_out(features)
    # GPML (3.65), its terms gathered: a site is scaled so that it has the mass of the likelihood
    # under its cavity.
    spread = 1 + precision * cavity_variance
    mass_of_site = (
        0.5
        * (2 * shift * cavity_mean + shift**2 * cavity_variance - precision * cavity_mean**2)
        / spread
        - 0.5 * spread.log()
    )
    margin = y * cavity_mean / (1 + cavity_variance).sqrt()
    log_evidence = (
        (log_likelihood(margin) - mass_of_site).sum(-1)
        + 0.5 * (shift * marginal_mean).sum(-1)
        + 0.5 * (factor[1] * mean).sum(-1)
        - 0.5 * log_det
    )
    sound = ((cavity_variance >= 0) & torch.isfinite(cavity_variance)).all(-1)
    log_evidence = torch.where(sound, log_evidence, torch.nan)
    converged &= sound
    return GaussianWeights(mean, covariance, log_evidence, converged, sweeps, (precision, shift))


def combine_sites(
    features: Tensor, precision: Tensor, shift: Tensor, prior: _Prior
) -> tuple[Tensor, Tensor, Tensor]:
    """The Gaussian of the weights that a prior and sites make.

    Parameters
    ----------
    features : Tensor of shape (m, n, r)
    precision, shift : Tensor of shape (m, n)
        Of the sites.
    prior : tuple of Tensors of shape (m, r, r) and (m, r)
        Precision and shift.

    Returns
    -------
    mean : Tensor of shape (m, r)
    covariance : Tensor of shape (m, r, r)
    log_det : Tensor of shape (m,)
        Of the precision.
    """
    factor = _factor(features, precision, prior[0])
    covariance = torch.cholesky_inverse(factor)
    mean = (covariance @ (features.mT @ shift[..., None] + prior[1][..., None])).squeeze(-1)
    return mean, covariance, 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _all_at_once(
    features: Tensor, y: Tensor, sites: _Sites, prior: _Prior, max_iter: int, tolerance: float
) -> tuple[_Sites, Tensor, int]:
    """Sweeps that update every site from the same posterior: sites, who settled, and sweeps."""
    precision, shift = sites[0].clone(), sites[1].clone()
    rows = torch.arange(len(y), device=y.device)  # what has not settled
    history: list[tuple[Tensor, Tensor]] = []
    sweep = 0
    while len(rows) and sweep < max_iter:
        sweep += 1
        old = precision[rows], shift[rows]
        factor = _factor(features, old[0], prior[0])
        half = torch.linalg.solve_triangular(factor, features.mT, upper=False)
        shifted = torch.linalg.solve_triangular(factor, prior[1][..., None], upper=False)
        marginal_mean = (half.mT @ (half @ old[1][..., None] + shifted)).squeeze(-1)
        new, changes = _update(y, marginal_mean, (half**2).sum(-2), old)
        change = changes.amax(-1)
        step = torch.cat([new[0] - old[0], new[1] - old[1]], -1)
        history = [*history[-_DEPTH:], (torch.cat(old, -1), step)]
        taken = _extrapolate(history)
        n = y.shape[-1]
        done = change < tolerance
        # A negative precision comes from the extrapolation alone: the likelihood is log-concave.
        precision[rows] = torch.where(done[:, None], new[0], taken[:, :n].clamp(min=0.0))
        shift[rows] = torch.where(done[:, None], new[1], taken[:, n:])
        rows, features, y = rows[~done], features[~done], y[~done]
        prior = (prior[0][~done], prior[1][~done])
        history = [(x[~done], f[~done]) for x, f in history]
    settled = torch.ones(len(precision), dtype=torch.bool, device=y.device)
    settled[rows] = False
    return (precision, shift), settled, sweep


def _one_by_one(
    features: Tensor, y: Tensor, sites: _Sites, prior: _Prior, max_iter: int, tolerance: float
) -> tuple[_Sites, Tensor, int]:
    """GPML Algorithm 3.5: a visit updates one site, in every data set, and then the posterior."""
    precision, shift = sites[0].clone(), sites[1].clone()
    mean, covariance, _ = combine_sites(features, precision, shift, prior)
    settled = torch.zeros(len(y), dtype=torch.bool, device=y.device)
    sweep = 0
    while sweep < max_iter and not bool(settled.all()):
        sweep += 1
        change = torch.zeros_like(mean[:, 0])
        for i in range(y.shape[-1]):
            a, old = features[:, i], (precision[:, i], shift[:, i])
            along = (covariance @ a[..., None]).squeeze(-1)
            moments = (a * mean).sum(-1), (a * along).sum(-1)
            new, changed = _update(y[:, i], *moments, old)  # lines 5 to 9
            change = torch.maximum(change, changed)
            d_precision, d_shift = new[0] - old[0], new[1] - old[1]
            precision[:, i], shift[:, i] = new
            # Lines 10, 11: one site is one direction, a rank-one update of the posterior.
            gain = 1 / (1 + d_precision * moments[1])
            mean = mean + (gain * (d_shift - d_precision * moments[0]))[:, None] * along
            covariance = covariance - (d_precision * gain)[:, None, None] * (
                along[:, :, None] * along[:, None, :]
            )
        # Lines 13 to 15: rounding errors of the updates do not pile up over the sweeps.
        mean, covariance, _ = combine_sites(features, precision, shift, prior)
        settled = change < tolerance
    return (precision, shift), settled, sweep


def _site(y: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """The Gaussian site that gives the tilted cavity its exact first two moments.

    GPML (3.58) and (3.59), written without the difference of two precisions, which would cancel in
    the far tail.
    """
    scale = (1 + variance).sqrt()
    margin = y * mean / scale
    slope = y * hazard(margin) / scale
    weight = curvature(margin) / scale**2
    left = 1 / (1 - weight * variance)
    return weight * left, (slope + weight * mean) * left


def _update(y: Tensor, mean: Tensor, variance: Tensor, old: _Sites) -> tuple[_Sites, Tensor]:
    """Sites that match the moments, and by how much they change, on the scale of the posterior.

    A site whose cavity has no variance stays as it is, and never counts as settled.
    """
    cavity_mean, cavity_variance = cavity(mean, variance, *old)
    usable = (cavity_variance >= 0) & torch.isfinite(cavity_variance) & torch.isfinite(cavity_mean)
    matched = _site(y, cavity_mean, cavity_variance)
    new = tuple(torch.where(usable, a, b) for a, b in zip(matched, old, strict=True))
    unit = 1 + variance  # of the latent value and the probit noise
    change = torch.maximum(
        (new[0] - old[0]).abs() * unit / (1 + new[0].abs() * unit),
        (new[1] - old[1]).abs() * unit.sqrt() / (1 + new[1].abs() * unit.sqrt()),
    )
    return (new[0], new[1]), torch.where(usable, change, torch.inf)


def _extrapolate(history: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Anderson's step from the last points and their residuals, each of shape (m, d).

    The combination of the last steps whose residual is shortest, were the map linear: Walker and
    Ni (2011), Anderson acceleration for fixed-point iterations, SIAM J. Numer. Anal. 49.
    """
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
    """Cholesky factor of the precision of the weights, prior + A'TA; NaN where it is none."""
    weighted = features.mT @ (features * precision[..., None])
    factor, failed = torch.linalg.cholesky_ex(prior + weighted)
    return torch.where((failed > 0)[:, None, None], torch.nan, factor)
