r"""The search for weights whose scores make labels probable: a penalised likelihood's maximum.

Weights of problems k that share their inputs maximise, each for itself or as one,

    mean_n log p(y_nk given x_nk) - (beta_k . beta_k) / (2 C n),

x the scores of :class:`~bayesloss.learning.weights.linear_scores.LinearScores`, by L-BFGS for all k
together, along the coordinates that come with the data.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesloss.lbfgs import Memory, step_sizes
from bayesloss.learning.weights.linear_scores import LinearScores

__all__ = ["LogProbability", "WeightFit", "adapted_fit", "maximise_weights"]

_STRIDE = 8  # where data are many, each so manieth shows where a fit to all may begin,
_FEW = 4096  # so many of them at least
_ROUGH = 5e-4  # tolerance of such a fit

# Takes scores of shape (K, n) to the log probabilities of the labels and their slopes.
LogProbability = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class WeightFit:
    """Where a search for weights ended.

    Attributes
    ----------
    beta : Tensor of shape (K, d)
    offset : Tensor of shape (K,)
    objective : Tensor of shape (P,)
        Mean log probability less the penalty, in nats a datum. P is K, or less where rows of
        weights make up a problem together.
    slope : Tensor of shape (P,)
        The largest derivative of that with respect to a weight, in absolute value.
    gain : Tensor of shape (P,)
        How much the objective would rise if it were quadratic with the curvature expected.
    scores : Tensor of shape (K, n)
        A tensor of its own.
    start : Tensor of shape (P,)
        The objective where the search began.
    n_iter : int
    """

    beta: Tensor
    offset: Tensor
    objective: Tensor
    slope: Tensor
    gain: Tensor
    scores: Tensor
    start: Tensor
    n_iter: int

    def settled(self, tol: float) -> bool:
        """Whether neither slope nor gain, which does not depend on units, exceeds tol."""
        return max(float(self.slope.max()), float(self.gain.max())) <= tol


def maximise_weights(
    data: LinearScores,
    log_probability: LogProbability,
    beta: Tensor,
    offset: Tensor,
    *,
    free_offset: bool,
    tol: float,
    max_iter: int,
    scores: Tensor | None = None,
    strength: Tensor | None = None,
) -> WeightFit:
    """Raise the penalised likelihood of every problem until all have settled.

    Each problem has a memory and a step of its own, and rests once it has settled. Common are the
    two passes over the inputs that an iteration takes: one for the scores along all directions, one
    for all gradients. A search along a direction sees scores alone, which are linear in the step.

    Parameters
    ----------
    data : LinearScores
    log_probability : callable
        Takes scores (K, n) to the log probabilities of the labels and their derivatives, (K, n),
        which are new tensors.
    beta : Tensor of shape (K, d)
    offset : Tensor of shape (K,)
        Where the search begins.
    free_offset : bool
        Whether the offset is fitted, too.
    tol : float
        The largest derivative of the objective, and the largest gain in sight, at which the search
        ends.
    max_iter : int
        The largest number of L-BFGS iterations; with 0 the start is evaluated.
    scores : Tensor of shape (K, n), optional
        Those where the search begins, if they are known; they stay as they are.
    strength : Tensor of shape (K,), optional
        How many times the penalty counts for each row of weights.

    Returns
    -------
    WeightFit
    """
    together = data.together
    ridge = data.ridge * (torch.ones_like(offset) if strength is None else strength)

    def total(rows: Tensor) -> Tensor:
        return rows.unflatten(0, (-1, together)).sum(1)

    def evaluate(beta: Tensor, offset: Tensor, scores: Tensor) -> _Point:
        values, slopes = log_probability(scores)
        mean = values @ data.weight / data.total
        objective = total(mean - 0.5 * ridge * beta.square().sum(1))
        return _Point(beta, offset, scores, objective, slopes.mul_(data.weight))

    def pull_back(slopes: Tensor) -> Tensor:
        return data.pull_back(slopes) / data.total

    def gradients(at: _Point, pulled: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Along the coordinates, (P, any); the largest in the weights; the gain in sight."""
        gradient = pulled - ridge[:, None] * at.beta
        shift = at.slopes.sum(1) / data.total if free_offset else torch.zeros_like(offset)
        along = data.slopes(torch.cat([gradient, shift[:, None]], dim=1))
        along[:, -1] *= free_offset
        along = along.unflatten(0, (-1, data.blocks)).flatten(1)
        slope = torch.maximum(gradient.abs().amax(1), shift.abs())
        slope = slope.unflatten(0, (-1, together)).amax(1)
        return along, slope, 0.5 * along.square().sum(1)

    def search(at: _Point, direction: Tensor, slope: Tensor) -> tuple[_Point, Tensor]:
        """The best point found along the directions, (P, any), and the steps there."""
        moves = data.weights(direction.unflatten(1, (data.blocks, -1)).flatten(0, 1))
        beta, offset = moves[:, :-1], moves[:, -1]
        if len(rows) == len(beta):
            change = data.scores(beta, offset)
        else:
            change = torch.zeros_like(at.scores)
            change[rows] = data.scores(beta[rows], offset[rows])
        moved, gone = at, torch.zeros_like(offset)

        def along(step: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal moved, gone
            step = step.repeat_interleave(together)
            # There is one tensor of scores, which moves, beside the one that was given.
            own = None if moved.scores is scores else moved.scores
            there = torch.addcmul(moved.scores, (step - gone)[:, None], change, out=own)
            del moved.slopes
            moved = evaluate(at.beta + step[:, None] * beta, at.offset + step * offset, there)
            gone = step
            rise = torch.einsum("kn,kn->k", moved.slopes, change) / data.total
            return moved.objective, total(rise - ridge * (moved.beta * beta).sum(1))

        step = step_sizes(along, at.objective, slope)
        return moved, step

    at = evaluate(beta, offset, data.scores(beta, offset) if scores is None else scores)
    start, n_iter = at.objective, 0
    pulled = pull_back(at.slopes)
    along, slope, gain = gradients(at, pulled)
    memory, row_numbers = Memory(along), torch.arange(together, device=along.device)
    moving = torch.nonzero(torch.maximum(slope, gain) > tol)[:, 0]
    while n_iter < max_iter and len(moving):
        rows = (moving[:, None] * together + row_numbers).flatten()
        direction = torch.zeros_like(along)
        direction[moving] = memory.direction(along)[moving]
        at, step = search(at, direction, (along * direction).sum(1))
        slopes = at.slopes if len(rows) == len(beta) else at.slopes[rows]
        pulled = pulled.index_copy(0, rows, pull_back(slopes))
        before = along
        along, slope, gain = gradients(at, pulled)
        memory.add(step[:, None] * direction, before - along)
        n_iter += 1
        # What rounding errors keep from rising rests, too.
        moving = torch.nonzero((torch.maximum(slope, gain) > tol) & (step > 0))[:, 0]
    return WeightFit(
        beta=at.beta,
        offset=at.offset,
        objective=at.objective,
        slope=slope,
        gain=gain,
        scores=at.scores.clone() if n_iter == 0 else at.scores,
        start=start,
        n_iter=n_iter,
    )


def adapted_fit(
    data: LinearScores,
    log_probability: Callable[[LinearScores], LogProbability],
    curvature: Callable[[Tensor], Tensor],
    *,
    tol: float,
    max_iter: int,
    start: WeightFit | None = None,
) -> tuple[WeightFit, LinearScores]:
    """Weights and offsets, and the same data in the coordinates that served the search best.

    A rough fit, where data are many to an eighth of them, shows where to begin, and what the
    Hessian is like there: then the passes over all data are few, here and where fits to these data
    follow.

    Parameters
    ----------
    data : LinearScores
    log_probability : callable
        Takes data to what :func:`maximise_weights` takes.
    curvature : callable
        Takes scores (K, n) to what :meth:`LinearScores.adapted` takes.
    tol, max_iter
        As in :func:`maximise_weights`.
    start : WeightFit, optional
        Where to begin, instead of a rough fit.
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
    fit = maximise_weights(
        data,
        log_probability(data),
        beta,
        offset,
        free_offset=True,
        tol=tol,
        max_iter=max_iter,
        scores=scores,
    )
    return fit, data


@dataclass
class _Point:
    """Weights (K, d) and offsets (K,) with their scores, weighted slopes (K, n), and objectives."""

    beta: Tensor
    offset: Tensor
    scores: Tensor
    objective: Tensor
    slopes: Tensor
