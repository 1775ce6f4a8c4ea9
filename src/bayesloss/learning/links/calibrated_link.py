r"""Linkgistic regression as calibration, repeated: a link fitted to held-out scores, and weights.

Round 0 is a calibrated logistic regression: its scores of rows that it was not fitted to, held out
by :mod:`bayesloss.learning.data.folds`, and a calibrator's curve nu fitted to these. In every
further round the weights know that curve: those of all rows and those without each fold maximise

    sum_n w_n log p(y_n given nu(x_n)) - s beta . beta / (2 C),

with x_n = beta . (z_n - mean z) + offset and p the curve's mean probability. All scores are then
brought back to their former size by a factor t, and the strength s of the penalty is divided by
t^2, which is the same objective; and a new curve is fitted to the new held-out scores.

The curve is an average over priors (:mod:`bayesloss.learning.evidence.mixtures`) and no E-step of
any objective: so this is an *alternation*, not W&N's EM. What it watches is the lower bound on the
log evidence of the held-out labels, averaged over the priors. A round that raises it by less than
``tol`` nats a case, or by less than half a nat in all, is the last. The best round is kept, and of
rounds within half a nat the latest.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import PchipInterpolator
from torch import Tensor

from bayesloss.arrays import Array
from bayesloss.learning.calibration.link_calibrator import LinkCalibrator
from bayesloss.learning.data.folds import Folds
from bayesloss.learning.links.fitted_link import shaped
from bayesloss.learning.links.tables import HermiteTable, moved
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import LogProbability, WeightFit, maximise_weights

HELD_OUT_FITS = "the logistic regressions without each fold"  # in the list of what did not settle
ALTERNATION = "the alternation between link and weights"

_A_DIFFERENCE = 0.5  # nats in all, below which no evidence tells one round from the next
FINER = 0.1  # part of tol to which weights are fitted: what is left undone is not held out
_FIRST_STEPS = 1000  # L-BFGS iterations of a logistic regression without a fold,
_STEPS = 50  # and of weights under a new curve, from those under the last one
_SPARE = 2**23  # numbers that searches without folds may take together whatever the inputs' size
_VECTORS = 20  # of weights, in the memory of a search
_NODES = 2048  # of the table of a curve: some thirty for each wave of its highest harmonic
_ROOM = 0.5  # of the scores' range, beyond either end, that the table covers


class FoldWeights:
    """Weights of one problem, fitted to all rows (row 0) and to those without each fold.

    Attributes
    ----------
    beta, offset, scores : Tensor of shape (1 + n_folds, d), (1 + n_folds,), (1 + n_folds, n)
    strength : float
        By which the penalty is multiplied.
    settled : bool
        Whether the last search converged for all.
    """

    def __init__(self, data: LinearScores, fit: WeightFit, folds: Folds, tol: float) -> None:
        self._data = data
        self._fold = torch.from_numpy(folds.fold).to(data.centre.device)
        self._tol = FINER * tol
        self._signs = 2 * data.labels[0].to(data.weight.dtype) - 1
        n, d = data.inputs.shape
        affordable = max(_SPARE, data.inputs.stored // 8)
        self._at_once = max(1, affordable // (n + _VECTORS * d))
        n_fits = 1 + folds.n_folds
        self.beta = fit.beta.repeat(n_fits, 1)
        self.offset = fit.offset.repeat(n_fits)
        self.scores = fit.scores.repeat(n_fits, 1)
        self.strength = 1.0
        self.settled = self._search(self._logistic, range(1, n_fits), _FIRST_STEPS)

    def held_out(self) -> Float[Tensor, " n"]:
        """The score of each row under the weights that have not seen its fold."""
        return self.scores.gather(0, 1 + self._fold[None])[0]

    def move(self, curve: HermiteTable) -> None:
        """Fit all weights under a curve, and bring their scores back to their former size."""

        def log_probability(scores: Tensor) -> tuple[Tensor, Tensor]:
            log_odds, steepness = curve(scores)
            values, slopes = self._logistic(log_odds)
            return values, slopes.mul_(steepness)

        before = self._spread()
        self.settled = self._search(log_probability, range(len(self.beta)), _STEPS)
        after = self._spread()
        if before > 0 and 0 < after < math.inf:
            factor = before / after
            self.beta *= factor
            self.offset *= factor
            self.scores *= factor
            self.strength /= factor**2

    def _logistic(self, log_odds: Tensor) -> tuple[Tensor, Tensor]:
        """The log probabilities of the labels, and their slopes."""
        turned = self._signs * log_odds
        return torch.nn.functional.logsigmoid(turned), self._signs * torch.sigmoid(-turned)

    def _search(self, log_probability: LogProbability, fits: range, max_iter: int) -> bool:
        """Whether all searches for these rows of weights, each from where it is, settled."""
        settled = True
        for begin in range(fits.start, fits.stop, self._at_once):
            some = slice(begin, min(begin + self._at_once, fits.stop))
            settled = self._search_some(log_probability, some, max_iter) and settled
        return settled

    def _search_some(self, log_probability: LogProbability, fits: slice, max_iter: int) -> bool:
        numbers = torch.arange(fits.start, fits.stop, device=self._fold.device)
        counted = (self._fold + 1 != numbers[:, None]).to(self._data.weight.dtype)
        if fits.start == 0:
            counted[0] = 1.0  # also what is never held out, whose fold has the number -1
        # On a mean over fewer rows both the likelihood and the penalty count for more.
        more = self._data.total / (counted @ self._data.weight)
        counted *= more[:, None]

        def of_these(scores: Tensor) -> tuple[Tensor, Tensor]:
            values, slopes = log_probability(scores)
            return values.mul_(counted), slopes.mul_(counted)

        fit = maximise_weights(
            self._data,
            of_these,
            self.beta[fits],
            self.offset[fits],
            free_offset=True,
            tol=self._tol,
            max_iter=max_iter,
            scores=self.scores[fits],
            strength=self.strength * more,
        )
        self.beta[fits] = fit.beta
        self.offset[fits] = fit.offset
        self.scores[fits] = fit.scores
        return fit.settled(self._tol)

    def _spread(self) -> float:
        """The standard deviation of all rows' scores."""
        weight = self._data.weight
        scores = self.scores[0]
        mean = scores @ weight / self._data.total
        return math.sqrt(float((scores - mean).square() @ weight) / self._data.total)


@dataclass(frozen=True)
class Round:
    """Weights (d,) and offset, the scores of all rows under them, and the curve of a round."""

    beta: Float[Tensor, " d"]
    offset: float
    scores: Float[Tensor, " n"]
    curve: LinkCalibrator
    log_evidence: float  # the bound, of the labels given held-out scores, in nats
    held_out_loss: float  # the mean log loss of the labels under the curve, in nats a case


@dataclass(frozen=True)
class Alternation:
    """The best round of one problem, and what became of all of them."""

    best: Round
    log_evidences: tuple[float, ...]
    unsettled: tuple[str, ...]


def alternate(
    data: LinearScores, fit: WeightFit, folds: Folds, *, tol: float, max_iter: int
) -> Alternation:
    """Curves and weights in turns for one problem, from its logistic regression ``fit``."""
    weights = FoldWeights(data, fit, folds, tol)
    unsettled = [] if weights.settled else [HELD_OUT_FITS]
    enough = max(_A_DIFFERENCE, tol * data.total)
    evidences: list[float] = []
    best = None
    rise = math.inf
    for now in _rounds(data, weights, folds, max_iter):
        evidences.append(now.log_evidence)
        if best is not None:
            rise = now.log_evidence - best.log_evidence
        if rise > -_A_DIFFERENCE:
            best = now
        if rise < enough:
            break
    else:
        if max_iter:
            unsettled.append(f"{ALTERNATION} (its last round still gained {rise:.2g} nats)")
    assert best is not None  # there is a round 0, and its rise is infinite
    return Alternation(best, tuple(evidences), tuple(unsettled))


def _rounds(
    data: LinearScores, weights: FoldWeights, folds: Folds, max_iter: int
) -> Iterator[Round]:
    """Round 0, and at most so many under the curve of the one before."""
    y = data.labels[0].cpu().numpy()
    counted = data.weight.cpu().numpy() * folds.power
    for number in range(max_iter + 1):
        held_out = weights.held_out().cpu().numpy()
        with warnings.catch_warnings():
            # To turn scores around, or to look at them, is no advice for scores that are made here.
            warnings.simplefilter("ignore", UserWarning)
            curve = LinkCalibrator(scale="real").fit(held_out, y, counted, folds.groups)
        yield Round(
            beta=weights.beta[0].clone(),
            offset=float(weights.offset[0]),
            scores=weights.scores[0].clone(),
            curve=curve,
            log_evidence=_log_evidence(curve),
            held_out_loss=_mean_loss(curve, held_out, y, counted),
        )
        if number < max_iter:
            weights.move(_table(curve, weights.scores))


def _log_evidence(curve: LinkCalibrator) -> float:
    bounds = torch.tensor([part.evidence_bound for part in curve.average_.components])
    return float(bounds.logsumexp(0)) - math.log(len(bounds))


def _mean_loss(curve: LinkCalibrator, scores: Array, y: NDArray, weight: Array) -> float:
    losses = np.logaddexp(0, (1 - 2.0 * y) * curve.log_odds(scores))
    return float(weight @ losses / weight.sum())


def _table(curve: LinkCalibrator, scores: Tensor) -> HermiteTable:
    """The log odds of a curve, as a table of the score on the scores' device."""
    low = float(scores.min())
    high = float(scores.max())
    room = _ROOM * (high - low) or 1.0
    nodes = np.linspace(low - room, high + room, _NODES)
    log_odds = curve.log_odds(nodes)
    slopes = PchipInterpolator(nodes, log_odds).derivative()(nodes)
    values = torch.from_numpy(log_odds)[None]
    table = HermiteTable(torch.from_numpy(nodes), values, torch.from_numpy(slopes)[None])
    return moved([table], scores.device)[0]


class CalibratedLink:
    """The learned link of one class against the rest: a calibrator's curve, on scores as shown.

    Scores x are those of weights on the scale of a logistic regression, without the offset, so that
    the log odds have mean slope 1 over the training rows.

    Attributes
    ----------
    calibrator : LinkCalibrator
        Of the score x / ``slope`` + ``offset``.
    slope, offset : float
    low, high : float
        The smallest and largest training score.
    """

    def __init__(self, found: Round, weight: Float[Tensor, " n"]) -> None:
        self.calibrator = found.curve
        self.offset = found.offset
        scores = found.scores.cpu().numpy()
        self.slope = _mean_slope(found.curve, scores, weight.cpu().numpy())
        self.low = self.slope * (float(scores.min()) - self.offset)
        self.high = self.slope * (float(scores.max()) - self.offset)

    def log_odds(self, x: ArrayLike) -> Array:
        """The log odds of :meth:`inverse_link`, exact also where those are large."""
        return shaped(self.calibrator.log_odds(self._at(x)), x)

    def source(self, x: ArrayLike) -> Array:
        """The posterior mean of nu at scores x of shape (n,)."""
        return shaped(self.calibrator.mean_curve(self._at(x)), x)

    def inverse_link(self, x: ArrayLike) -> Array:
        """The posterior mean of the probability at scores x of shape (n,)."""
        return shaped(self.calibrator.predict_proba(self._at(x))[:, 1], x)

    def inverse_link_band(self, x: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper end of the interval of the probability, as the calibrator has it."""
        low, high = self.calibrator.predict_interval(self._at(x), level)
        return shaped(low, x), shaped(high, x)

    def source_band(self, x: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
        """The same for nu(x)."""
        low, high = self.calibrator.log_odds_interval(self._at(x), level)
        return shaped(low, x), shaped(high, x)

    def _at(self, x: ArrayLike) -> Array:
        return np.atleast_1d(np.asarray(x, dtype=np.float64)) / self.slope + self.offset


def _mean_slope(curve: LinkCalibrator, scores: Array, weight: Array) -> float:
    """The weighted mean slope of the log odds over the scores; 1 where all scores are equal."""
    table = _table(curve, torch.from_numpy(scores))
    slopes = table(torch.from_numpy(scores))[1].numpy()
    mean = float(weight @ slopes / weight.sum())
    return mean if mean > 0 else 1.0
