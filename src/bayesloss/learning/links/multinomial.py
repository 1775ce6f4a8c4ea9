"""Multinomial logistic regressions of all data and without each fold: where joint EM begins.

The objective is that of :mod:`bayesloss.learning.links.joint`, at first with nu(x) = x + level.
"""

import math
from collections.abc import Callable

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import (
    LogProbability,
    WeightFit,
    adapted_fit,
    maximise_weights,
)

_FOLDS = 5
# Part of tol to which multinomial regressions are fitted: those without a fold begin at that of all
# data (unless all classes are told apart), and what is left undone on their way is not held out.
_FINER = 0.1
_STEPS = 1000  # L-BFGS iterations of a multinomial regression,
_FEW_STEPS = 4  # and of weights between two fits of sources
_SPARE = 2**23  # numbers that fits without folds may take together whatever the inputs' size
_VECTORS = 20  # of weights, in the memory of a search
_ROWS = 2048  # data in a block of the softmax: a cache holds what it makes

# Takes scores of shape (K, n) to the sources there, and to their slopes.
Sources = Callable[[Tensor], tuple[Tensor, Tensor]]


def fit_softmax(
    data: LinearScores, tol: float, start: WeightFit | None = None
) -> tuple[WeightFit, LinearScores]:
    """A multinomial logistic regression, and the data in the coordinates that suited it best."""
    return adapted_fit(
        data.joined(),
        lambda data: _softmax(data.labels),
        lambda scores: _curvatures(scores, torch.ones_like(scores)),
        tol=tol,
        max_iter=_STEPS,
        start=start,
    )


def _curvatures(nu: Tensor, steps: Tensor) -> Tensor:
    """Curvatures of -log p in each score, and in a common shift of all, without sources' bends."""
    p = torch.softmax(nu, dim=0)
    common = (p * (steps - (p * steps).sum(0)).square()).sum(0, keepdim=True) / len(p)
    return torch.cat([p * (1 - p) * steps.square(), common])


def _softmax(
    labels: Tensor, sources: Sources | None = None, counted: Tensor | None = None
) -> LogProbability:
    def log_probability(scores: Tensor) -> tuple[Tensor, Tensor]:
        values, slopes = torch.empty_like(scores), torch.empty_like(scores)
        width = _ROWS if scores.device.type == "cpu" else labels.shape[1]
        fits = (each.split(len(labels)) for each in (scores, values, slopes))
        for i, each in enumerate(zip(*fits, strict=True)):
            numbers = torch.ones_like(each[0][:1]) if counted is None else counted[i : i + 1]
            rows = (tensor.split(width, dim=1) for tensor in (labels, numbers, *each))
            for y, number, x, value, slope in zip(*rows, strict=True):
                nu, steps = (x, 1.0) if sources is None else sources(x)
                log_p = nu - nu.logsumexp(0)
                torch.sub(y, log_p.exp(), out=slope).mul_(number).mul_(steps)
                torch.mul(log_p, y, out=value).mul_(number)
        return values, slopes

    return log_probability


class FoldedFits:
    """Weights for all data, and without each numbered fold, round after round."""

    def __init__(self, data: LinearScores, fold: Tensor | None, tol: float) -> None:
        self._plain, self._fold, self._tol = data.joined(), fold, _FINER * tol
        folds = range(0 if fold is None else int(fold.max()) + 1)
        self._parts = [torch.where(fold == each, 0.0, data.weight) for each in folds]
        self._parts.insert(0, data.weight)
        K, (n, d) = len(data.labels), data.inputs.shape
        at_once = max(1, max(_SPARE, data.inputs.stored // 8) // (K * (n + _VECTORS * d)))
        first, self._data = fit_softmax(data, self._tol)
        # Where all classes are told apart, weights that saw a fold have hardly a slope without it.
        self._apart = bool((first.scores.argmax(0) == data.labels.argmax(0)).all())
        self._batches = torch.arange(1, len(self._parts)).split(at_once) if folds else ()
        every = len(self._parts)
        self._beta, self._offset = first.beta.repeat(every, 1, 1), first.offset.repeat(every, 1)
        self._scores = first.scores.repeat(every, 1, 1)
        if self._apart:
            without = [self._fit_anew(data, i) for i in range(1, every)]
        else:
            without = [self._fit(some) for some in self._batches]
        self.settled = all(each.settled(self._tol) for each in (first, *without))
        if data.ridge < torch.finfo(data.centre.dtype).eps:  # what all classes share is open
            for each in (self._beta, self._offset, self._scores):
                each -= each.mean(1, keepdim=True)
        # The offsets of the fit to all are the levels of the sources; the rest is part of scores.
        self.level = self._offset[0].clone()
        self._offset -= self.level
        self._scores -= self.level[:, None]
        self._rounds = 0
        # Of all data, (K, d) and (K, n): views, which move with the others.
        self.beta, self.scores = self._beta[0], self._scores[0]

    def held_out(self) -> Tensor:
        """The scores without the fold of each case, (K, n)."""
        if self._fold is None:
            return self.scores
        return self._scores.gather(0, (1 + self._fold).expand_as(self._scores[:1]))[0]

    def move(self, sources: Sources) -> None:
        """A few steps towards the best weights for the sources, and the same without each fold."""
        self._rounds += 1
        if self._plain.adaptable and self._rounds & (self._rounds - 1) == 0:
            # in rounds 1, 2, 4, ...: what sources say of curvatures changes less and less
            self._data = self._plain  # before, not beside, there are other coordinates
            self._data = self._plain.adapted(_curvatures(*sources(self.scores)))
        state = self._beta, self._offset, self._scores
        before = [each[0].clone() for each in state]
        self._fit(torch.tensor([0]), sources)
        if not self._apart:
            for each, former in zip(state, before, strict=True):
                each[1:] += each[0] - former
        for some in self._batches:
            self._fit(some, sources)

    def _fit_anew(self, data: LinearScores, i: int) -> WeightFit:
        """A part's regression from nought, in coordinates that have not seen the rest either."""
        own = LinearScores.of(data.inputs, data.labels, self._parts[i], data.C)
        fit, _ = fit_softmax(own, _FINER * self._tol)  # nothing begins near its end
        self._beta[i], self._scores[i] = fit.beta, fit.scores
        self._offset[i] = fit.offset + fit.beta @ (data.centre - own.centre)
        return fit

    def _fit(self, some: Tensor, sources: Sources | None = None) -> WeightFit:
        data, parts = self._data, torch.stack([self._parts[i] for i in some])
        less = data.total / parts.sum(1)
        fit = maximise_weights(
            data,
            _softmax(data.labels, sources, parts / data.weight * less[:, None]),
            self._beta[some].flatten(0, 1),
            self._offset[some].flatten(),
            free_offset=sources is None,
            tol=self._tol,
            max_iter=_FEW_STEPS if sources else _STEPS,
            scores=self._scores[some].flatten(0, 1),
            # The penalty counts on a mean over fewer data.
            strength=less.repeat_interleave(len(data.labels)),
        )
        shape = (len(some), -1)
        self._beta[some] = fit.beta.unflatten(0, shape)
        self._offset[some] = fit.offset.unflatten(0, shape)
        self._scores[some] = fit.scores.unflatten(0, shape)
        return fit


def folds_of(classes: Tensor, groups: Tensor | None = None, many: int = _FOLDS) -> Tensor:
    """Folds, not at random: each has its share of each class; groups stay whole, largest first."""
    if groups is None:
        fold = torch.empty_like(classes)
        order = classes.argsort(stable=True)
        fold[order] = torch.arange(len(classes)) % many
        return fold
    groups = groups.cpu()
    sizes = torch.bincount(groups)
    filled, of_group = [0] * min(many, len(sizes)), torch.zeros_like(sizes)
    for g in sizes.argsort(descending=True, stable=True).tolist():
        least = filled.index(min(filled))
        of_group[g] = least
        filled[least] += int(sizes[g])
    return of_group[groups]


def common_scale(scores: Tensor, level: Tensor, data: LinearScores) -> float:
    """Temperature scaling at fixed levels; log factor ~ N(0, 1), finite for separable classes."""
    y = data.labels.to(data.weight.dtype)

    def negative(log_factor: float) -> float:
        log_p = torch.log_softmax(math.exp(log_factor) * scores + level[:, None], dim=0)
        return 0.5 * log_factor**2 - float(((y * log_p).sum(0) * data.weight).sum())

    return math.exp(minimize_scalar(negative, bounds=(-5.0, 5.0), method="bounded").x)
