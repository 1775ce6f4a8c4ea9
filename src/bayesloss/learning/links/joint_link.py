"""Many classes in one model, each with a monotone learned source.

    p(k | z) = exp nu_k(x_k) / sum_j exp nu_j(x_j),   x_k = beta_k . (z - mean z).

With straight lines of slope 1 for all nu_k this is multinomial logistic regression; with one other
slope, temperature scaling; with two sources, one constant, W&N's model (12). The sources have
independent priors centred on nu(x) = x (:mod:`bayesloss.learning.links.softmax_joint`).

They are fitted to held-out scores (:mod:`bayesloss.learning.links.alternation`). These are first
brought to the scale t at which the held-out labels are most probable, so that sources only add
bends and what differs between classes. The prior is the one under which the labels have the most
evidence, by Laplace's approximation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from torch import Tensor

from bayesloss.arrays import Array
from bayesloss.learning.data.range_map import robust_reach
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.newton import choose_prior
from bayesloss.learning.links.alternation import CurveFit, Round
from bayesloss.learning.links.fitted_link import FittedLink, shaped
from bayesloss.learning.links.softmax_joint import SoftmaxJoint
from bayesloss.learning.links.tables import HermiteTable, table_nodes, to_device
from bayesloss.learning.sources.priors import CentredISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.learning.weights.label_likelihood import Curves
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.proper_losses import LogLoss
from bayesloss.threads import on_one_thread

SOURCES = "the search for the sources"  # in the list of what did not settle

_VARIANCES = (0.3, 0.1, 0.02)  # of f about its level: how far sources stray from lines
_SMOOTHNESS = 2.5
_TAU = 0.1  # a priori the slope, at a scale common to all, lies in 0.6 to 1.4 or so
_N_BASIS = 16
_FILLED = 0.5  # the part of [-1/c, 1/c] that the scores span
_BEHIND = 10.0  # nats by which a prior has no chance in later rounds
_MOST_LOG_SCALE = 5.0  # five standard deviations of its prior


# Takes the reach of the scores to the priors of each source, the stiffest last.
Family = Callable[[float], Sequence[CentredISGP]]


@on_one_thread
@dataclass(frozen=True)
class JointLink(FittedLink):
    """The link of one class in a joint model, whose logits are the sources at their mode."""

    def log_odds(self, x: ArrayLike) -> Array:
        """The logit of the class at scores x of shape (n,), as others are not known here."""
        nu = self.posterior.prior.source(self.within(x), self.posterior.mode)
        return shaped(nu.numpy(), x)


@dataclass(frozen=True)
class Sources:
    """The sources of K classes at their mode, as functions of ``scale`` times the scores."""

    prior: CentredISGP
    mode: Float[Tensor, "K D"]
    root: Float[Tensor, "KD KD"] = field(repr=False)
    scale: float
    log_evidence: float
    least_curvature: float
    converged: bool
    n_iter: int

    def link(self, k: int, found: Round, weight: Float[Tensor, " n"]) -> JointLink:
        """The link of a class, from the marginal posterior of its source."""
        rows = self.root[k * self.mode.shape[1] : (k + 1) * self.mode.shape[1]]
        posterior = Posterior(
            prior=self.prior,
            likelihood=Bernoulli(),
            mode=self.mode[k],
            root=torch.linalg.qr(rows.T, mode="r").R.T,
            log_evidence=self.log_evidence,
            evidence_bound=math.nan,
            least_curvature=self.least_curvature,
            converged=self.converged,
            n_iter=self.n_iter,
        )
        scores = self.scale * found.scores[k].cpu()
        return JointLink.of(
            posterior, LogLoss(), scores, weight.cpu(), chance=False, constant_ends=True
        )

    def curves(self, device: torch.device) -> Curves:
        """The sources as functions of the scores before scaling, tabulated on a device."""
        nodes = table_nodes(self.prior)
        values = self.prior.source(nodes, self.mode)
        slopes = self.prior.derivative(nodes, self.mode)
        table = HermiteTable(nodes, values, slopes)
        table = table.constant_beyond(self.prior.kernel.edge)  # eq. (13)
        (table,) = to_device([table], device)
        row = torch.arange(len(self.mode), device=device)[:, None]

        def at(scores: Tensor) -> tuple[Tensor, Tensor]:
            nu, steepness = table(self.scale * scores, row)
            return nu, self.scale * steepness

        return at


class SourceFits:
    """Fits of all sources together to the held-out scores of one problem of many classes."""

    def __init__(
        self, data: LinearScores, level: Float[Tensor, " K"], family: Family | None = None
    ) -> None:
        """With the priors of another family than :func:`joint_priors`, if one is given."""
        self._family = family or joint_priors
        self._weight = data.weight.cpu()
        self._labels = data.labels.cpu().to(self._weight.dtype)
        self._level = level.cpu()  # in nats from the first fit on, as those of the sources
        self._modes: dict[int, Tensor] = {}  # of the priors that have a chance, by their places

    def __call__(self, held_out: Float[Tensor, "K n"], scores: Float[Tensor, "F K n"]) -> CurveFit:
        """The sources of held-out scores."""
        x = held_out.cpu()
        # Sources are constant where a few scores lie far out; lines would follow these alone.
        reach = self._reach(x)
        end = 2 * reach
        near = x.clamp(-end, end)
        if self._modes:
            scale = self._common_scale(near, self._level)
        else:
            scale = self._common_scale(near + self._level[:, None], torch.zeros_like(self._level))
            self._level = scale * self._level
        sources = self._sources(scale, x, max(reach, self._reach(scores[0].cpu())))
        curves = sources.curves(scores.device)
        values, _ = curves(held_out[None])
        return CurveFit(
            model=sources,
            log_evidence=sources.log_evidence,
            values=values[0].cpu().numpy(),
            curves=curves,
        )

    def _reach(self, scores: Float[Tensor, "K n"]) -> float:
        weight = self._weight.numpy()
        return max(robust_reach(row, weight) for row in scores.numpy())

    def _sources(self, scale: float, x: Float[Tensor, "K n"], reach: float) -> Sources:
        priors = self._family(scale * reach)
        edge = priors[0].kernel.edge
        features = [priors[0].features(row.clamp(-edge, edge)) for row in scale * x]
        rivals = list(self._modes) or range(len(priors))  # all, in the first round
        joints = {
            i: SoftmaxJoint.of(priors[i], self._level, features, self._labels, self._weight)
            for i in rivals
        }
        start = joints[max(joints)].prior.location
        best, log_evidence, modes = choose_prior(joints, self._modes, start, _BEHIND)
        self._modes = {i: mode.Gamma for i, mode in modes.items()}
        joint = joints[best]
        mode = modes[best]
        return Sources(
            prior=priors[best],
            mode=mode.Gamma.reshape(len(self._level), -1),
            root=joint.root(mode.curvature),
            scale=scale,
            log_evidence=log_evidence,
            least_curvature=mode.least_curvature,
            converged=mode.converged,
            n_iter=mode.n_iter,
        )

    def _common_scale(self, scores: Float[Tensor, "K n"], level: Float[Tensor, " K"]) -> float:
        """Temperature scaling at fixed levels; log t ~ N(0, 1), finite for separable classes."""

        def negative(log_scale: float) -> float:
            nu = math.exp(log_scale) * scores + level[:, None]
            log_p = torch.log_softmax(nu, dim=0)
            return 0.5 * log_scale**2 - float((self._labels * log_p).sum(0) @ self._weight)

        ends = (-_MOST_LOG_SCALE, _MOST_LOG_SCALE)
        return math.exp(minimize_scalar(negative, bounds=ends, method="bounded").x)


def joint_priors(reach: float) -> Sequence[CentredISGP]:
    """The priors of each source, for scores within [-reach, reach], the stiffest last."""
    c = 1.0
    if reach > 0:
        c = _FILLED / reach
    kernel = TrigonometricKernel(a=_SMOOTHNESS, c=c, n_basis=_N_BASIS)
    return [CentredISGP(kernel.scaled(variance), tau=_TAU) for variance in _VARIANCES]
