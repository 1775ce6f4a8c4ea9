r"""EM for weights and links together (W&N section 4.2).

E-step: with the scores x = beta . z held, the Laplace posterior of nu. Each datum is seen as one
number, so the data are spread on a grid, and the cost does not grow with their number. M-step: with
the posterior held, raise the penalised expected log likelihood in beta.

Were the posterior exact, every round would raise the marginal likelihood of beta. Laplace's is not,
and a round may lower it; the record shows where.

A link that is fitted to held-out scores is flatter than the training scores ask for. Weights grow
against that round by round, and with few data per column their scores would leave the period of
the kernel. So there scores keep their size: after an M-step weights are divided by what their
scores grew by, and their penalty counts that much squared the more. That is the same objective in
other units of the score.

Links see one set of scores then, and weights another: no objective rises in every round. What
rounds lead to is a fixed point, where the link is that of the scores which its weights would have
had without each datum. Where rounds would go in circles around it, they go a part of the way. With
few data a column the fixed point can be worse than where rounds began, and the held-out evidence
knows: it falls. So EM ends when it stays clearly below what it was, with the round where it was
highest. There the mean of Laplace's approximation is poor, too, under a prior whose f and -f are
one model, and the posterior is the nearest Gaussian instead.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from tqdm import tqdm

from bayesloss.learning.inference.laplace import Posterior, approximate
from bayesloss.learning.inference.likelihoods import Bernoulli, Observations
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode
from bayesloss.learning.inference.posterior_draws import ordered_root
from bayesloss.learning.inference.variational import nearest
from bayesloss.learning.links.tables import (
    HermiteTable,
    enough_nodes,
    expected_log_probabilities,
    moved,
    table_nodes,
)
from bayesloss.learning.sources.priors import SourcePrior, trigonometric
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.learning.weights.leave_one_out import LeaveOneOut
from bayesloss.learning.weights.linear_scores import LinearScores, Slopes, by_parts, mean_curvature
from bayesloss.learning.weights.weight_search import (
    LogProbability,
    WeightFit,
    adapted_fit,
    maximise_weights,
)
from bayesloss.proper_losses import ProperLoss

__all__ = ["FIXED_LINK", "LinkFit", "fit_fixed_link", "fit_links", "grid_size"]

FIXED_LINK = "the fit with the fixed link"  # in the list of what did not settle

_NEWTON_STEPS = 100  # of an E-step; from the mode of the round before, five or six suffice
_WEIGHT_STEPS = 10  # L-BFGS iterations between two E-steps: the posterior moves meanwhile
_ROOM = 1.5  # how far beyond the scores an M-step finds the expectations tabulated
# Priors are compared on a grid of so many nodes, at modes with so many nats to gain: differences of
# log evidences hardly feel either.
_COARSE = 128
_NEAR = 1e-6
_BEHIND = 1.0  # nats by which a prior has no chance in later rounds: evidences move together
_ANYWHERE = 3  # rounds in which weights go all the way
_STRAIGHT = 0.5  # cosine of the angle below which the way to the next fit turns
_SHORTER = 0.7  # part of the way before up to which it is shorter
# Log odds of the size 4 that move by a part m of it change a loss by at most (4 m)^2 / 8, which is
# half of tol at this many square roots of tol.
_MOVED = 0.5
_PATIENCE = 3  # rounds in a row that may find the held-out evidence so many nats below the best,
_STRONG = 3.0  # which by the usual scale of Bayes factors is strong evidence,
_FEW_A_COLUMN = 5.0  # where rows a column are fewer; sampled leverages of many rows err by more
_FIXED_STEPS = 1000  # L-BFGS iterations for the fixed link


@dataclass(frozen=True)
class LinkFit:
    """What EM found for K problems that share their inputs.

    Attributes
    ----------
    beta : Tensor of shape (K, d)
    scores : Tensor of shape (K, n)
    seen : Tensor of shape (K, n)
        The scores that the links were fitted to.
    posteriors : list of Posterior
    draws : list of Tensor of shape (S, M + 1)
        From each posterior.
    unsettled : tuple of str
        What did not converge.
    history : dict of str to list of Tensor of shape (K,)
        "log_evidence" after each E-step; "expected_before", "expected" around, and "change" after
        each M-step. NaN once a problem has settled.
    """

    beta: Tensor
    scores: Tensor
    seen: Tensor
    posteriors: list[Posterior]
    draws: list[Tensor]
    unsettled: tuple[str, ...]
    history: dict[str, list[Tensor]] = field(repr=False)


def fit_links(
    data: LinearScores,
    likelihood: Bernoulli,
    prior_of: Callable[[Tensor], SourcePrior[TrigonometricKernel]],
    noise: Tensor,
    *,
    tol: float,
    max_iter: int,
    ordered: bool = False,
    family: Callable[[SourcePrior], Sequence[SourcePrior]] | None = None,
    held_out: LeaveOneOut | None = None,
    held_ends: bool = False,
    fixed: WeightFit | None = None,
    progress: bool = False,
    watch: Callable[[Tensor, list[Posterior]], None] | None = None,
) -> LinkFit:
    """Fit the fixed link, then alternate between links and weights.

    Parameters
    ----------
    data : LinearScores
    likelihood : Bernoulli
    prior_of : callable
        Makes the prior of a link from the scores of the fixed link, of shape (n,); its kernel is a
        TrigonometricKernel.
    noise : Tensor of shape (S, M + 1)
        Standard normal numbers that become draws from each posterior.
    ordered : bool, default=False
        Whether the first columns of the noise are to move the link most, as points of low
        discrepancy ask for.
    tol : float
        EM ends when no problem's log evidence, less the penalty, changes by more than tol nats a
        datum in a round; see also :func:`maximise_weights`. With held-out scores it also ends when
        the log evidence alone does not, nor scores by more than a part sqrt(tol) / 2 of their size.
        And with few data a column it ends when three rounds found the log evidence clearly lower,
        and goes back to where it was highest.
    max_iter : int
        The largest number of M-steps; a last E-step follows them.
    family : callable, optional
        Takes the prior of a link to those among which Laplace's evidence chooses one in rounds
        1, 2, 4, 8, ...; all with the same features and parameters, the stiffest last. Those that
        are more than a nat behind are not looked at again.
    held_out : LeaveOneOut, optional
        Makes the scores that links are fitted to; without it, they are the training scores.
    held_ends : bool, default=False
        Whether links are constant beyond their kernel's period, for scores far out.
    fixed : WeightFit, optional
        The fit with the fixed link, where it is known already.
    progress : bool, default=False
        Whether a progress bar is shown.
    watch : callable, optional
        Called after each E-step with the weights, (K, d), and the posteriors given them.

    Returns
    -------
    LinkFit
    """
    if fixed is None:
        fixed, data = _fit_fixed_link(data, likelihood.loss, tol)  # section 4.2, by theorem 4
    unsettled = [] if fixed.settled(tol) else [FIXED_LINK]
    # The scores are without the offset, with which nu_0 begins.
    walk = _Walk(fixed.beta.clone(), fixed.scores - fixed.offset[:, None], data.weight)
    each = by_parts(lambda x: likelihood.loss.log_probabilities(x)[1].unbind(), fixed.scores)
    slopes: dict[int, Slopes] = dict(enumerate(zip(*each, strict=True)))
    del each
    offset, links = fixed.offset.cpu(), []
    del fixed  # with its scores
    for x, nu_0 in zip(walk.scores.cpu(), offset, strict=True):
        prior = prior_of(x)
        start = torch.cat([prior.start(x)[:-1], nu_0[None]])
        links.append(
            _Link(prior, start, [_Rival(each) for each in family(prior)] if family else [])
        )
    fitted_to = torch.empty_like(walk.scores)
    few = held_out is not None and data.total < _FEW_A_COLUMN * walk.beta.shape[1]
    best = _BestRounds(len(links))
    history: dict[str, list[Tensor]] = {
        name: [] for name in ("log_evidence", "expected_before", "expected", "change")
    }

    def record(name: str, problems: list[int], values: Tensor) -> None:
        row = walk.beta.new_full((len(links),), math.nan)
        row[problems] = values
        history[name].append(row)

    active = list(range(len(links)))
    with tqdm(total=max_iter + 1, desc="EM", unit="round", disable=not progress) as bar:
        while True:
            rounds = len(history["log_evidence"]) + 1
            if held_out is not None:
                strength, step = torch.stack([walk.fit_strength, walk.step]).tolist()
                held_out.prepare(slopes, strength)
            for k in active:
                seen = fitted_to[k].copy_(walk.scores[k])
                if held_out is not None:
                    seen.copy_(held_out(k, seen, slopes[k], strength[k], step[k]))
                if held_out is not None or held_ends:
                    # Beyond the edges the kernel repeats itself.
                    edge = links[k].prior.kernel.edge
                    seen.clamp_(-edge, edge)
            choose = rounds & (rounds - 1) == 0
            some = {k: links[k] for k in active}
            _update_links(some, data, likelihood, fitted_to, walk, choose, few)  # E-step
            record(
                "log_evidence",
                active,
                walk.beta.new_tensor([links[k].posterior.log_evidence for k in active]),
            )
            if watch is not None:
                watch(walk.beta.clone(), [link.posterior for link in links])
            bar.update()
            bar.set_postfix(unsettled=len(active))
            if few:
                best.look(active, walk, fitted_to, links)
            # Held-out scores keep their size. Where they stand still, and the evidence with them,
            # all that drifts is by how much their penalty counts.
            still = (walk.moved < _MOVED * math.sqrt(tol)).tolist()
            active = [
                k
                for k in active
                if links[k].gain >= tol
                and not (links[k].drift < tol and still[k])
                and best.age[k] < _PATIENCE
            ]
            if not active or len(history["log_evidence"]) > max_iter:
                break
            nodes_of = enough_nodes if family else table_nodes
            moving = [links[k] for k in active]
            tables = [
                expected_log_probabilities(
                    link.prior,
                    likelihood.loss,
                    _draws(link, noise, ordered),
                    nodes_of(link.prior, _ROOM * link.reach),
                )
                for link in moving
            ]
            if held_ends:
                ends = [link.prior.kernel.edge for link in moving]
                tables = [table.held(end) for table, end in zip(tables, ends, strict=True)]
            tables = moved(tables, data.centre.device)
            slopes.clear()  # the next ones are those where the M-step ends
            fit = _raise_weights(  # M-step
                data.of(active),
                tables,
                walk.beta[active],
                _some(walk.scores, active),
                walk.strength[active],
                tol,
            )
            size = walk.beta[active].norm(dim=1).clamp_min(torch.finfo(data.centre.dtype).tiny)
            record("expected_before", active, fit.start)
            record("expected", active, fit.objective)
            record("change", active, (fit.beta - walk.beta[active]).norm(dim=1) / size)
            slopes = {
                k: by_parts(partial(_slopes, table), row)
                for k, table, row in zip(active, tables, fit.scores, strict=True)
            }
            factor = walk.go(active, fit, rounds, held_out is not None)
            for k, f in zip(active, factor, strict=True):
                for each in slopes[k]:
                    each.div_(f)
            del fit
    best.restore(walk, fitted_to, links)
    if active:
        gain = max(links[k].gain for k in active)
        unsettled.append(f"EM (its last round still changed the evidence by {gain:.2g} a datum)")
    unsettled += [f"the E-step of problem {k}" for k, link in enumerate(links) if not link.found]
    return LinkFit(
        beta=walk.beta,
        scores=walk.scores,
        seen=fitted_to,
        posteriors=[link.posterior for link in links],
        draws=[_draws(link, noise, ordered) for link in links],
        unsettled=tuple(unsettled),
        history=history,
    )


def grid_size(prior: SourcePrior[TrigonometricKernel], width: float, n: float) -> int:
    """How many nodes scores of this width need for n data, so that the grid is not felt.

    Linear weights with spacing h change the log likelihood of a datum by h^2/12 times its second
    derivative in x, on average. For n data that moves the mode by about sqrt(n) (h/l)^2 / 12
    posterior standard deviations, where l = log(a) / (pi c) is the scale on which the kernel's
    functions vary. A thousandth of one is allowed, so the grid grows with the fourth root of n.

    Raises
    ------
    TypeError
        If the prior has another basis than a TrigonometricKernel.
    """
    kernel = trigonometric(prior, "whose a and c say how fine the grid of scores must be")
    scale = math.log(float(kernel.a)) / (math.pi * kernel.c)
    return max(64, math.ceil(width / scale * n**0.25 / math.sqrt(0.012)) + 1)


def fit_fixed_link(
    data: LinearScores, loss: ProperLoss, tol: float, start: WeightFit | None = None
) -> WeightFit:
    """Weights and offsets for nu(x) = x: generalised linear models, logistic for the log loss.

    The search begins where ``start`` ended, or at zero.
    """
    return _fit_fixed_link(data, loss, tol, start)[0]


def _fit_fixed_link(
    data: LinearScores, loss: ProperLoss, tol: float, start: WeightFit | None = None
) -> tuple[WeightFit, LinearScores]:
    """The fit, and the same data in the coordinates that served it best."""

    def likelihood(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return loss.log_likelihood(2 * labels - 1, scores)

    def log_probability(data: LinearScores) -> LogProbability:
        return lambda scores: by_parts(likelihood, scores, data.labels)

    def curvature(scores: Tensor) -> Tensor:
        return by_parts(lambda x: (mean_curvature(loss.log_probabilities(x)[1]),), scores)[0]

    return adapted_fit(
        data, log_probability, curvature, tol=tol, max_iter=_FIXED_STEPS, start=start
    )


@dataclass(frozen=True)
class _Rival:
    """A prior that the evidence may choose, and the mode under it."""

    prior: SourcePrior[TrigonometricKernel]
    Gamma: Tensor | None = None
    evidence: float = math.nan


@dataclass
class _Link:
    """The state of one problem between the rounds."""

    prior: SourcePrior[TrigonometricKernel]
    Gamma: Tensor  # where the next search for the mode begins
    rivals: list[_Rival]  # the stiffest last
    posterior: Posterior = field(init=False)
    low: float = math.nan  # the range of the scores that it was fitted to
    high: float = math.nan
    reach: float = math.nan  # of the training scores, in absolute value
    found: bool = False  # whether the last search ended at a mode
    evidence: float = -math.inf  # its logarithm, in nats a datum
    value: float = -math.inf  # the same less the penalty
    drift: float = math.inf  # by how much the one and
    gain: float = math.inf  # the other changed in the last round


class _Walk:
    """Weights on their way from fit to fit, a row a problem.

    Where the way ahead turns, and is hardly shorter, a problem goes only 2/3 of it from then on,
    then 1/2, 2/5, ...: rounds may go in circles otherwise. The first few may go anywhere.
    """

    def __init__(self, beta: Tensor, scores: Tensor, weight: Tensor) -> None:
        self.beta, self.scores = beta, scores
        self.strength = torch.ones_like(beta[:, 0])  # of the penalty
        self.fit_strength = self.strength.clone()  # where the last fits ended
        self.step = self.strength.clone()
        self.moved = torch.full_like(self.strength, math.inf)  # a part of held-out scores' size
        self._weight, self._ahead = weight, scores[:, :0]  # no way as yet

    def _size(self, scores: Tensor) -> Tensor:
        return (scores.square() @ self._weight).sqrt()

    def go(self, active: list[int], fit: WeightFit, rounds: int, held_out: bool) -> Tensor:
        """Go towards where a fit ended; by what its weights are to be multiplied, (K,)."""
        if not held_out:
            self.beta[active], self.scores[active] = fit.beta, fit.scores
            return torch.ones_like(fit.objective)
        scores = _some(self.scores, active)
        size = self._size(scores)
        factor = size / self._size(fit.scores)
        factor = torch.where((factor > 0) & factor.isfinite(), factor, 1.0)
        ahead = fit.scores.mul_(factor[:, None]).sub_(scores)
        way = self._size(ahead)
        if rounds > _ANYWHERE:
            before = _some(self._ahead, active)
            way_before = self._size(before)
            turns = (ahead * before) @ self._weight < _STRAIGHT * way * way_before
            step = self.step[active]
            slower = step / (1 + step / 2)
            self.step[active] = torch.where(turns & (way > _SHORTER * way_before), slower, step)
        step = self.step[active]
        self.moved[active] = torch.where(size > 0, step * way / size, 0.0)
        self.fit_strength[active] = self.strength[active] / factor**2
        self.strength[active] *= factor ** (-2 * step)
        self.beta[active] += step[:, None] * (factor[:, None] * fit.beta - self.beta[active])
        for k, part, row in zip(active, step, ahead, strict=True):
            self.scores[k].addcmul_(part, row)
        if rounds >= _ANYWHERE:  # from then on the next way is compared with it
            if not self._ahead.numel():
                self._ahead = torch.zeros_like(self.scores)
            self._ahead[active] = ahead
        return factor


class _BestRounds:
    """For each problem, the round after whose E-step the held-out evidence was highest."""

    def __init__(self, n_problems: int) -> None:
        self.age = [0] * n_problems  # rounds in a row that were clearly worse
        self._kept: dict[int, tuple[Posterior, float, float, Tensor, Tensor, Tensor]] = {}

    def look(self, active: list[int], walk: _Walk, seen: Tensor, links: list[_Link]) -> None:
        """Keep what is better than all before."""
        for k in active:
            link = links[k]
            if k in self._kept and link.posterior.log_evidence <= self._kept[k][0].log_evidence:
                self.age[k] = self.age[k] + 1 if self._clearly_worse(k, link) else 0
                continue
            self.age[k] = 0
            rows = (walk.beta[k].clone(), walk.scores[k].clone(), seen[k].clone())
            self._kept[k] = (link.posterior, link.low, link.high, *rows)

    def restore(self, walk: _Walk, seen: Tensor, links: list[_Link]) -> None:
        """Go back to that round where the last is clearly worse."""
        for k, (posterior, low, high, beta, scores, fitted_to) in self._kept.items():
            link = links[k]
            if self._clearly_worse(k, link):
                link.posterior, link.low, link.high = posterior, low, high
                walk.beta[k], walk.scores[k], seen[k] = beta, scores, fitted_to

    def _clearly_worse(self, k: int, link: _Link) -> bool:
        return link.posterior.log_evidence < self._kept[k][0].log_evidence - _STRONG


def _update_links(
    links: Mapping[int, _Link],
    data: LinearScores,
    likelihood: Bernoulli,
    seen: Tensor,
    walk: _Walk,
    choose: bool,
    few: bool,
) -> None:
    """The E-steps of some problems: Newton's method on grids, from the modes of the round before.

    What has the size of the data is done where the data are. What is seen of it, extremes and sums
    on grids, comes to the host for all problems together, and the host waits for nothing else: a
    Newton step takes matrices of M + 1 rows, which a processor solves before a GPU has begun.
    """
    squares = walk.strength * walk.beta.square().sum(dim=1)
    facts = [
        torch.stack([*seen[k].aminmax(), walk.scores[k].norm(p=math.inf), squares[k]])
        for k in links
    ]
    penalties = {}
    for (k, link), (low, high, reach, square) in zip(
        links.items(), torch.stack(facts).tolist(), strict=True
    ):
        if low == high:  # constant inputs: one node would do
            high = low + link.prior.kernel.edge
        link.low, link.high, link.reach = low, high, reach
        penalties[k] = 0.5 * data.ridge * square

    def observed(sizes: Mapping[int, int]) -> Iterator[tuple[int, Observations]]:
        """Problems, and their data on grids of so many nodes."""
        grids = []
        for k, size in sizes.items():
            nodes = torch.linspace(
                links[k].low, links[k].high, size, dtype=seen.dtype, device=seen.device
            )
            shares = likelihood.shares(seen[k], data.labels[k], data.weight, nodes)
            grids.append(torch.cat([nodes[None], shares]))
        here = torch.cat(grids, dim=1).cpu() if grids else seen.new_empty(0)
        for k, grid in zip(sizes, here.split(list(sizes.values()), dim=-1), strict=True):
            yield k, likelihood.on_grid(links[k].prior.features, grid[0], grid[1:])

    if choose:
        for k, some in observed({k: _COARSE for k in links if len(links[k].rivals) > 1}):
            _choose_prior(links[k], likelihood, some)
    sizes = {k: grid_size(v.prior, v.high - v.low, data.total) for k, v in links.items()}
    for k, every in observed(sizes):
        link, joint = links[k], LogJoint(links[k].prior, likelihood, every)  # eq. (12), given beta
        mode = find_mode(joint, link.Gamma, max_iter=_NEWTON_STEPS)
        link.Gamma, link.found = mode.Gamma, mode.converged
        if few and mode.converged and link.prior.n_twins > 1:
            link.posterior = nearest(joint, mode)[0]
        else:
            link.posterior = approximate(joint, mode, with_bound=False)  # q(nu | beta), section 4.2
        evidence = link.posterior.log_evidence / data.total
        link.evidence, link.drift = evidence, abs(evidence - link.evidence)
        value = evidence - penalties[k]
        link.value, link.gain = value, abs(value - link.value)


def _choose_prior(link: _Link, likelihood: Bernoulli, data: Observations) -> None:
    """Give the link the prior with the highest evidence, and the mode there.

    A search for a mode begins at the one that this prior had before, or its successor has.
    """
    found: list[_Rival] = []
    start = link.Gamma
    for rival in reversed(link.rivals):
        joint = LogJoint(rival.prior, likelihood, data)
        start = start if rival.Gamma is None else rival.Gamma
        mode = find_mode(joint, start, max_iter=_NEWTON_STEPS, exact=_NEAR)
        if mode.least_curvature > 0:
            start = mode.Gamma
            evidence = float(joint.log_evidence(start, mode.curvature))
            found.append(_Rival(rival.prior, start, evidence))
    if not found:
        raise ValueError(f"expected a mode under one of {len(link.rivals)} priors, got none")
    best = max(found, key=lambda rival: rival.evidence)
    link.prior, link.Gamma = best.prior, best.Gamma
    link.rivals = [r for r in reversed(found) if r.evidence >= best.evidence - _BEHIND]


def _draws(link: _Link, noise: Tensor, ordered: bool) -> Tensor:
    posterior = link.posterior
    root = ordered_root(posterior, link.low, link.high) if ordered else posterior.root
    return posterior.mode + noise @ root.T  # nu^(s) of section 4.2


def _raise_weights(
    data: LinearScores,
    tables: list[HermiteTable],
    beta: Tensor,
    scores: Tensor,
    strength: Tensor,
    tol: float,
) -> WeightFit:
    """The M-step: a few L-BFGS iterations on the tabulated expectations."""

    def log_probability(scores: Tensor) -> tuple[Tensor, Tensor]:
        pairs = [by_parts(*each) for each in zip(tables, scores, data.labels, strict=True)]
        if len(pairs) == 1:
            return pairs[0][0][None], pairs[0][1][None]
        values, slopes = zip(*pairs, strict=True)
        return torch.stack(values), torch.stack(slopes)

    return maximise_weights(
        data,
        log_probability,
        beta,
        torch.zeros_like(beta[:, 0]),
        free_offset=False,
        tol=tol,
        max_iter=_WEIGHT_STEPS,
        scores=scores,
        strength=strength,
    )


def _slopes(table: HermiteTable, x: Tensor) -> tuple[Tensor, Tensor]:
    """Of the expected log probabilities of both labels."""
    return table(x, 0)[1], table(x, 1)[1]


def _some(rows: Tensor, chosen: list[int]) -> Tensor:
    """Some of the rows: themselves where all are chosen, else a copy."""
    return rows if len(chosen) == len(rows) else rows[chosen]
