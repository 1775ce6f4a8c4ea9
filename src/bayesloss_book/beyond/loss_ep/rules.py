r"""Two ways to decide that are not in the library: one to understand, one to compare with.

*Table 3 without an approximation.* LHG weigh the posterior with the utility of the last decisions,
:math:`\tilde p_h \propto p_D U_M(\cdot, h)`, and decide anew under the result. With weighted draws
from the posterior both are sums, so what is left of an error is the rule's own.

*One decision at a time.* With one target x there are two decisions, and the risk of either is an
integral of a single positive factor,

.. math:: R_{p_D}(h) = \ell_h\, p(y_x = -h \mid D) = \ell_h \frac{Z(D, y_x = -h)}{Z(D)} .

So EP on the posterior that the *loss* tilts is EP with one more label. Its two evidences, scaled to
sum to one, are a probability that was inferred for this target alone. No cost enters it.
"""

import torch
from torch import Tensor

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.whitened_gp import WhitenedGP
from bayesloss.calibrating.utility import check_max_loss

_ROUNDS = 50  # of Table 3, at most


def by_one_more_label(prior: WhitenedGP, y: Tensor, x: Tensor) -> Tensor:
    """Probabilities (m, s) of +1 from EP's evidences with a label +1 or -1 at the target."""
    m, n, r = prior.features.shape
    targets, noise = prior.project(x.expand(m, -1))
    s = len(x)
    # Phi(y a'z / sigma) is a probit factor of the scaled features.
    more = (targets / noise[..., None])[:, :, None]
    features = torch.cat([prior.features[:, None].expand(m, s, n, r), more], 2)
    evidence = []
    for label in (1.0, -1.0):
        labels = torch.cat([y[:, None].expand(m, s, n), y.new_full((m, s, 1), label)], 2)
        q = expectation_propagation(features.reshape(m * s, n + 1, r), labels.reshape(m * s, n + 1))
        evidence.append(q.log_evidence.reshape(m, s))
    return torch.sigmoid(evidence[0] - evidence[1])


def table_3_by_draws(
    p_draws: Tensor, share: Tensor, costs: CostMatrix, *, max_loss: float | None = None
) -> tuple[Tensor, Tensor, bool]:
    """LHG Table 3 with exact integrals, started at the Bayes decisions, on one data set.

    From the draws' probabilities of +1 (draws, s) and shares: decisions, the probability under the
    last tilted posterior, and whether they repeated themselves. M is the larger cost if not given.
    """
    M = check_max_loss(max_loss, costs)
    probability = share @ p_draws
    decisions = probability > costs.threshold
    for _ in range(_ROUNDS):
        # The loss is c_+ (1 - p) where +1 was decided, and c_- p elsewhere: linear in p.
        slope = torch.where(decisions, -costs.c_plus, costs.c_minus).to(p_draws.dtype)
        loss = (p_draws @ slope + costs.c_plus * decisions.sum()) / len(slope)
        tilted = share * (M - loss)  # LHG (11)
        probability = (tilted / tilted.sum()) @ p_draws
        new = probability > costs.threshold  # LHG (26)
        settled = bool((new == decisions).all())
        decisions = new
        if settled:
            break
    return torch.where(decisions, 1.0, -1.0).to(p_draws.dtype), probability, settled
