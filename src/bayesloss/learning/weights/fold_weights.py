"""Weights fitted to all rows and to those without each fold, under any curves of the scores.

A problem has K rows of weights: one for two classes, or one a class. The scores are
x = beta (z - mean z) + offset, and their curves nu make the labels probable
(:mod:`bayesloss.learning.weights.label_likelihood`). At first nu(x) = x + level, with the level
that a regression of all rows has: so the offset of these is zero, and those without a fold differ a
little from it. Under a new curve the weights maximise

    sum_n w_n log p(y_n given nu(x_n)) - s sum_k beta_k . beta_k / (2 C),

without a fold as with all rows. All scores are then brought back to their former size by a factor
t, and the strength s of the penalty is divided by t^2, which is the same objective.
"""

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from bayesloss.learning.data.folds import Folds
from bayesloss.learning.weights.label_likelihood import Curves, counted_log_probabilities
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import WeightFit, maximise_weights

FINER = 0.1  # part of tol to which weights are fitted: what is left undone is not held out
_FIRST_STEPS = 1000  # L-BFGS iterations of a regression without a fold,
_STEPS = 20  # and of weights under new curves, which move meanwhile
_SPARE = 2**23  # numbers that searches without folds may take together whatever the inputs' size
_VECTORS = 20  # of weights, in the memory of a search


class FoldWeights:
    """Weights of one problem, fitted to all rows (fit 0) and to those without each fold.

    Attributes
    ----------
    beta, offset, scores : Tensor of shape (F, K, d), (F, K) and (F, K, n)
        Of F = 1 + n_folds fits.
    level : Tensor of shape (K,)
        The offsets of the regression of all rows, which the scores are without.
    strength : float
        By which the penalty is multiplied.
    total : float
        The weight of all rows.
    settled : bool
        Whether the last search converged for all.
    """

    def __init__(self, data: LinearScores, fit: WeightFit, folds: Folds, tol: float) -> None:
        self._data = data
        self.total = data.total
        self._fold = torch.from_numpy(folds.fold).to(data.centre.device)
        self._tol = FINER * tol
        self._labels = data.labels.to(data.weight.dtype)
        K = data.n_joint
        n, d = data.inputs.shape
        affordable = max(_SPARE, data.inputs.stored // 8)
        self._at_once = max(1, affordable // (K * (n + _VECTORS * d)))
        n_fits = 1 + folds.n_folds
        # A shift that many classes share changes no probability: it is none.
        shift = fit.offset.mean() if K > 1 else 0.0
        self.level = fit.offset - shift
        self.beta = fit.beta.repeat(n_fits, 1, 1)
        self.offset = torch.zeros_like(fit.offset).repeat(n_fits, 1)
        self.scores = (fit.scores - fit.offset[:, None]).repeat(n_fits, 1, 1)
        self.strength = 1.0
        begin = data
        if _told_apart(data, fit):
            # At weights that saw a fold there is hardly a slope without it. So these begin at
            # nought, in coordinates that know no labels.
            begin = LinearScores.of(data.inputs, data.labels, data.weight, data.C)
            begin = replace(begin, n_joint=K)
            self.beta[1:] = 0.0
            self.offset[1:] = -self.level
            self.scores[1:] = -self.level[:, None]
        without_folds = range(1, n_fits)
        self.settled = self._search(
            begin, self._straight, without_folds, _FIRST_STEPS, free_offset=True
        )
        if K > 1:
            # What all classes share changes no probability yet, and costs a penalty.
            for shared in (self.beta, self.offset, self.scores):
                shared -= shared.mean(1, keepdim=True)

    def held_out(self) -> Float[Tensor, "K n"]:
        """The scores of each row under the weights that have not seen its fold."""
        fits = (1 + self._fold).expand_as(self.scores[:1])
        return self.scores.gather(0, fits)[0]

    def held_out_log_odds(self) -> Float[ndarray, "K n"]:
        """The log odds of these scores, or logits, under the fixed link, before weights move."""
        values, _ = self._straight(self.held_out())
        return values.cpu().numpy()

    def move(self, curves: Curves) -> None:
        """Fit all weights under curves, and bring their scores back to their former size."""
        before = self._spread()
        every = range(len(self.beta))
        self.settled = self._search(self._data, curves, every, _STEPS, free_offset=False)
        after = self._spread()
        if before > 0 and 0 < after < math.inf:
            factor = before / after
            self.beta *= factor
            self.offset *= factor
            self.scores *= factor
            self.strength /= factor**2

    def _straight(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        return scores + self.level[:, None], torch.ones_like(scores)

    def _search(
        self,
        data: LinearScores,
        curves: Curves,
        fits: range,
        max_iter: int,
        *,
        free_offset: bool,
    ) -> bool:
        """Whether all searches for these fits, each from where it is, settled."""
        settled = True
        for begin in range(fits.start, fits.stop, self._at_once):
            some = range(begin, min(begin + self._at_once, fits.stop))
            settled = self._search_some(data, curves, some, max_iter, free_offset) and settled
        return settled

    def _search_some(
        self, data: LinearScores, curves: Curves, fits: range, max_iter: int, free_offset: bool
    ) -> bool:
        K = data.n_joint
        numbers = torch.arange(fits.start, fits.stop, device=self._fold.device)
        counted = (self._fold + 1 != numbers[:, None]).to(data.weight.dtype)
        if fits.start == 0:
            counted[0] = 1.0  # also what is never held out, whose fold has the number -1
        # On a mean over fewer rows both the likelihood and the penalty count for more.
        more = data.total / (counted @ data.weight)
        counted *= more[:, None]

        def log_probability(scores: Tensor) -> tuple[Tensor, Tensor]:
            by_fit = scores.unflatten(0, (-1, K))
            values, slopes = counted_log_probabilities(by_fit, curves, self._labels, counted)
            return values.flatten(0, 1), slopes.flatten(0, 1)

        some = slice(fits.start, fits.stop)
        fit = maximise_weights(
            data,
            log_probability,
            self.beta[some].flatten(0, 1),
            self.offset[some].flatten(),
            free_offset=free_offset,
            tol=self._tol,
            max_iter=max_iter,
            scores=self.scores[some].flatten(0, 1),
            strength=self.strength * more.repeat_interleave(K),
        )
        self.beta[some] = fit.beta.unflatten(0, (-1, K))
        self.offset[some] = fit.offset.unflatten(0, (-1, K))
        self.scores[some] = fit.scores.unflatten(0, (-1, K))
        return fit.settled(self._tol)

    def _spread(self) -> float:
        """The standard deviation of all rows' scores, each about its class's mean."""
        weight = self._data.weight
        scores = self.scores[0]
        means = scores @ weight / self._data.total
        squares = (scores - means[:, None]).square() @ weight / self._data.total
        return math.sqrt(float(squares.sum()))


def _told_apart(data: LinearScores, fit: WeightFit) -> bool:
    """Whether a regression is right about all rows."""
    if data.n_joint == 1:
        right = (fit.scores > 0) == (data.labels == 1)
    else:
        right = fit.scores.argmax(0) == data.labels.argmax(0)
    return bool(right.all())
