"""Linearized loss-EM for Gaussian process classification: LHG section 4.2, Table 3.

The E-step approximates the posterior times the utility of the last decisions, by Laplace's method
or by EP, as LHG section 5 suggests; the M-step decides anew under that Gaussian.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.laplace import laplace_probit
from bayesloss.calibrating.probit.tilted_ep import tilted_ep
from bayesloss.calibrating.probit.whitened_gp import GaussianWeights, Inference, decide
from bayesloss.calibrating.utility import LogUtility, check_max_loss
from bayesloss.warnings import warn_unconverged


@dataclass(frozen=True)
class LossEMResult:
    """The Gaussian q, the decisions of least risk under it, and the number of E-steps."""

    q: GaussianWeights
    decisions: Float[Tensor, "m s"]
    n_rounds: Int[Tensor, " m"]
    converged: Bool[Tensor, " m"]


def loss_em_probit(
    features: Float[Tensor, "m n r"],
    y: Float[Tensor, "m n"],
    target_features: Float[Tensor, "m s r"],
    target_noise: Float[Tensor, "m s"],
    costs: CostMatrix,
    *,
    start: Float[Tensor, "m s"] | None = None,
    inference: Inference = "laplace",
    max_loss: float | None = None,
    max_iter: int = 50,
) -> LossEMResult:
    """LHG Table 3, its lines numbered in the code, for many data sets; defaults as in section 5."""
    M = check_max_loss(max_loss, costs)
    threshold = costs.probit_threshold
    infer = expectation_propagation if inference == "ep" else laplace_probit
    q = infer(features, y)
    if start is None:  # 1: any decisions will do
        decisions = decide(q, target_features, target_noise, threshold)
    else:
        decisions = start.clone()
    n_rounds = torch.zeros(len(y), dtype=torch.int64, device=y.device)
    active = torch.arange(len(y), device=y.device)
    for _ in range(max_iter):  # 2
        targets = target_features[active]
        noise = target_noise[active]
        log_utility = LogUtility(
            features=targets,
            noise=noise,
            decisions=decisions[active],
            costs=costs,
            max_loss=M,
        )
        if inference == "ep":  # 3, 4
            tilted = tilted_ep(features[active], y[active], log_utility)
        else:  # from the last mode; at the new one LHG (27) is zero
            tilted = laplace_probit(
                features[active], y[active], term=log_utility, start=q.mean[active]
            )
        q.write(active, tilted)
        n_rounds[active] += 1
        new_decisions = decide(tilted, targets, noise, threshold)  # 5, 6
        changed = (new_decisions != decisions[active]).any(-1)
        decisions[active] = new_decisions
        active = active[changed]  # 7
        if not len(active):
            break
    converged = torch.ones_like(q.converged)
    converged[active] = False
    q = replace(q, n_iterations=int(n_rounds.max()), sites=None, at_inputs=None)
    if len(active):
        warn_unconverged(
            f"the decisions of {len(active)} of {len(y)} data sets still changed after "
            f"{q.n_iterations} rounds: use a larger max_iter, or a larger max_loss"
        )
    return LossEMResult(q=q, decisions=decisions, n_rounds=n_rounds, converged=converged)
