"""Many classes in one model, each with a monotone learned source.

    p(k | z) = exp nu_k(x_k) / sum_j exp nu_j(x_j),   x_k = beta_k . (z - mean z).

With straight lines of slope 1 for all nu_k this is multinomial logistic regression; with one other
slope, temperature scaling; with two sources, one constant, W&N's model (12). The sources have
independent priors centred on nu(x) = x (:mod:`bayesloss.learning.links.softmax_joint`).

Sources and weights take turns, as in W&N's EM. Sources are fitted to held-out scores, from weights
fitted to all folds but one. All scores are first brought to the scale t at which the held-out
labels are most probable, so that sources only add bends and what differs between classes. Then the
weights, for all data and without each fold, go a few steps of L-BFGS, from multinomial regressions,
towards the maximum of

    mean_n log p(y_n given t x_n, nu) - sum_k beta_k . beta_k / (2 C n),  x = beta (z - mean z).

With straight lines the next weights are thus those of t^2 C in place of C. The round with the
highest evidence of the held-out labels is kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from bayesloss.learning.data.range_map import robust_reach
from bayesloss.learning.inference.newton import choose_prior
from bayesloss.learning.links.damped_steps import BestRound
from bayesloss.learning.links.em import EM
from bayesloss.learning.links.multinomial import FoldedFits, Sources, common_scale, folds_of
from bayesloss.learning.links.softmax_joint import SoftmaxJoint
from bayesloss.learning.links.tables import HermiteTable, moved, table_nodes
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.learning.weights.linear_scores import LinearScores

Family = Callable[[float], Sequence[SourcePrior]]

SOFTMAX = "the multinomial regression"  # in the list of what did not settle

_PATIENCE = 3  # rounds in turn without a rise: one may be worse, since sources see held-out scores
_BEHIND = 10.0  # nats by which a prior has no chance in later rounds


@dataclass(frozen=True)
class JointFit:
    """The fit of K classes; the evidence is Laplace's, given held-out scores, in nats."""

    beta: Tensor
    scores: Tensor
    prior: SourcePrior[TrigonometricKernel]
    mode: Tensor
    root: Tensor = field(repr=False)
    log_evidence: float
    least_curvature: float  # of the Hessian, in units of the prior precision
    history: tuple[float, ...]
    unsettled: tuple[str, ...]


def fit_joint_links(
    data: LinearScores,
    family: Family,
    *,
    tol: float,
    max_iter: int = 30,
    groups: Tensor | None = None,
    held_out: bool = True,
) -> JointFit:
    """Fit weights, and all sources to held-out scores, in turns; groups stay in one fold."""
    fold = None
    if held_out:
        fold = folds_of(data.labels.argmax(0).cpu(), groups).to(data.weight.device)
    em = JointEM(data, FoldedFits(data, fold, tol), family, tol)
    # Sources fitted to training scores would reward overfitted weights: these stay as they are.
    for _ in em.rounds(max_iter if held_out else 0):
        pass
    best = em.best.kept or em.found
    unsettled = [] if em.fits.settled else [SOFTMAX]
    if held_out and max_iter and not em.settled():
        unsettled.append("EM")
    return replace(best, history=tuple(em.history), unsettled=(*unsettled, *best.unsettled))


class JointEM(EM):
    """EM for one model of K classes; ``family`` makes its possible priors, the stiffest last."""

    def __init__(self, data: LinearScores, fits: FoldedFits, family: Family, tol: float) -> None:
        self.data, self.fits, self.family = data, fits, family
        self.level, self.scale = fits.level, 1.0  # of the sources, and of the scores they take
        self.modes: dict[int, Tensor] = {}  # of priors, by their places
        self.history: list[float] = []
        self.best: BestRound[JointFit] = BestRound(tol * data.total)

    def e_step(self, number: int) -> None:
        """All sources together, at the common scale of the held-out scores."""
        seen, weight = self.fits.held_out(), self.data.weight.cpu().numpy()
        # Sources are constant where a few scores lie far out; lines would follow these alone.
        end = 2 * max(robust_reach(row, weight) for row in seen.cpu().numpy())
        near = seen.clamp(-end, end)
        if number == 1:  # levels are in nats from here on, as those of the sources
            near, level = near + self.level[:, None], torch.zeros_like(self.level)
            self.scale = common_scale(near, level, self.data)
            self.level = self.scale * self.level
        else:
            self.scale = common_scale(near, self.level, self.data)
        self.found = self._fit_sources(self.scale * seen.cpu(), self.scale * self.fits.scores)
        self.history.append(self.found.log_evidence)
        self.best.look(self.found.log_evidence, lambda: self.found)

    def settled(self) -> bool:
        return self.best.n_worse == _PATIENCE

    def m_step(self, number: int) -> None:
        """Weights of all data, and without each fold, a few steps given the sources' mode."""
        self.fits.move(_tabulated(self.found, self.scale))

    def _fit_sources(self, seen: Tensor, scores: Tensor) -> JointFit:
        weight, labels, level = self.data.weight.cpu(), self.data.labels.cpu(), self.level.cpu()
        every = torch.cat([seen, scores.cpu()]).numpy()
        reach = max(robust_reach(row, weight.numpy()) for row in every)
        priors = self.family(reach)
        edge = priors[0].kernel.edge
        features = [priors[0].features(row.clamp(-edge, edge)) for row in seen]
        rivals = list(self.modes) or range(len(priors))  # all, in the first round
        joints = {i: SoftmaxJoint.of(priors[i], level, features, labels, weight) for i in rivals}
        start = joints[max(joints)].prior.location
        best, log_evidence, modes = choose_prior(joints, self.modes, start, _BEHIND)
        self.modes = {i: each.Gamma for i, each in modes.items()}
        joint, mode = joints[best], modes[best]
        return JointFit(
            beta=self.scale * self.fits.beta,
            scores=scores,
            prior=joint.each,
            mode=mode.Gamma.reshape(len(level), -1),
            root=joint.root(mode.curvature),
            log_evidence=log_evidence,
            least_curvature=mode.least_curvature,
            history=(),
            unsettled=() if mode.converged else ("the search for the sources",),
        )


def _tabulated(fit: JointFit, scale: float) -> Sources:
    """The sources at their mode, as functions of scores before scaling."""
    nodes = table_nodes(fit.prior)
    values, slopes = fit.prior.source(nodes, fit.mode), fit.prior.derivative(nodes, fit.mode)
    table = HermiteTable(nodes, values, slopes).constant_beyond(fit.prior.kernel.edge)  # eq. (13)
    (table,) = moved([table], fit.scores.device)
    row = torch.arange(len(fit.mode), device=fit.scores.device)[:, None]

    def sources(scores: Tensor) -> tuple[Tensor, Tensor]:
        values, slopes = table(scale * scores, row)
        return values, scale * slopes

    return sources
