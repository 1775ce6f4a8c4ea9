r"""EP on the posterior that a utility tilts: the E-step of loss-calibrated EP.

LHG section 5 suggests "to use EP to approximate :math:`\tilde p_{h}`" in step 3 of their Table 3.
The utility of decisions h on targets, :math:`U_M = M - \frac1S \sum_s \ell_s \Phi(-t_s)`, is no
product of terms, but a *mixture of probit factors*. So under a Gaussian with mean m and covariance
V it has a closed-form expectation Z(m, V), and so have the moments of the Gaussian times U_M
(Bonnet's and Price's theorems):

.. math:: m + V \nabla \log Z, \qquad V + V (\nabla^2 \log Z) V.

EP therefore has one more site, for the utility, that is Gaussian in all weights at once; its cavity
is the plain posterior given the labels' sites. Its precision may be indefinite, since the utility
is not log-concave; the posterior's is positive, as the inverse of a true covariance. Morais and
Pillow (2022, arXiv:2201.03128) give each training label a site of its own for its utility.
"""

from typing import Protocol

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.calibrating.probit.expectation_propagation import combine_sites, fit_sites
from bayesloss.calibrating.probit.whitened_gp import GaussianWeights, check_data, check_max_iter
from bayesloss.warnings import warn_caller

__all__ = ["GaussianUtility", "tilted_ep"]


class GaussianUtility(Protocol):
    """A positive factor of the weights with a closed-form expectation under Gaussians."""

    def log_expectation(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log expectation (m,), its gradient (m, r) and its Hessian (m, r, r) by the mean."""

    def select(self, rows: Tensor) -> "GaussianUtility":
        """The same for some of the data sets."""


def tilted_ep(
    features: Tensor,
    y: Tensor,
    utility: GaussianUtility,
    *,
    max_iter: int = 100,
    tolerance: float = 1e-8,
) -> GaussianWeights:
    """Match the moments of labels' sites and of the utility's in turn, until neither changes.

    Parameters
    ----------
    features : Tensor of shape (m, n, r)
    y : Tensor of shape (m, n)
        +1 or -1.
    utility : GaussianUtility
        Such as :class:`LogUtility` with fixed decisions.
    max_iter : int, default=100
        The largest number of rounds; in each the labels' sites settle.
    tolerance : float, default=1e-8
        The utility's site has settled when no entry changes by more.

    Returns
    -------
    GaussianWeights
        ``log_evidence`` approximates the log of the integral of prior, likelihood and utility;
        ``n_iterations`` counts rounds; ``sites`` are the labels', without the utility's.

    Raises
    ------
    ValueError
        As :func:`expectation_propagation`.

    Warns
    -----
    ConvergenceWarning
        If the sites of some data set did not settle, or a cavity has no variance.
    """
    features, y = check_data(features, y)
    check_max_iter(max_iter)
    m, _, r = features.shape
    unit = torch.eye(r, dtype=features.dtype, device=features.device).expand(m, r, r)
    prior = (unit, features.new_zeros((m, r)))
    factor = (torch.zeros_like(unit), torch.zeros_like(prior[1]))
    q = fit_sites(features, y)
    sites, mean, covariance = q.label_sites(), q.mean, q.covariance
    log_evidence, converged = q.log_evidence, torch.zeros_like(q.converged)
    rows = torch.arange(m, device=y.device)  # whose utility's site has not settled
    rounds = 0
    while rounds < max_iter and len(rows):
        rounds += 1
        here, labels, start = features[rows], y[rows], (sites[0][rows], sites[1][rows])
        cavity = (prior[0][rows], prior[1][rows])
        at, V, _ = combine_sites(here, *start, cavity)  # the utility's cavity
        _, g, H = utility.select(rows).log_expectation(at, V)
        # The precision that V + V H V has more than V: -(H^-1 + V)^-1, and the shift.
        precision = -torch.linalg.solve(cavity[0] + H @ V, H)
        precision = 0.5 * (precision + precision.mT)
        shift = (precision @ (at + (V @ g[..., None]).squeeze(-1))[..., None]).squeeze(-1) + g
        change = torch.maximum(
            (precision - factor[0][rows]).abs().amax((-2, -1)),
            (shift - factor[1][rows]).abs().amax(-1),
        )
        q = fit_sites(here, labels, start=start, factor=(precision, shift))
        new = (*q.label_sites(), precision, shift, q.mean, q.covariance, q.log_evidence)
        old = (*sites, *factor, mean, covariance, log_evidence)
        for values, found in zip(old, new, strict=True):
            values[rows] = found
        settled = change < tolerance
        converged[rows] = settled & q.converged
        rows = rows[~settled]
    if not bool(converged.all()):
        broken = int((~torch.isfinite(log_evidence)).sum())
        reason = (
            f"; {broken} have cavities without variance: use a larger max_loss"
            if broken
            else ": use a larger max_iter, or a larger max_loss"
        )
        warn_caller(
            f"the utility's site of {int((~converged).sum())} of {m} data sets did not settle in "
            f"{rounds} rounds{reason}",
            ConvergenceWarning,
        )
    # EP's log evidence has the normaliser of q for the utility's site; the utility's own mass under
    # its cavity, and the cavity's normaliser, take its place.
    log_det = -torch.linalg.slogdet(covariance)[1]
    site_shift = (features.mT @ sites[1][..., None]).squeeze(-1)
    normaliser = 0.5 * ((site_shift + factor[1]) * mean).sum(-1) - 0.5 * log_det
    at, V, cavity_log_det = combine_sites(features, *sites, prior)
    cavity_normaliser = 0.5 * (site_shift * at).sum(-1) - 0.5 * cavity_log_det
    log_mass, _, _ = utility.log_expectation(at, V)
    log_evidence = log_evidence - normaliser + cavity_normaliser + log_mass
    return GaussianWeights(mean, covariance, log_evidence, converged, rounds, sites)
