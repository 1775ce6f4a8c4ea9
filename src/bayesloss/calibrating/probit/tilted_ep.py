r"""EP on the posterior that a utility tilts: the E-step of loss-calibrated EP.

LHG section 5 suggests "to use EP to approximate :math:`\tilde p_{h}`" in step 3 of their Table 3.
The utility :math:`U_M = M - \frac1S \sum_s \ell_s \Phi(-t_s)` is a *mixture of probit factors*. So
under a Gaussian with mean m and covariance V its expectation Z(m, V) is closed-form, and by
Bonnet's and Price's theorems so are the moments of their product:

.. math:: m + V \nabla \log Z, \qquad V + V (\nabla^2 \log Z) V.

EP therefore has one more site, Gaussian in all weights, whose cavity is the plain posterior. Morais
and Pillow (2022, arXiv:2201.03128) give each training label a site of its own for its utility.
"""

from dataclasses import replace

import torch

from bayesloss.calibrating.probit.expectation_propagation import (
    combine_sites,
    fit_sites,
    standard_normal,
)
from bayesloss.calibrating.probit.laplace import LogTerm
from bayesloss.calibrating.probit.whitened_gp import (
    Features,
    GaussianWeights,
    Labels,
    NaturalGaussian,
    warn_if_unsettled,
)

_SETTLED = 1e-8  # the utility's site has settled when no entry changes by more


def tilted_ep(
    features: Features, y: Labels, utility: LogTerm, *, max_iter: int = 100
) -> GaussianWeights:
    """Match the moments of the labels' and of the utility's sites in turn, until both stay."""
    prior = standard_normal(features)
    precision = torch.zeros_like(prior.precision)  # of the utility's site, and its shift
    shift = torch.zeros_like(prior.shift)
    q = fit_sites(features, y)
    q.converged[:] = False
    sites = q.label_sites()
    rows = torch.arange(len(y), device=y.device)  # whose utility's site has not settled
    rounds = 0
    while rounds < max_iter and len(rows):
        rounds += 1
        start = sites.select(rows)
        mean, V, _ = combine_sites(features[rows], start.precision, start.shift, prior.select(rows))
        _, g, H = utility.select(rows).log_expectation(mean, V)
        # The moments of cavity times utility are m' = m + V g and V' = V + V H V. The site has what
        # these have more than the cavity, the precision P = V'^-1 - V^-1 = -(H^-1 + V)^-1, and the
        # shift b = V'^-1 m' - V^-1 m = P m' + g.
        identity = torch.eye(V.shape[-1], dtype=V.dtype, device=V.device)
        P = -torch.linalg.solve(identity + H @ V, H)
        P = 0.5 * (P + P.mT)
        b = (P @ (mean + (V @ g[..., None]).squeeze(-1))[..., None]).squeeze(-1) + g
        moved = (P - precision[rows]).abs().amax((-2, -1))
        change = torch.maximum(moved, (b - shift[rows]).abs().amax(-1))
        precision[rows] = P
        shift[rows] = b
        tilted = fit_sites(features[rows], y[rows], start=start, factor=NaturalGaussian(P, b))
        settled = change < _SETTLED
        q.write(rows, replace(tilted, converged=tilted.converged & settled))
        rows = rows[~settled]
    within = f"did not settle in {rounds} rounds"
    warn_if_unsettled(q, "utility's site", within, "a larger max_loss")
    # The log evidence has three parts: the logs of the labels' sites' scales, the log mass of prior
    # and labels' sites, and log E[utility] under the Gaussian of these two, the cavity. That of q
    # has the first alone, but for the log mass of prior and all sites, the utility's with them.
    log_det = -torch.linalg.slogdet(q.covariance)[1]
    site_shift = (features.mT @ sites.shift[..., None]).squeeze(-1)
    mass_of_all = 0.5 * ((site_shift + shift) * q.mean).sum(-1) - 0.5 * log_det
    mean, V, cavity_log_det = combine_sites(features, sites.precision, sites.shift, prior)
    mass_of_cavity = 0.5 * (site_shift * mean).sum(-1) - 0.5 * cavity_log_det
    log_utility, _, _ = utility.log_expectation(mean, V)
    log_evidence = q.log_evidence - mass_of_all + mass_of_cavity + log_utility
    return replace(q, log_evidence=log_evidence, n_iterations=rounds)
