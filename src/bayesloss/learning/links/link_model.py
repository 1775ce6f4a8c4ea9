"""What EM knows of a link: its priors, and between rounds its posterior.

As f is periodic, a kernel's c puts the scores of the fixed link in half of [-1/c, 1/c]. If neither
variance nor smoothness is given, Laplace's evidence chooses. ISGPs are then centred on a straight
line, and with few data a fit is near a logistic regression on the scale that held-out scores ask
for.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import torch
from torch import Tensor

from bayesloss.learning.data.range_map import robust_reach
from bayesloss.learning.inference.evidence import SMOOTHNESS, at_smoothness
from bayesloss.learning.inference.laplace import Posterior, approximate, ordered_root
from bayesloss.learning.inference.likelihoods import Bernoulli, Observations
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import choose_prior, find_mode
from bayesloss.learning.inference.variational import nearest
from bayesloss.learning.links.tables import (
    HermiteTable,
    enough_nodes,
    expected_log_probabilities,
    table_nodes,
)
from bayesloss.learning.sources.priors import GP, ISGP, CentredISGP, SourcePrior
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.warnings import warn_caller

_NEWTON_STEPS = 100  # of an E-step; from the mode of the round before, five or six suffice
_ROOM = 1.5  # how far beyond the scores an M-step finds the expectations tabulated
_BEHIND = 1.0  # nats by which a prior has no chance in later rounds: evidences move together
_SMOOTH = 1.2  # a, where there is no choice by the evidence
# The family that the evidence chooses from: the variance of f about its level, and its smoothness.
_STRAYS = (0.3, 0.1, 0.02)
_SMOOTHNESS = (1.25, 2.5)
_MEMBERS = tuple(product(_STRAYS, _SMOOTHNESS))
_LEVEL_SPREAD = 0.5  # a priori the slope of a path lies in 0 to 4 or so
_N_BASIS = 32  # of those
_JOINT_SMOOTHNESS = (2.5,)  # where many sources are fitted together, on a common scale beforehand
_JOINT_N_BASIS = 16
_JOINT_LEVEL_SPREAD = 0.1  # a priori the slope lies in 0.6 to 1.4 or so
_FILLED = 0.5  # the part of [-1/c, 1/c] that the scores of the fixed link span
_FAR_OFF = 1e3  # how much more or less of it they may span where c is given
_NOTHING = 1e-100  # scores that reach no farther make c = 1 as good as any


@dataclass(frozen=True)
class LinkPriors:
    """The parameters of a link's prior; None for what is taken from the data."""

    kind: str  # "isgp" or "gp"
    n_given: int | None
    a: float | None
    c: float | None
    variance: float | None  # k(0, 0)
    gamma: float  # the prior precision of nu_0

    @property
    def chosen(self) -> bool:
        """Whether the evidence chooses the prior."""
        return self.a is None and (self.kind == "gp" or self.variance is None)

    @property
    def centred(self) -> bool:
        """Whether the prior is centred on a straight line."""
        return self.chosen and self.kind == "isgp"

    @property
    def robust(self) -> bool:
        """Whether a few scores may lie beyond the period."""
        return self.chosen and self.c is None

    @property
    def n_basis(self) -> int:
        """The number of basis functions."""
        return self.n_given or (_N_BASIS if self.chosen else 64)

    @property
    def n_parameters(self) -> int:
        """The number of parameters Gamma."""
        return self.n_basis + (2 if self.centred else 1)

    def first(self, scores: Tensor, weight: Tensor, member: int = -1) -> SourcePrior:
        """The prior of one problem's nu, given its fixed link's scores; in a family, by index."""
        known = scores.numpy(), weight.numpy()
        reach = robust_reach(*known) if self.robust else float(scores.abs().max())
        c = self._half_frequency(reach)
        if self.centred:
            return self._centred(c, *_MEMBERS[member])
        kernel = TrigonometricKernel(a=self.a or _SMOOTH, c=c, n_basis=self.n_basis)
        if self.kind == "isgp":
            return ISGP(kernel.scaled(self.variance or 1.0), gamma=self.gamma)
        near = scores.clamp(-kernel.edge, kernel.edge) if self.robust else scores
        mean_square = float(weight @ near**2 / weight.sum())
        return GP(kernel.scaled(self.variance or max(mean_square, 1.0)), gamma=self.gamma)

    def family(self, prior: SourcePrior) -> list[SourcePrior]:
        """The priors with the c of this one to choose from, the stiffest last."""
        if not self.centred:
            return [at_smoothness(prior, a) for a in SMOOTHNESS]
        return [self._centred(prior.kernel.c, *each) for each in _MEMBERS]

    def _centred(self, c: float, variance: float, a: float) -> CentredISGP:
        kernel = TrigonometricKernel(a=a, c=c, n_basis=self.n_basis).scaled(variance)
        return CentredISGP(kernel, tau=_LEVEL_SPREAD, gamma=self.gamma)

    def joint_family(self, reach: float) -> list[SourcePrior]:
        """The priors of each source of a joint model, the stiffest last."""
        c = self._half_frequency(reach)
        n_basis = self.n_given or _JOINT_N_BASIS
        return [
            CentredISGP(
                TrigonometricKernel(a=a, c=c, n_basis=n_basis).scaled(variance),
                tau=_JOINT_LEVEL_SPREAD,
            )
            for variance in _STRAYS
            for a in ((self.a,) if self.a else _JOINT_SMOOTHNESS)
        ]

    def _half_frequency(self, reach: float) -> float:
        """The c of a kernel for scores within [-reach, reach]; a given c must not be far off."""
        if self.c is None:
            return _FILLED / reach if reach > _NOTHING else 1.0
        least, most = 1 / (_FAR_OFF * max(reach, 1.0)), _FAR_OFF / max(reach, _NOTHING)
        if not least <= self.c <= most:
            raise ValueError(
                f"expected c within {least:.3g} and {most:.3g}, for scores that reach {reach:.3g} "
                f"under the fixed link, got c={self.c:g}"
            )
        if self.c * reach > 1:
            warn_caller(
                f"scores reach {reach:.3g} under the fixed link, and the kernel's period ends at "
                f"1/c = {1 / self.c:.3g}: lower c to {_FILLED / reach:.2g}, or leave it out"
            )
        return self.c


@dataclass(frozen=True)
class LinkModel:
    """The priors of links, and the draws that represent their posteriors."""

    likelihood: Bernoulli
    prior_of: Callable[[Tensor], SourcePrior[TrigonometricKernel]]  # from the fixed link's scores
    noise: Tensor  # standard normal, (S, M + 1)
    ordered: bool = False  # whether the first columns move the link most
    family: Callable[[SourcePrior], Sequence[SourcePrior]] | None = None
    constant_ends: bool = False

    def link(self, scores: Tensor, nu_0: Tensor) -> "Link":
        """A problem before the first round, from scores and offset of the fixed link."""
        prior = self.prior_of(scores)
        family = [prior] if self.family is None else self.family(prior)
        return Link(prior, torch.cat([prior.start(scores)[:-1], nu_0[None]]), family)

    def draws(self, link: "Link") -> Tensor:
        """Draws of Gamma that represent the posterior of a link, (S, M + 1)."""
        q = link.posterior
        root = ordered_root(q, link.low, link.high) if self.ordered else q.root
        return q.mode + self.noise @ root.T  # nu^(s) of section 4.2

    def expectations(self, link: "Link") -> HermiteTable:
        """The expected log probabilities of both labels, as functions of the score."""
        nodes = (enough_nodes if self.family else table_nodes)(link.prior, _ROOM * link.reach)
        draws = self.draws(link)
        table = expected_log_probabilities(link.prior, self.likelihood.loss, draws, nodes)
        return table.constant_beyond(link.prior.kernel.edge) if self.constant_ends else table


@dataclass
class Link:
    """The state of one problem between rounds."""

    prior: SourcePrior[TrigonometricKernel]
    Gamma: Tensor  # where the next search for the mode begins
    family: Sequence[SourcePrior]  # the stiffest last
    modes: dict[int, Tensor] = field(default_factory=dict)  # under those that may be chosen
    posterior: Posterior = field(init=False)
    low: float = math.nan  # the range of the scores that it was fitted to
    high: float = math.nan
    reach: float = math.nan  # of the training scores, in absolute value
    found: bool = False  # whether the last search ended at a mode
    evidence: float = -math.inf  # its logarithm, in nats a datum
    value: float = -math.inf  # the same less the penalty
    drift: float = math.inf  # by how much the one and
    gain: float = math.inf  # the other changed in the last round

    @property
    def rivals(self) -> Sequence[int]:
        """The indices of the priors to choose from: all, in the first round."""
        return list(self.modes) or range(len(self.family))

    def choose_prior(self, likelihood: Bernoulli, data: Observations) -> None:
        """Take the prior with the highest evidence, and its mode."""
        joints = {i: LogJoint(self.family[i], likelihood, data) for i in self.rivals}
        best, _, modes = choose_prior(joints, self.modes, self.Gamma, _BEHIND)
        self.modes = {i: mode.Gamma for i, mode in modes.items()}
        self.prior, self.Gamma = self.family[best], self.modes[best]

    def fit(self, joint: LogJoint, penalty: float, n: float, *, by_nearest: bool) -> None:
        """Newton's method from the mode of the round before, and the evidence there."""
        mode = find_mode(joint, self.Gamma, max_iter=_NEWTON_STEPS)
        self.Gamma, self.found = mode.Gamma, mode.converged
        if by_nearest and mode.converged and self.prior.n_twins > 1:
            # Wide inputs take hundreds of such fits: by normal laws, in a third of the time.
            self.posterior = nearest(joint, mode, with_laws=False)[0]
        else:
            self.posterior = approximate(joint, mode, with_bound=False)  # q(nu | beta), section 4.2
        evidence = self.posterior.log_evidence / n
        self.evidence, self.drift = evidence, abs(evidence - self.evidence)
        value = evidence - penalty
        self.value, self.gain = value, abs(value - self.value)
