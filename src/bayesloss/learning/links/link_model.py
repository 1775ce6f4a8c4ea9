"""What EM knows of a link: the prior that it chooses, and between rounds its posterior."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bayesloss.learning.evidence.variational import nearest
from bayesloss.learning.inference.laplace import Posterior, approximate, ordered_root
from bayesloss.learning.inference.likelihoods import Bernoulli, Observations
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import choose_prior, find_mode
from bayesloss.learning.links.tables import (
    HermiteTable,
    enough_nodes,
    expected_log_probabilities,
    table_nodes,
)
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.learning.sources.trigonometric import TrigonometricKernel

_NEWTON_STEPS = 100  # of an E-step; from the mode of the round before, five or six suffice
_ROOM = 1.5  # how far beyond the scores an M-step finds the expectations tabulated
_BEHIND = 1.0  # nats by which a prior has no chance in later rounds: evidences move together


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
