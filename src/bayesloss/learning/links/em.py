"""EM for the weights and the link of one problem (W&N section 4.2).

E-step: given the weights, hence the scores x = beta . z, the Laplace posterior of nu. The data are
spread on a grid, so that the cost does not grow with their number. M-step: given the posterior,
raise Q(beta), the expected log likelihood; we subtract a penalty on beta, that of C, which W&N do
not have. With an exact posterior every round would raise the marginal likelihood of beta, less the
penalty; with Laplace's a round may lower it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from bayesloss.learning.inference.laplace import Posterior, approximate, ordered_root
from bayesloss.learning.inference.likelihoods import Bernoulli, Observations
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import choose_prior, find_mode
from bayesloss.learning.links.tables import (
    HermiteTable,
    enough_nodes,
    expected_log_probabilities,
    table_nodes,
    to_device,
)
from bayesloss.learning.sources.priors import SourcePrior, grid_size
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.learning.weights.linear_scores import LinearScores, by_parts
from bayesloss.learning.weights.weight_search import LogProbability, WeightFit, maximise_weights

_NEWTON_STEPS = 100  # of an E-step; from the mode of the round before, five or six suffice
_WEIGHT_STEPS = 10  # of an M-step: few, as the posterior moves meanwhile
# Nodes of the grid on which priors are compared. On a kinked link this changes differences of the
# evidences by half a nat at most with 10,000 data. With 100,000 it is a few nats, but the best
# prior is still the same.
_COARSE = 128
_BEHIND = 1.0  # nats by which a prior has no chance in later rounds: evidences move together
_ROOM = 1.5  # how far beyond the scores an M-step finds the expectations tabulated


@dataclass(frozen=True)
class LinkModel:
    """The priors of a link, and the draws that represent its posterior.

    Attributes
    ----------
    likelihood : Bernoulli
    prior : SourcePrior
        Where EM begins.
    family : sequence of SourcePrior
        The priors from which Laplace's evidence chooses, the stiffest last; or the prior alone.
    noise : Tensor of shape (S, D)
        Standard normal.
    ordered : bool, default=False
        Whether the first columns of the noise move the link most.
    constant_ends : bool, default=False
        Whether the link is constant beyond the kernel's period.
    """

    likelihood: Bernoulli
    prior: SourcePrior[TrigonometricKernel]
    family: Sequence[SourcePrior[TrigonometricKernel]]
    noise: Float[Tensor, "S D"] = field(repr=False)
    ordered: bool = False
    constant_ends: bool = False

    def draws(self, posterior: Posterior, low: float, high: float) -> Float[Tensor, "S D"]:
        """Draws of Gamma that represent a posterior, for scores from low to high."""
        root = posterior.root
        if self.ordered:
            root = ordered_root(posterior, low, high)
        return posterior.mode + self.noise @ root.T  # nu^(s) of section 4.2


@dataclass(frozen=True)
class LinkFit:
    """The result of EM for one problem.

    The history has the log evidence of each E-step, and of each M-step the expected log likelihood
    before and after it and the relative change of the weights.
    """

    beta: Float[Tensor, " d"]
    scores: Float[Tensor, " n"]
    posterior: Posterior
    draws: Float[Tensor, "S D"] = field(repr=False)
    unsettled: tuple[str, ...]
    history: dict[str, list[float]] = field(repr=False)


class EM:
    """Weights beta of shape (1, d), and the posterior of the link given their scores, in turns."""

    def __init__(self, data: LinearScores, model: LinkModel, fixed: WeightFit, tol: float) -> None:
        """Begin at the fit with the fixed link (section 4.2, by theorem 4)."""
        self.data = data
        self.model = model
        self.tol = tol
        self.beta = fixed.beta.clone()
        # The scores are without the offset, with which nu_0 begins.
        self.scores = fixed.scores - fixed.offset[:, None]
        self.prior = model.prior
        start = self.prior.start(self.scores[0].cpu())
        self.Gamma = torch.cat([start[:-1], fixed.offset.cpu()])
        self.modes: dict[int, Tensor] = {}  # of the priors that may still be chosen, by place
        self._posterior: Posterior | None = None
        self.low = math.nan  # the range of the scores that the link was fitted to
        self.high = math.nan
        self.objective = -math.inf  # the penalised log evidence, in nats a datum,
        self.change = math.inf  # and by how much the last round changed it
        names = ("log_evidence", "expected_before", "expected", "change")
        self.history: dict[str, list[float]] = {name: [] for name in names}

    def rounds(self, max_iter: int) -> Iterator[int]:
        """At most so many M-steps, each between two E-steps, after which it yields."""
        for number in range(1, max_iter + 2):
            self.e_step(number)  # q(nu | beta)
            yield number
            if self.change < self.tol or number > max_iter:
                return
            self.m_step()  # beta

    def e_step(self, number: int) -> None:
        """The posterior q(nu | beta), with the prior chosen anew in rounds 1, 2, 4, ..."""
        x = self.scores[0]
        edge = self.prior.kernel.edge
        if self.model.constant_ends:
            x = x.clamp(-edge, edge)
        self.low = float(x.min())
        self.high = float(x.max())
        if self.high == self.low:  # of constant inputs one node would do
            self.high = self.low + edge
        is_power_of_two = number & (number - 1) == 0
        if is_power_of_two:
            self._choose_prior(x)
        n = self.data.total
        size = grid_size(self.prior, self.high - self.low, n)
        observed = self._on_grid(x, size)
        joint = LogJoint(self.prior, self.model.likelihood, observed)  # eq. (12), given beta
        mode = find_mode(joint, self.Gamma, max_iter=_NEWTON_STEPS)
        self.Gamma = mode.Gamma
        posterior = approximate(joint, mode, with_bound=False)  # q(nu | beta), section 4.2
        self._posterior = posterior
        self.history["log_evidence"].append(posterior.log_evidence)
        penalty = 0.5 * self.data.ridge * float(self.beta.square().sum())
        objective = posterior.log_evidence / n - penalty
        self.change = abs(objective - self.objective)
        self.objective = objective

    def m_step(self) -> None:
        """Weights: a few steps of L-BFGS up the expected log likelihood less the penalty."""
        before = self.beta
        fit = maximise_weights(
            self.data,
            _log_probability_of(self._expectations(), self.data.labels[0]),
            before,
            torch.zeros_like(before[:, 0]),
            free_offset=False,
            tol=self.tol,
            max_iter=_WEIGHT_STEPS,
            scores=self.scores,
        )
        size = before.norm(dim=1).clamp_min(torch.finfo(before.dtype).tiny)
        self.history["expected_before"].append(float(fit.start))
        self.history["expected"].append(float(fit.objective))
        self.history["change"].append(float((fit.beta - before).norm(dim=1) / size))
        self.beta = fit.beta
        self.scores = fit.scores

    def found(self) -> Posterior:
        """The posterior of the last E-step."""
        if self._posterior is None:
            raise RuntimeError("expected an E-step before anything is asked of its posterior")
        return self._posterior

    def draws(self) -> Float[Tensor, "S D"]:
        """Draws of Gamma that represent the posterior."""
        return self.model.draws(self.found(), self.low, self.high)

    def result(self) -> LinkFit:
        """The last round, with the names of what had not settled."""
        posterior = self.found()
        unsettled = []
        if self.change >= self.tol:
            unsettled.append(
                f"EM (its last round still changed the evidence by {self.change:.2g} a datum)"
            )
        if not posterior.converged:
            unsettled.append("the E-step")
        return LinkFit(
            beta=self.beta[0],
            scores=self.scores[0],
            posterior=posterior,
            draws=self.draws(),
            unsettled=tuple(unsettled),
            history=self.history,
        )

    def _choose_prior(self, x: Float[Tensor, " n"]) -> None:
        """Take the prior with the highest evidence, and its mode."""
        rivals = list(self.modes) or range(len(self.model.family))
        if len(rivals) == 1:
            return
        observed = self._on_grid(x, _COARSE)
        joints = {
            i: LogJoint(self.model.family[i], self.model.likelihood, observed) for i in rivals
        }
        best, _, modes = choose_prior(joints, self.modes, self.Gamma, _BEHIND)
        self.modes = {i: mode.Gamma for i, mode in modes.items()}
        self.prior = self.model.family[best]
        self.Gamma = self.modes[best]

    def _on_grid(self, x: Float[Tensor, " n"], size: int) -> Observations:
        """The data on so many nodes; on the host, where small Newton steps are faster."""
        likelihood = self.model.likelihood
        nodes = torch.linspace(self.low, self.high, size, dtype=x.dtype, device=x.device)
        shares = likelihood.shares(x, self.data.labels[0], self.data.weight, nodes)
        return likelihood.on_grid(self.prior.features, nodes.cpu(), shares.cpu())

    def _expectations(self) -> HermiteTable:
        """The expected log probabilities of both labels, as functions of the score."""
        reach = _ROOM * float(self.scores.abs().max())
        if len(self.model.family) > 1:
            nodes = enough_nodes(self.prior, reach)
        else:
            nodes = table_nodes(self.prior, reach)
        loss = self.model.likelihood.loss
        table = expected_log_probabilities(self.prior, loss, self.draws(), nodes)
        if self.model.constant_ends:
            table = table.constant_beyond(self.prior.kernel.edge)
        return to_device([table], self.data.centre.device)[0]


def _log_probability_of(table: HermiteTable, labels: Float[Tensor, " n"]) -> LogProbability:
    """Q of section 4.2, a datum: the expected log probabilities of labels, and their slopes."""

    def log_probability(scores: Tensor) -> tuple[Tensor, Tensor]:
        values, slopes = by_parts(table, scores[0], labels)
        return values[None], slopes[None]

    return log_probability


def fit_link(
    data: LinearScores,
    model: LinkModel,
    fixed: WeightFit,
    *,
    tol: float,
    max_iter: int,
    progress: bool = False,
) -> LinkFit:
    """Alternate between link and weights of one problem, from the fit with the fixed link."""
    em = EM(data, model, fixed, tol)
    with tqdm(total=max_iter + 1, desc="EM", unit="round", disable=not progress) as bar:
        for _ in em.rounds(max_iter):
            bar.update()
    return em.result()
