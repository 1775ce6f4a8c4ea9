"""EM for weights and links together (W&N section 4.2).

E-step: given the weights, hence the scores x = beta . z, the Laplace posterior of nu. The data are
spread on a grid, so that the cost does not grow with their number. M-step: given the posterior,
raise the penalised expected log likelihood in beta. With an exact posterior every round would raise
the marginal likelihood of beta; with Laplace's a round may lower it.

Beyond the paper, links may be fitted to scores under weights without each case (``leave_one_out``);
then weights go by ``damped_steps`` to a fixed point. With few cases per column that can be worse
than the start, so EM returns to the best round once the held-out evidence stays clearly below it;
and where f and -f are one model, the nearest Gaussian serves in place of Laplace's.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from tqdm import tqdm

from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.likelihoods import Observations
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.links.damped_steps import BestRound, DampedSteps, FullSteps, some_rows
from bayesloss.learning.links.link_model import Link, LinkModel
from bayesloss.learning.links.tables import HermiteTable, moved
from bayesloss.learning.sources.priors import grid_size
from bayesloss.learning.weights.leave_one_out import Influence, LeaveOneOut
from bayesloss.learning.weights.linear_scores import LinearScores, Slopes, by_parts
from bayesloss.learning.weights.weight_search import (
    LogProbability,
    WeightFit,
    fit_fixed_link,
    maximise_weights,
)

FIXED_LINK = "the fit with the fixed link"  # in the list of what did not settle

# Log odds of the size 4 that move by a part m of it change a loss by at most (4 m)^2 / 8, which is
# half of tol at this many square roots of tol.
_MOVED = 0.5
_PATIENCE = 3  # rounds in a row that may find the held-out evidence so many nats below the best,
_STRONG = 3.0  # which by the usual scale of Bayes factors is strong evidence,
_FEW_A_COLUMN = 5.0  # where rows a column are fewer; sampled leverages of many rows err by more

_Round = tuple[Link, Tensor, Tensor, Tensor]  # a problem's link, weights, scores and seen scores


class EM(Protocol):
    """Links and weights in turns, for any model that says how each is fitted."""

    def e_step(self, number: int) -> None:
        """Fit links given the weights, in a round by its number."""

    def settled(self) -> bool:
        """Whether rounds have come to an end."""

    def m_step(self, number: int) -> None:
        """Fit weights given the links."""

    def rounds(self, max_iter: int) -> Iterator[int]:
        """Section 4.2: at most so many M-steps, each between two E-steps, after which it yields."""
        for number in range(1, max_iter + 2):
            self.e_step(number)  # q(nu | beta)
            yield number
            if self.settled() or number > max_iter:
                return
            self.m_step(number)  # beta


@dataclass(frozen=True)
class LinkFit:
    """The result of EM for K problems; the history has a tensor (K,) a round, NaN when settled."""

    beta: Tensor
    scores: Tensor
    seen: Tensor  # the scores that links were fitted to
    posteriors: list[Posterior]
    draws: list[Tensor]
    unsettled: tuple[str, ...]
    history: dict[str, list[Tensor]] = field(repr=False)


def fit_links(
    data: LinearScores,
    model: LinkModel,
    *,
    tol: float,
    max_iter: int,
    leave_one_out: LeaveOneOut | None = None,
    fixed: WeightFit | None = None,
    progress: bool = False,
) -> LinkFit:
    """Fit the fixed link, unless its fit is given, then alternate between links and weights."""
    if fixed is None:
        fixed, data = fit_fixed_link(data, model.likelihood.loss, tol)  # section 4.2, by theorem 4
    unsettled = [] if fixed.settled(tol) else [FIXED_LINK]
    em = LinkEM(data, model, fixed, tol, leave_one_out)
    del fixed  # with its scores
    with tqdm(total=max_iter + 1, desc="EM", unit="round", disable=not progress) as bar:
        for _ in em.rounds(max_iter):
            bar.update()
            bar.set_postfix(unsettled=len(em.active))
    return em.result(unsettled)


class LinkEM(EM):
    """EM for K problems on the same inputs, until evidences change by less than tol nats a case."""

    def __init__(
        self,
        data: LinearScores,
        model: LinkModel,
        fixed: WeightFit,
        tol: float,
        leave_one_out: LeaveOneOut | None = None,
    ) -> None:
        self.data, self.model, self.tol, self.leave_one_out = data, model, tol, leave_one_out
        # The scores are without the offset, with which nu_0 begins.
        beta, scores = fixed.beta.clone(), fixed.scores - fixed.offset[:, None]
        steps = FullSteps if leave_one_out is None else DampedSteps
        self.steps, self.slopes = steps(beta, scores, data.weight), dict[int, Slopes]()
        if leave_one_out is not None:
            loss = model.likelihood.loss
            each = by_parts(lambda x: loss.log_probabilities(x)[1].unbind(), fixed.scores)
            self.slopes = dict(enumerate(zip(*each, strict=True)))
        starts = zip(scores.cpu(), fixed.offset.cpu(), strict=True)
        self.links = [model.link(x, nu_0) for x, nu_0 in starts]
        self.active = list(range(len(self.links)))
        self.seen, self.influences = torch.empty_like(scores), dict[int, Influence]()
        few = leave_one_out is not None and data.total < _FEW_A_COLUMN * beta.shape[1]
        self.best = [BestRound[_Round](-_STRONG) for _ in self.links] if few else []
        names = ("log_evidence", "expected_before", "expected", "change")
        self.history: dict[str, list[Tensor]] = {name: [] for name in names}

    def e_step(self, number: int) -> None:
        """Links: the posterior q(nu | beta), with the prior chosen anew in rounds 1, 2, 4, ..."""
        self._see_scores()
        some, likelihood = {k: self.links[k] for k in self.active}, self.model.likelihood
        penalties = self._measure(some)
        if number & (number - 1) == 0:  # in rounds 1, 2, 4, 8, ...
            coarse = {k: 128 for k, link in some.items() if len(link.rivals) > 1}  # nodes: enough
            for k, observed in self._on_grids(coarse):
                some[k].choose_prior(likelihood, observed)
        n = self.data.total
        sizes = {k: grid_size(each.prior, each.high - each.low, n) for k, each in some.items()}
        for k, observed in self._on_grids(sizes):
            joint = LogJoint(some[k].prior, likelihood, observed)  # eq. (12), given beta
            some[k].fit(joint, penalties[k], n, by_nearest=bool(self.best))
            if self.best:
                self.best[k].look(some[k].posterior.log_evidence, partial(self._round, k))
        evidences = [link.posterior.log_evidence for link in some.values()]
        self._record("log_evidence", self.steps.beta.new_tensor(evidences))
        # Held-out scores keep their size. Where they stand still, and the evidence with them, all
        # that drifts is by how much their penalty counts.
        still = (self.steps.moved < _MOVED * math.sqrt(self.tol)).tolist()
        self.active = [
            k
            for k, link in some.items()
            if link.gain >= self.tol
            and not (link.drift < self.tol and still[k])
            and not (self.best and self.best[k].n_worse >= _PATIENCE)
        ]

    def settled(self) -> bool:
        return not self.active

    def m_step(self, number: int) -> None:
        """Weights: a few steps of L-BFGS up the expected log likelihood less the penalty."""
        active, steps = self.active, self.steps
        tables = [self.model.expectations(self.links[k]) for k in active]
        tables = moved(tables, self.data.centre.device)
        self.slopes.clear()  # the next ones are those where the M-step ends
        data, before = self.data.only(active), steps.beta[active]
        fit = maximise_weights(
            data,
            _expectation(tables, data.labels),
            before,
            torch.zeros_like(before[:, 0]),
            free_offset=False,
            tol=self.tol,
            max_iter=10,  # few, as the posterior moves meanwhile
            scores=some_rows(steps.scores, active),
            strength=steps.strength[active],
        )
        size = before.norm(dim=1).clamp_min(torch.finfo(before.dtype).tiny)
        self._record("expected_before", fit.start)
        self._record("expected", fit.objective)
        self._record("change", (fit.beta - before).norm(dim=1) / size)
        if self.leave_one_out is not None:
            for k, table, row in zip(active, tables, fit.scores, strict=True):
                self.slopes[k] = by_parts(partial(_slopes, table), row)
        factors = steps.take(active, fit, number)
        for k, factor in zip(active, factors, strict=True):
            for each in self.slopes.get(k, ()):
                each.div_(factor)

    def result(self, unsettled: Sequence[str] = ()) -> LinkFit:
        """The last round, or the best; with the names of what had not settled."""
        steps, unsettled = self.steps, list(unsettled)
        if self.active:
            gain = max(self.links[k].gain for k in self.active)
            unsettled.append(
                f"EM (its last round still changed the evidence by {gain:.2g} a datum)"
            )
        lost = [k for k, link in enumerate(self.links) if not link.found]
        for k, best in enumerate(self.best):
            if best.n_worse and best.kept is not None:
                self.links[k], steps.beta[k], steps.scores[k], self.seen[k] = best.kept
        return LinkFit(
            beta=steps.beta,
            scores=steps.scores,
            seen=self.seen,
            posteriors=[link.posterior for link in self.links],
            draws=[self.model.draws(link) for link in self.links],
            unsettled=(*unsettled, *(f"the E-step of problem {k}" for k in lost)),
            history=self.history,
        )

    def _see_scores(self) -> None:
        found: dict[int, Influence] = {}
        if self.leave_one_out is not None:
            facts = torch.stack([self.steps.fit_strength, self.steps.fraction]).tolist()
            found = self.leave_one_out.influences(self.slopes, self.influences, *facts)
            self.influences |= found
        for k in self.active:
            seen = self.seen[k].copy_(self.steps.scores[k])
            if k in found:
                seen.sub_(found[k].shift)
            if self.leave_one_out is not None or self.model.constant_ends:
                # Beyond the edges the kernel repeats itself.
                edge = self.links[k].prior.kernel.edge
                seen.clamp_(-edge, edge)

    def _measure(self, links: Mapping[int, Link]) -> dict[int, float]:
        squares = self.steps.strength * self.steps.beta.square().sum(dim=1)
        reach = {k: self.steps.scores[k].norm(p=math.inf) for k in links}
        ends = [[*self.seen[k].aminmax(), reach[k], squares[k]] for k in links]
        facts = torch.stack([torch.stack(each) for each in ends]).tolist()
        for link, (low, high, reach, _) in zip(links.values(), facts, strict=True):
            # Of constant inputs one node would do.
            link.low, link.high = low, high if low < high else low + link.prior.kernel.edge
            link.reach = reach
        return {k: 0.5 * self.data.ridge * fact[-1] for k, fact in zip(links, facts, strict=True)}

    def _on_grids(self, sizes: Mapping[int, int]) -> Iterator[tuple[int, Observations]]:
        grids, seen, likelihood = [], self.seen, self.model.likelihood
        for k, size in sizes.items():
            low, high = self.links[k].low, self.links[k].high
            nodes = torch.linspace(low, high, size, dtype=seen.dtype, device=seen.device)
            shares = likelihood.shares(seen[k], self.data.labels[k], self.data.weight, nodes)
            grids.append(torch.cat([nodes[None], shares]))
        # On the host, where small Newton steps are faster than on a GPU.
        here = torch.cat(grids, dim=1).cpu() if grids else seen.new_empty(0)
        for k, grid in zip(sizes, here.split(list(sizes.values()), dim=-1), strict=True):
            yield k, likelihood.on_grid(self.links[k].prior.features, grid[0], grid[1:])

    def _record(self, name: str, values: Tensor) -> None:
        row = self.steps.beta.new_full((len(self.links),), math.nan)
        row[self.active] = values
        self.history[name].append(row)

    def _round(self, k: int) -> _Round:
        rows = (self.steps.beta[k].clone(), self.steps.scores[k].clone(), self.seen[k].clone())
        return copy.copy(self.links[k]), *rows


def _expectation(tables: Sequence[HermiteTable], labels: Tensor) -> LogProbability:
    """Q of section 4.2, a datum: the expected log probabilities of labels, and their slopes."""

    def log_probability(scores: Tensor) -> tuple[Tensor, Tensor]:
        pairs = [by_parts(*each) for each in zip(tables, scores, labels, strict=True)]
        if len(pairs) == 1:
            return pairs[0][0][None], pairs[0][1][None]
        values, slopes = zip(*pairs, strict=True)
        return torch.stack(values), torch.stack(slopes)

    return log_probability


def _slopes(table: HermiteTable, x: Tensor) -> tuple[Tensor, Tensor]:
    return table(x, 0)[1], table(x, 1)[1]
