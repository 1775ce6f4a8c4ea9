r"""Inference on links that the utility of decisions weighs: LHG's idea on W&N's posterior.

The state is :math:`\Gamma`, the parameters of a source :math:`\nu`; a case with score x is positive
with probability :math:`\sigma(\nu(x))`. Every link increases, so only one sort of decision can be
best: yes above some score, the *cut*. Its utility on the targets' scores is

.. math:: U_M(\Gamma, h) = M - \frac1S \Bigl[ \sum_{s\ \mathrm{no}} c_- \sigma(\nu(x_s))
   + \sum_{s\ \mathrm{yes}} c_+ (1 - \sigma(\nu(x_s))) \Bigr].

The evidence Z(h) of labels and utility is the integral of a positive function, like Z(D), and
Laplace's method knows what to do with one: at its own mode, with its own curvature. So

.. math:: M - R_{p_D}(h) = Z(h) / Z(D)

has an error of the order :math:`n^{-2}` where the mean of the loss under Laplace's Gaussian has
:math:`n^{-1}` (Tierney and Kadane 1986). The decisions of least :math:`d_L` are those of the
largest Z(h).

Or by variation, which bounds both evidences from below: for any Gaussian q over Gamma,

.. math:: \log Z(h) \ge L(q) + E_q \log U_M(\Gamma, h)

with W&N's variational bound L. The last mean is taken over the same even draws at every q.
"""

import math
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.learning.evidence.gaussian_bound import Trial
from bayesloss.learning.evidence.variational import maximise_bound
from bayesloss.learning.inference.laplace import Posterior, approximate, even_normals
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import Mode, find_mode
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss_book.references.gaussian_bounds import NormalBound

_DRAWS = 256  # over which the log utility is averaged under a Gaussian
_ROUNDS = 50  # of Table 3, at most


@dataclass(frozen=True)
class TiltedJoint(LogJoint):
    """The log joint density of labels and Gamma, plus the log utility of decisions."""

    targets: Tensor  # (S, F), the prior's features at the targets' scores
    # (S,), what the probability of a 1 costs where it was decided: -c_plus for yes, c_minus for no
    slope: Tensor
    base: float  # M less what yes costs where the probability is zero, on average over targets

    def _utility(self, Gamma: Tensor) -> tuple[Tensor, Tensor]:
        p = torch.sigmoid(self.prior.coefficients(Gamma) @ self.targets.T)
        return self.base - (self.slope * p).mean(-1), p

    def log_utility(self, Gamma: Tensor) -> Tensor:
        """Log U_M, of shape (...), at Gamma of shape (..., M + 1)."""
        return self._utility(Gamma)[0].log()

    def __call__(self, Gamma: Tensor) -> Tensor:
        """The log density, all constants included, as a scalar."""
        return super().__call__(Gamma) + self.log_utility(Gamma)

    def derivatives(self, Gamma: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient, and minus the second derivative."""
        gradient, hessian = super().derivatives(Gamma)
        # The log utility's gradient by nu at the targets, and the diagonal part of its Hessian.
        utility, p = self._utility(Gamma)
        first = -self.slope * p * (1 - p) / (len(p) * utility)
        second = first * (1 - 2 * p)
        slopes = self.targets @ self.prior.jacobian(Gamma)
        pull = slopes.T @ first
        bend = self.prior.curvature(self.targets.T @ first)
        # log U has the second derivative U'' / U - (U' / U)^2.
        bent = slopes.T @ (second[:, None] * slopes) - pull[:, None] * pull + bend
        return gradient + pull, hessian - bent


class TiltedBound(NormalBound):
    """The bound L plus the mean of the log utility, as a function of a Gaussian's m and S."""

    joint: TiltedJoint

    def __init__(self, joint: TiltedJoint) -> None:
        super().__init__(joint)
        self.draws = even_normals(_DRAWS, len(joint.prior.location))

    def __call__(self, m: Tensor, precision: Tensor) -> Trial:
        """The tilted bound at q = N(m, S), with S^-1 in units of the prior's precision."""
        trial = super().__call__(m, precision)
        return replace(trial, value=trial.value + self.log_utility(m, precision))

    def log_utility(self, m: Tensor, precision: Tensor) -> Tensor:
        """E_q log U_M, as a scalar."""
        return self.joint.log_utility(m + self.draws @ self.joint.root(precision).T).mean()

    def derivatives(self, q: Trial) -> tuple[Tensor, Tensor]:
        """Those of L, and what the utility adds to dL/dm and to -2 dL/dS."""
        gradient, hessian = super().derivatives(q)
        with torch.enable_grad():
            m = q.m.clone().requires_grad_()
            precision = q.precision.clone().requires_grad_()
            pull, by_precision = torch.autograd.grad(self.log_utility(m, precision), (m, precision))
        scale = self.joint.prior.precision.sqrt()
        # dE/dS = -S^-1 (dE/dS^-1) S^-1, and S^-1 = scale precision scale.
        inner = q.precision @ (by_precision + by_precision.T) @ q.precision
        return gradient + pull, hessian + scale[:, None] * inner * scale


def labels_joint(prior: SourcePrior, x: Tensor, y: Tensor) -> LogJoint:
    """The log joint density of labels 0 and 1 and Gamma under the log loss."""
    return LogJoint.of(prior, Bernoulli(), x, y)


def _tilted(joint: LogJoint, targets: Tensor, cut: int, costs: CostMatrix) -> TiltedJoint:
    """Yes from target number ``cut`` on, of targets in ascending order; M is the larger cost."""
    yes = torch.arange(len(targets)) >= cut
    slope = torch.where(yes, -costs.c_plus, costs.c_minus).to(torch.float64)
    base = max(costs.c_plus, costs.c_minus) - costs.c_plus * float(yes.to(torch.float64).mean())
    return TiltedJoint(joint.prior, joint.likelihood, joint.data, targets, slope, base)


def cut_of(probability: Tensor, costs: CostMatrix) -> int:
    """The number of the first target at which yes is better; their number if it is at none."""
    return int((probability <= costs.threshold).sum())


def tilted_evidence(
    joint: LogJoint,
    mode: Mode,
    targets: Tensor,
    cut: int,
    costs: CostMatrix,
    *,
    by_variation: bool = False,
) -> float:
    """The log evidence of labels and utility, minus infinity where no Gaussian was found."""
    tilted = _tilted(joint, targets, cut, costs)
    found = find_mode(tilted, mode.Gamma)
    if by_variation:
        q, _ = maximise_bound(TiltedBound(tilted), found)
        return q.log_evidence if q.converged else -math.inf
    if not found.converged or found.least_curvature <= 0:
        return -math.inf
    return float(tilted.log_evidence(found.Gamma))


def best_cut(
    joint: LogJoint, mode: Mode, targets: Tensor, costs: CostMatrix, *, by_variation: bool = False
) -> int:
    """The cut of the largest :func:`tilted_evidence`: on a coarse grid, then in halved steps."""

    @cache
    def evidence(cut: int) -> float:
        return tilted_evidence(joint, mode, targets, cut, costs, by_variation=by_variation)

    step = max(1, len(targets) // 8)
    best = max(range(0, len(targets) + 1, step), key=evidence)
    while step := step // 2:
        near = [cut for cut in (best, best - step, best + step) if 0 <= cut <= len(targets)]
        best = max(near, key=evidence)
    return best


def table_3(
    joint: LogJoint, mode: Mode, targets: Tensor, costs: CostMatrix, noise: Tensor, start: int
) -> tuple[int, bool]:
    """LHG Table 3 over Gamma, with noise (draws, M + 1): a cut, and whether it repeated itself."""
    cut = start
    for _ in range(_ROUNDS):
        tilted = _tilted(joint, targets, cut, costs)
        q = approximate(tilted, find_mode(tilted, mode.Gamma), with_bound=False)
        new = cut_of(mean_probability(q, targets, noise), costs)
        if new == cut:
            return cut, True
        cut = new
    return cut, False


def mean_probability(
    q: Posterior, targets: Tensor, noise: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The mean of sigma(nu) at targets (S,) under a Gaussian; or over draws by weights."""
    p = torch.sigmoid(q.prior.coefficients(q.mode + noise @ q.root.T) @ targets.T)
    return p.mean(0) if weights is None else weights @ p


def one_more_label(prior: SourcePrior, x: Tensor, y: Tensor, mode: Mode, at: Tensor) -> Tensor:
    """The probability (S,) of a 1 from Laplace's evidences with a label 1 and a label 0 there."""
    out = torch.empty(2, len(at), dtype=torch.float64)
    for i, score in enumerate(at):
        for label in (0, 1):
            more = torch.cat([x, score[None]]), torch.cat([y, y.new_full((1,), label)])
            joint = labels_joint(prior, *more)
            out[label, i] = joint.log_evidence(find_mode(joint, mode.Gamma).Gamma)
    return torch.sigmoid(out[1] - out[0])
