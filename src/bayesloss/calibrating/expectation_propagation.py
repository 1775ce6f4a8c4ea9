"""Expectation propagation for probit classification, vectorised over data sets.

Minka (2001); Rasmussen and Williams (2006), section 3.6. LHG section 5 compares with it. The sites
of a data set are visited one after the other; a visit updates that site in every data set.
"""

import warnings

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.calibrating.probit import GaussianWeights, curvature, hazard, log_likelihood

__all__ = ["expectation_propagation"]


def expectation_propagation(
    features: Tensor, y: Tensor, *, max_iter: int = 200, tolerance: float = 1e-9
) -> GaussianWeights:
    """Match the moments of every site in turn until no site changes.

    Parameters
    ----------
    features : Tensor of shape (m, n, r)
    y : Tensor of shape (m, n)
        +1 or -1.
    max_iter : int
        The largest number of sweeps over the sites.
    tolerance : float
        The sites have settled when none changes by more, relative to 1 + its size.

    Returns
    -------
    GaussianWeights
        ``n_iterations`` counts sweeps.

    Warns
    -----
    ConvergenceWarning
        If the sites of some data set did not settle.
    """
    m, n, r = features.shape
    precision = torch.zeros((m, n), dtype=features.dtype, device=features.device)
    shift = torch.zeros_like(precision)
    covariance = torch.eye(r, dtype=features.dtype, device=features.device).repeat(m, 1, 1)
    mean = torch.zeros((m, r), dtype=features.dtype, device=features.device)
    settled = torch.zeros(m, dtype=torch.bool, device=features.device)
    sweep = 0
    while sweep < max_iter and not bool(settled.all()):
        sweep += 1
        change = torch.zeros(m, dtype=features.dtype, device=features.device)
        for i in range(n):
            a = features[:, i]
            along = (covariance @ a[..., None]).squeeze(-1)
            cavity_mean, cavity_variance = _cavity(
                (a * mean).sum(-1), (a * along).sum(-1), precision[:, i], shift[:, i]
            )
            new_precision, new_shift = _site(y[:, i], cavity_mean, cavity_variance)
            d_precision, d_shift = new_precision - precision[:, i], new_shift - shift[:, i]
            for new, step in ((new_precision, d_precision), (new_shift, d_shift)):
                change = torch.maximum(change, step.abs() / (1 + new.abs()))
            precision[:, i], shift[:, i] = new_precision, new_shift
            # One site is one direction: a rank-one update of the posterior.
            gain = 1 / (1 + d_precision * (a * along).sum(-1))
            mean = mean + (gain * (d_shift - d_precision * (a * mean).sum(-1)))[:, None] * along
            covariance = covariance - (d_precision * gain)[:, None, None] * (
                along[:, :, None] * along[:, None, :]
            )
        # Rounding errors of the updates do not pile up over the sweeps.
        mean, covariance, log_det = _posterior(features, precision, shift)
        settled = change < tolerance
    if not bool(settled.all()):
        warnings.warn(
            f"the sites of {int((~settled).sum())} of {m} data sets did not settle in "
            f"{max_iter} sweeps",
            ConvergenceWarning,
            stacklevel=2,
        )
    marginal_mean = (features @ mean[..., None]).squeeze(-1)
    marginal_variance = ((features @ covariance) * features).sum(-1)
    cavity_mean, cavity_variance = _cavity(marginal_mean, marginal_variance, precision, shift)
    margin = y * cavity_mean / (1 + cavity_variance).sqrt()
    spread = 1 + precision * cavity_variance
    # A site is scaled so that it has the mass of the likelihood under its cavity.
    mass_of_site = (
        0.5
        * (2 * shift * cavity_mean + shift**2 * cavity_variance - precision * cavity_mean**2)
        / spread
        - 0.5 * spread.log()
    )
    log_evidence = (
        (log_likelihood(margin) - mass_of_site).sum(-1)
        + 0.5 * (shift * marginal_mean).sum(-1)
        - 0.5 * log_det
    )
    return GaussianWeights(mean, covariance, log_evidence, settled, sweep)


def _cavity(
    mean: Tensor, variance: Tensor, precision: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """The marginal at an input without its own site: mean and variance."""
    left = 1 / (1 - precision * variance)
    return left * (mean - shift * variance), left * variance


def _site(y: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """The Gaussian site that gives the tilted cavity its exact first two moments.

    Written without the difference of two precisions, which would cancel in the far tail.
    """
    scale = (1 + variance).sqrt()
    margin = y * mean / scale
    slope = y * hazard(margin) / scale
    weight = curvature(margin) / scale**2
    left = 1 / (1 - weight * variance)
    return weight * left, (slope + weight * mean) * left


def _posterior(features: Tensor, precision: Tensor, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, covariance and log determinant of the precision, from the sites."""
    unit = torch.eye(features.shape[-1], dtype=features.dtype, device=features.device)
    factor = torch.linalg.cholesky(unit + features.mT @ (features * precision[..., None]))
    covariance = torch.cholesky_inverse(factor)
    mean = (covariance @ (features.mT @ shift[..., None])).squeeze(-1)
    return mean, covariance, 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
