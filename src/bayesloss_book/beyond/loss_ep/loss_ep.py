r"""Loss-calibrated EP: decisions under the cavity of the utility's site.

Loss-EM's Gaussian has been weighted with the utility, and the risk would be weighted with it again:
with exact integrals LHG's Table 3 climbs the mean of :math:`U_M^2`. What LHG ask for, the least
:math:`d_L(p_D \Vert q) = R_{p_D}(h_q) - R_{p_D}(h_{p_D})`, is the largest mean of :math:`U_M`, and
so the largest evidence of labels and utility. EP has an approximation Z(h) of it. At EP's fixed
point its sites are stationary, so

.. math:: \frac{\mathrm d \log Z(h)}{\mathrm d h} = \frac{\partial}{\partial h} \log
   \int q^{\setminus U}(\theta)\, U_M(\theta, h)\, \mathrm d\theta :

the decisions to take are those of least risk under the *cavity* :math:`q^{\setminus U}` of the
utility's site, the Gaussian of prior and labels' sites.
"""

from dataclasses import replace

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.loss_em_probit import LossEMResult
from bayesloss.calibrating.probit.expectation_propagation import (
    combine_sites,
    expectation_propagation,
    standard_normal,
)
from bayesloss.calibrating.probit.tilted_ep import tilted_ep
from bayesloss.calibrating.probit.whitened_gp import GaussianWeights, Sites, decide
from bayesloss.calibrating.utility import LogUtility, check_max_loss
from bayesloss.warnings import warn_caller


def loss_ep_probit(
    features: Tensor,
    y: Tensor,
    target_features: Tensor,
    target_noise: Tensor,
    costs: CostMatrix,
    *,
    max_loss: float | None = None,
    max_iter: int = 50,
) -> LossEMResult:
    """Decisions of the largest evidence of labels and utility, as EP approximates it.

    Starts at EP's decisions, and decides anew under the utility's cavity, which is returned, while
    the evidence rises. The rest is as in :func:`~bayesloss.calibrating.loss_em_probit`.
    """
    M = check_max_loss(max_loss, costs)
    threshold = costs.probit_threshold
    prior = standard_normal(features)
    q = expectation_propagation(features, y)
    q.log_evidence[:] = -torch.inf
    proposed = decide(q, target_features, target_noise, threshold)
    decisions = proposed.clone()
    n_rounds = torch.zeros(len(y), dtype=torch.int64, device=y.device)
    active = torch.arange(len(y), device=y.device)
    for _ in range(max_iter):
        targets = target_features[active]
        noise = target_noise[active]
        term = LogUtility(targets, noise, proposed[active], costs, M)
        tilted = tilted_ep(features[active], y[active], term)
        n_rounds[active] += 1
        # A decision at the boundary may swing for ever: each side is the better one to the cavity
        # that it makes. Where the evidence does not rise, the decisions before were at its top.
        rose = tilted.log_evidence > q.log_evidence[active]
        active = active[rose]
        precision, shift = (site[rose] for site in tilted.label_sites())
        decisions[active] = proposed[active]
        # The utility's cavity.
        cavity = combine_sites(features[active], precision, shift, prior.select(active))
        part = GaussianWeights(
            mean=cavity.mean,
            covariance=cavity.covariance,
            log_evidence=tilted.log_evidence[rose],
            converged=tilted.converged[rose],
            n_iterations=0,
            sites=Sites(precision, shift),
        )
        q.write(active, part)
        proposed[active] = decide(part, targets[rose], noise[rose], threshold)
        active = active[(proposed != decisions)[active].any(-1)]
        if not len(active):
            break
    converged = torch.ones_like(q.converged)
    converged[active] = False
    q = replace(q, n_iterations=int(n_rounds.max()))
    if len(active):
        warn_caller(
            f"the evidence of {len(active)} of {len(y)} data sets still rose after "
            f"{q.n_iterations} rounds: use a larger max_iter, or a larger max_loss",
            ConvergenceWarning,
        )
    return LossEMResult(q, decisions, n_rounds, converged)
