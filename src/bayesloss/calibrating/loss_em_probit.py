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
from bayesloss.calibrating.probit.kernel_evidence import Inference
from bayesloss.calibrating.probit.laplace import laplace_probit
from bayesloss.calibrating.probit.tilted_ep import tilted_ep
from bayesloss.calibrating.probit.whitened_gp import GaussianWeights, decide
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
    M, threshold = check_max_loss(max_loss, costs), costs.probit_threshold
    ep = inference == "ep"
    q = expectation_propagation(features, y) if ep else laplace_probit(features, y)
    # 1: any decisions will do.
    decided = decide(q, target_features, target_noise, threshold) if start is None else start
    decisions = decided.clone()
    n_rounds = torch.zeros(len(y), dtype=torch.int64, device=y.device)
    active = torch.arange(len(y), device=y.device)
    for _ in range(max_iter):  # 2
        targets, noise = target_features[active], target_noise[active]
        term = LogUtility(targets, noise, decisions[active], costs, M)
        data = features[active], y[active]
        # 3, 4: from the last mode. (27) is what has to vanish.
        if ep:
            part = tilted_ep(*data, term)
        else:
            part = laplace_probit(*data, term=term, start=q.mean[active])
        q.write(active, part)
        n_rounds[active] += 1
        new = decide(part, targets, noise, threshold)  # 5, 6
        changed = (new != decisions[active]).any(-1)
        decisions[active] = new
        active = active[changed]  # 7
        if not len(active):
            break
    converged = torch.ones_like(q.converged)
    converged[active] = False
    q = replace(q, n_iterations=int(n_rounds.max()), sites=None)
    if len(active):
        warn_unconverged(
            f"the decisions of {len(active)} of {len(y)} data sets still changed after "
            f"{q.n_iterations} rounds: use a larger max_iter, or a larger max_loss"
        )
    return LossEMResult(q, decisions, n_rounds, converged)
