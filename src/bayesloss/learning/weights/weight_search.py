"""The search for weights whose scores make labels probable: a penalised likelihood's maximum.

The weights of problems k that share their inputs maximise, each for itself or as one,

    mean_n log p(y_nk given x_nk) - (beta_k . beta_k) / (2 C n),

x the scores of ``linear_scores``, by L-BFGS for all k together, along the data's coordinates.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.lbfgs import Memory, step_sizes
from bayesloss.learning.weights.linear_scores import LinearScores, by_parts, mean_curvature
from bayesloss.proper_losses import ProperLoss

_STRIDE = 8  # where data are many, every eighth datum shows where a fit to all may begin,
_FEW = 4096  # but no fewer of them than that
_ROUGH = 5e-4  # tolerance of such a fit
_FIXED_STEPS = 1000  # L-BFGS iterations for the fixed link

# Takes scores of shape (K, n) to the log probabilities of the labels and their slopes.
LogProbability = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class WeightFit:
    """Where a search for K rows of weights, which make up P problems, ended; in nats a datum."""

    beta: Float[Tensor, "k d"]
    offset: Float[Tensor, " k"]
    objective: Float[Tensor, " p"]
    slope: Float[Tensor, " p"]  # the largest derivative in a weight
    gain: Float[Tensor, " p"]  # the rise that the expected curvature still promises
    scores: Float[Tensor, "k n"]
    start: Float[Tensor, " p"]
    n_iter: int

    def settled(self, tol: float) -> bool:
        """Whether neither slope nor gain, which does not depend on units, exceeds tol."""
        return max(float(self.slope.max()), float(self.gain.max())) <= tol

    def only(self, k: int) -> "WeightFit":
        """One problem's part of a fit of several, each with one row of weights."""
        rows = {name: value[k : k + 1] for name, value in vars(self).items() if name != "n_iter"}
        return WeightFit(**rows, n_iter=self.n_iter)


def maximise_weights(
    data: LinearScores,
    log_probability: LogProbability,
    beta: Float[Tensor, "k d"],
    offset: Float[Tensor, " k"],
    *,
    free_offset: bool,
    tol: float,
    max_iter: int,
    scores: Float[Tensor, "k n"] | None = None,
    strength: Float[Tensor, " k"] | None = None,
) -> WeightFit:
    """Raise each problem's penalised likelihood until slopes and gains are below tol.

    ``scores`` are those at the start, and ``strength`` multiplies the penalty.
    """
    search = _Search(data, log_probability, free_offset, strength)
    at = search.evaluate(beta, offset, data.scores(beta, offset) if scores is None else scores)
    begin, n_iter = at.objective, 0
    pulled = data.pull_back(at.slopes) / data.total
    along, slope, gain = search.gradients(at, pulled)
    memory = Memory(along)
    moving = torch.nonzero(torch.maximum(slope, gain) > tol)[:, 0]
    while n_iter < max_iter and len(moving):
        rows = search.rows_of(moving)
        direction = torch.zeros_like(along)
        direction[moving] = memory.direction(along)[moving]
        # The scores at the start stay; those of the search move in place.
        slope = (along * direction).sum(1)
        at, step = search.line(at, direction, slope, rows, keep=n_iter == 0)
        slopes = at.slopes if len(rows) == len(beta) else at.slopes[rows]
        pulled = pulled.index_copy(0, rows, data.pull_back(slopes) / data.total)
        before = along
        along, slope, gain = search.gradients(at, pulled)
        memory.add(step[:, None] * direction, before - along)
        n_iter += 1
        # What rounding errors keep from rising rests, too.
        moving = torch.nonzero((torch.maximum(slope, gain) > tol) & (step > 0))[:, 0]
    final = at.scores.clone() if n_iter == 0 else at.scores
    return WeightFit(at.beta, at.offset, at.objective, slope, gain, final, begin, n_iter)


@dataclass
class _Point:
    beta: Tensor
    offset: Tensor
    scores: Tensor
    objective: Tensor
    slopes: Tensor


class _Search:
    """The objectives of P problems, of K rows of weights, and their slopes along coordinates."""

    def __init__(
        self,
        data: LinearScores,
        log_probability: LogProbability,
        free_offset: bool,
        strength: Tensor | None,
    ) -> None:
        self._data, self._log_probability = data, log_probability
        self._free_offset, self._joint = free_offset, data.n_joint
        self._blocks = data.coordinates.blocks(data.n_joint)
        one = data.centre.new_ones(())
        self._ridge = data.ridge * (one if strength is None else strength)

    def evaluate(self, beta: Tensor, offset: Tensor, scores: Tensor) -> _Point:
        values, slopes = self._log_probability(scores)
        mean = values @ self._data.weight / self._data.total
        objective = self._total(mean - 0.5 * self._ridge * beta.square().sum(1))
        return _Point(beta, offset, scores, objective, slopes.mul_(self._data.weight))

    def gradients(self, at: _Point, pulled: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Along the coordinates, (P, any); the largest in the weights; the gain in sight."""
        gradient = pulled - self._ridge[..., None] * at.beta
        shift = at.slopes.sum(1) / self._data.total
        if not self._free_offset:
            shift = torch.zeros_like(shift)
        both = torch.cat([gradient, shift[:, None]], dim=1)
        along = self._data.coordinates.slopes(both, self._joint)
        along[:, -1] *= self._free_offset
        along = along.unflatten(0, (-1, self._blocks)).flatten(1)
        slope = torch.maximum(gradient.abs().amax(1), shift.abs())
        slope = slope.unflatten(0, (-1, self._joint)).amax(1)
        return along, slope, 0.5 * along.square().sum(1)

    def rows_of(self, problems: Tensor) -> Tensor:
        numbers = torch.arange(self._joint, device=problems.device)
        return (problems[:, None] * self._joint + numbers).flatten()

    def line(
        self, at: _Point, direction: Tensor, slope: Tensor, rows: Tensor, *, keep: bool
    ) -> tuple[_Point, Tensor]:
        """The best point along directions, (P, any), that move some rows, and the steps to it."""
        direction = direction.unflatten(1, (self._blocks, -1)).flatten(0, 1)
        moves = self._data.coordinates.weights(direction, self._joint)
        beta, offset = moves[:, :-1], moves[:, -1]
        if len(rows) == len(beta):
            change = self._data.scores(beta, offset)
        else:
            change = torch.zeros_like(at.scores)
            change[rows] = self._data.scores(beta[rows], offset[rows])
        moved, gone, first = at, torch.zeros_like(offset), at.scores

        def along(step: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal moved, gone
            step = step.repeat_interleave(self._joint)
            own = None if keep and moved.scores is first else moved.scores
            there = torch.addcmul(moved.scores, (step - gone)[:, None], change, out=own)
            del moved.slopes
            moved = self.evaluate(at.beta + step[:, None] * beta, at.offset + step * offset, there)
            gone = step
            rise = torch.einsum("kn,kn->k", moved.slopes, change) / self._data.total
            rise = rise - self._ridge * (moved.beta * beta).sum(1)
            return moved.objective, self._total(rise)

        step = step_sizes(along, at.objective, slope)
        return moved, step

    def _total(self, rows: Tensor) -> Tensor:
        return rows.unflatten(0, (-1, self._joint)).sum(1)


def adapted_fit(
    data: LinearScores,
    log_probability: Callable[[LinearScores], LogProbability],
    curvature: Callable[[Tensor], Tensor],
    *,
    tol: float,
    max_iter: int,
    start: WeightFit | None = None,
) -> tuple[WeightFit, LinearScores]:
    """Weights and offsets, and the data in the coordinates that served the search best.

    With many data a rough fit to an eighth of them shows where to begin and the Hessian there.
    """
    step = max(1, min(_STRIDE, len(data.inputs) // _FEW))
    adapts = data.adaptable and (step > 1 or tol < _ROUGH)
    if start is None and adapts:
        start = adapted_fit(
            data.every(step), log_probability, curvature, tol=max(tol, _ROUGH), max_iter=max_iter
        )[0]  # without the few data
    beta = data.centre.new_zeros((len(data.labels), len(data.centre)))
    beta, offset = (beta, beta[:, 0]) if start is None else (start.beta, start.offset)
    scores = data.scores(beta, offset)
    if adapts:
        data = data.adapted(curvature(scores))
    likelihood = log_probability(data)
    fit = maximise_weights(
        data, likelihood, beta, offset, free_offset=True, tol=tol, max_iter=max_iter, scores=scores
    )
    return fit, data


def fit_fixed_link(
    data: LinearScores, loss: ProperLoss, tol: float, start: WeightFit | None = None
) -> tuple[WeightFit, LinearScores]:
    """Weights and offsets for nu(x) = x, as in logistic regression, and the adapted data."""

    def each(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return loss.log_likelihood(2 * labels - 1, scores)

    def likelihood(some: LinearScores) -> LogProbability:
        return lambda scores: by_parts(each, scores, some.labels)

    def curvature(scores: Tensor) -> Tensor:
        return by_parts(lambda x: (mean_curvature(loss.log_probabilities(x)[1]),), scores)[0]

    return adapted_fit(data, likelihood, curvature, tol=tol, max_iter=_FIXED_STEPS, start=start)
