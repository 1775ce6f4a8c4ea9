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
    if scores is None:
        scores = data.scores(beta, offset)
    at = search.evaluate(beta, offset, scores)
    begin = at.objective
    n_iter = 0
    pulled = data.pull_back(at.slopes) / data.total
    gradient = search.gradient(at, pulled)
    memory = Memory(gradient.along)
    moving = torch.nonzero(gradient.unsettled > tol)[:, 0]
    while n_iter < max_iter and len(moving):
        rows = search.rows_of(moving)
        direction = torch.zeros_like(gradient.along)
        direction[moving] = memory.direction(gradient.along)[moving]
        rise = (gradient.along * direction).sum(1)
        # The scores at the start stay; those of the search move in place.
        at, step = search.line(at, direction, rise, rows, keep=n_iter == 0)
        slopes = at.slopes
        if len(rows) < len(beta):
            slopes = at.slopes[rows]
        pulled = pulled.index_copy(0, rows, data.pull_back(slopes) / data.total)
        before = gradient
        gradient = search.gradient(at, pulled)
        memory.add(step[:, None] * direction, before.along - gradient.along)
        n_iter += 1
        # What rounding errors keep from rising rests, too.
        moving = torch.nonzero((gradient.unsettled > tol) & (step > 0))[:, 0]
    final = at.scores
    if n_iter == 0:
        final = at.scores.clone()
    return WeightFit(
        beta=at.beta,
        offset=at.offset,
        objective=at.objective,
        slope=gradient.slope,
        gain=gradient.gain,
        scores=final,
        start=begin,
        n_iter=n_iter,
    )


@dataclass
class _Point:
    """Weights with their scores, the objectives there, and the slopes of the log probabilities."""

    beta: Float[Tensor, "k d"]
    offset: Float[Tensor, " k"]
    scores: Float[Tensor, "k n"]
    objective: Float[Tensor, " p"]
    slopes: Float[Tensor, "k n"]


@dataclass(frozen=True)
class _Gradient:
    """Slopes along the coordinates, the largest in the weights, and the gain in sight."""

    along: Float[Tensor, "p any"]
    slope: Float[Tensor, " p"]
    gain: Float[Tensor, " p"]

    @property
    def unsettled(self) -> Float[Tensor, " p"]:
        """The larger of slope and gain."""
        return torch.maximum(self.slope, self.gain)


class _Search:
    """The objectives of P problems, of K rows of weights, and their slopes along coordinates."""

    def __init__(
        self,
        data: LinearScores,
        log_probability: LogProbability,
        free_offset: bool,
        strength: Tensor | None,
    ) -> None:
        self._data = data
        self._log_probability = log_probability
        self._free_offset = free_offset
        self._joint = data.n_joint
        self._blocks = data.coordinates.blocks(data.n_joint)
        if strength is None:
            strength = data.centre.new_ones(())
        self._ridge = data.ridge * strength

    def evaluate(self, beta: Tensor, offset: Tensor, scores: Tensor) -> _Point:
        values, slopes = self._log_probability(scores)
        mean = values @ self._data.weight / self._data.total
        objective = self._total(mean - 0.5 * self._ridge * beta.square().sum(1))
        return _Point(
            beta=beta,
            offset=offset,
            scores=scores,
            objective=objective,
            slopes=slopes.mul_(self._data.weight),
        )

    def gradient(self, at: _Point, pulled: Tensor) -> _Gradient:
        """The gradient, from slopes that were pulled back to the weights."""
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
        return _Gradient(along=along, slope=slope, gain=0.5 * along.square().sum(1))

    def rows_of(self, problems: Tensor) -> Tensor:
        """The numbers of the rows of weights that make up some problems."""
        numbers = torch.arange(self._joint, device=problems.device)
        return (problems[:, None] * self._joint + numbers).flatten()

    def line(
        self, at: _Point, direction: Tensor, slope: Tensor, rows: Tensor, *, keep: bool
    ) -> tuple[_Point, Tensor]:
        """The best point along directions, (P, any), that move some rows, and the steps to it."""
        direction = direction.unflatten(1, (self._blocks, -1)).flatten(0, 1)
        moves = self._data.coordinates.weights(direction, self._joint)
        beta = moves[:, :-1]
        offset = moves[:, -1]
        if len(rows) == len(beta):
            change = self._data.scores(beta, offset)
        else:
            change = torch.zeros_like(at.scores)
            change[rows] = self._data.scores(beta[rows], offset[rows])
        moved = at
        gone = torch.zeros_like(offset)
        first = at.scores

        def along(step: Tensor) -> tuple[Tensor, Tensor]:
            """The objectives so far along the directions, and their slopes in the step."""
            nonlocal moved, gone
            step = step.repeat_interleave(self._joint)
            place = moved.scores
            if keep and place is first:
                place = None
            there = torch.addcmul(moved.scores, (step - gone)[:, None], change, out=place)
            del moved.slopes  # its memory serves the next ones
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
        rough = max(tol, _ROUGH)
        few = data.every(step)
        start, _ = adapted_fit(few, log_probability, curvature, tol=rough, max_iter=max_iter)
        del few
    if start is None:
        beta = data.centre.new_zeros((len(data.labels), len(data.centre)))
        offset = beta[:, 0]
    else:
        beta = start.beta
        offset = start.offset
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

    def of_labels(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return loss.log_likelihood(2 * labels - 1, scores)

    def likelihood(some: LinearScores) -> LogProbability:
        return lambda scores: by_parts(of_labels, scores, some.labels)

    def curvature(scores: Tensor) -> Tensor:
        (values,) = by_parts(lambda x: (mean_curvature(loss.log_probabilities(x)[1]),), scores)
        return values

    return adapted_fit(data, likelihood, curvature, tol=tol, max_iter=_FIXED_STEPS, start=start)
