r"""From a classifier's scores to log odds that a sigmoid gives: what a calibrator begins with.

Three strictly increasing steps.

1. Probabilities become log odds. Those of 0 and 1 are infinite: a classifier that votes, or whose
   floats run out. As a sample's censored tails they get a place on a normal quantile plot. If the
   sample had none, a later one gets that of the last number which its format tells from 0 or 1:
   :func:`last_log_odds`.
2. Tails come near. One map leaves the bulk as it is, wherever the bulk lies, and has logarithms
   beyond; another, :class:`~bayesloss.learning.data.range_map.RangeMap`, makes the scores as nearly
   normal as it can. Neither has seen a label; the one with the likelier sigmoid is taken.
3. Platt's (1999) sigmoid, fitted by maximum likelihood to targets ``(N_+ + 1) / (N_+ + 2)`` for the
   ``N_+`` positives and ``1 / (N_- + 2)`` for the others: separable data have a finite slope, too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, ndtri
from sklearn.exceptions import ConvergenceWarning

from bayesloss.learning.data.range_map import DEPTHS, RangeMap
from bayesloss.learning.data.rows import Rows, extremes, largest
from bayesloss.warnings import warn_caller

__all__ = ["ScoreMap", "Sigmoid", "fit_sigmoid", "last_log_odds"]

Array = NDArray[np.float64]

_TAIL = 0.01  # the part of the cases, at either end, that does not tell how wide the bulk is
_DEPTHS = np.append(DEPTHS.numpy(), _TAIL)  # what steps 1 and 2 ask of the scores, at either end
_VOTE = 1.0  # the least slope of the normal quantile plot that infinite scores are placed by
_FARTHEST = 2.0**500  # in ranges: where infinite scores lie that are no probabilities
_NEWTON_STEPS = 100
_FLAT = 0.5  # the least slope of a sigmoid, in its standard errors under no slope at all


@dataclass(frozen=True)
class Sigmoid:
    """Log odds that are a straight line: offset + slope z.

    Attributes
    ----------
    offset, slope : float
    error : float
        The standard error of the slope if the truth has none; infinite if the data tell nothing.
    log_likelihood : float
        Of Platt's targets, in nats.
    """

    offset: float
    slope: float
    error: float
    log_likelihood: float


@dataclass(frozen=True)
class ScoreMap:
    """A strictly increasing map from scores to the log odds that a sigmoid gives.

    Attributes
    ----------
    probabilities : bool
        Whether scores are probabilities.
    ends : callable
        Takes infinite values to finite ones: values of shape (n,), and the least and the greatest
        that they may have where there were no infinite ones.
    tails : callable
        Takes values of shape (n,) on the real line to z, in which the sigmoid is one.
    sigmoid : Sigmoid
        With the slope that it came out with; the map has at least half its standard error.
    """

    probabilities: bool
    ends: "_Ends"
    tails: Callable[[Array], Array]
    sigmoid: Sigmoid

    @classmethod
    def fit(cls, scores: Array, y: Array, weight: Array, probabilities: bool) -> "ScoreMap":
        """Learn the map.

        Parameters
        ----------
        scores : ndarray of shape (n,)
            Without NaN.
        y : ndarray of shape (n,)
            Labels 0 and 1, both of them present.
        weight : ndarray of shape (n,)
            Positive.
        probabilities : bool
            Whether scores are probabilities.
        """
        return cls.of(Rows(scores, y, weight), len(scores), probabilities)

    @classmethod
    def of(cls, rows: Rows, n: int, probabilities: bool) -> "ScoreMap":
        """The same from n rows, wherever they lie."""
        rows = rows.map(_with_x, partial(_real, probabilities=probabilities))
        values, weight = rows.distribution(_DEPTHS)
        ends = _Ends.fit(values, weight, n)
        values, rows = ends(values), rows.map(_with_x, ends)
        kinds: list[Callable[[Array], Array]] = [_LogTails.fit(values, weight)]
        learned = RangeMap.fit(torch.from_numpy(values), torch.from_numpy(weight))
        if not learned.is_identity:
            kinds.append(_Learned(learned))
        found = [cls(probabilities, ends, f, _sigmoid(rows.map(_with_x, f))) for f in kinds]
        best = max(found, key=lambda candidate: candidate.sigmoid.log_likelihood)
        return best._upright(rows)

    def __call__(self, scores: Array) -> Array:
        """The log odds that the sigmoid gives to scores of shape (n,), finite ones.

        Probabilities of 0 and 1, where none were learned from, are read in the precision in which
        they come.
        """
        values = _real(scores.astype(np.float64, copy=False), self.probabilities)
        limits = last_log_odds(scores.dtype) if self.probabilities else ()
        z = self.tails(self.ends(values, *limits))
        return self.sigmoid.offset + self.slope * z

    @property
    def slope(self) -> float:
        """The slope, made positive."""
        error = self.sigmoid.error
        return max(self.sigmoid.slope, _FLAT * error if math.isfinite(error) else 1.0)

    def _upright(self, rows: Rows) -> "ScoreMap":
        """The middle of the data keeps its log odds where the slope is made positive."""
        if self.slope == self.sigmoid.slope:
            return self
        total, middle = rows.map(_with_x, self.tails).fold(_first_moment)
        turn = (self.sigmoid.slope - self.slope) * float(middle / total)
        return replace(self, sigmoid=replace(self.sigmoid, offset=self.sigmoid.offset + turn))


def last_log_odds(dtype: np.dtype) -> tuple[float, float]:
    """The log odds below and above which a probability is rounded to 0 and to 1.

    Halfway from 0 to the next number of the format, and from 1 to the one before: -745.1 and 37.4
    for numbers of 64 bits, -104.0 and 17.3 for those of 32.

    Parameters
    ----------
    dtype : dtype
        Of floats.
    """
    info = np.finfo(dtype)
    # Logarithms are halved, since half of the least number is none.
    p, q = (math.log(gap) - math.log(2) for gap in (info.smallest_subnormal, info.epsneg))
    return p - math.log1p(-math.exp(p)), math.log1p(-math.exp(q)) - q


def fit_sigmoid(z: Array, y: Array, weight: Array) -> Sigmoid:
    """Platt's sigmoid by Newton's method, with his targets.

    Parameters
    ----------
    z : ndarray of shape (n,)
        Where all are equal, the slope is 0.
    y : ndarray of shape (n,)
        Labels 0 and 1.
    weight : ndarray of shape (n,)

    Warns
    -----
    ConvergenceWarning
        If Newton's method did not converge.
    """
    return _sigmoid(Rows(z, y, weight))


def _sigmoid(rows: Rows) -> Sigmoid:
    """The same from rows, wherever they lie."""
    low, high = rows.fold(extremes, merge=largest)[:2] * [-1, 1]
    centre, half = low / 2 + high / 2, (high / 2 - low / 2) or 1.0
    rows = rows.map(_standard, centre, half)  # squares of 1e200 are no numbers
    total, positive, first, second = rows.fold(_moments)
    target = (1 / (total - positive + 2), (positive + 1) / (positive + 2))  # of labels 0 and 1
    rate = (positive * target[1] + (total - positive) * target[0]) / total
    level = math.log(rate / (1 - rate))
    middle = first / total
    spread = math.sqrt(max(second / total - middle**2, 0.0))
    if spread <= 1e-12:
        entropy = -rate * math.log(rate) - (1 - rate) * math.log1p(-rate)
        return Sigmoid(level, 0.0, math.inf, -total * entropy)
    rows = rows.map(_standard, middle, spread)
    centre, half = centre + half * middle, half * spread
    theta = np.array([level, 0.0])

    def sums(theta: Array) -> tuple[float, Array, Array]:
        """What the loss and its first and second derivatives are."""
        value, *rest = rows.fold(_loss, theta, target)
        pull, along, bend, cross, square = rest
        return value, np.array([pull, along]), np.array([[bend, cross], [cross, square]])

    value, gradient, hessian = sums(theta)
    for _ in range(_NEWTON_STEPS):
        step = np.linalg.solve(hessian + 1e-12 * total * np.eye(2), gradient)
        gain = float(gradient @ step)
        if gain < 1e-12 * total:
            break
        fraction = 1.0
        while (new := sums(theta + fraction * step))[0] > value and fraction > 1e-6:
            fraction /= 2
        theta, (value, gradient, hessian) = theta + fraction * step, new
    else:
        warn_caller(
            f"the sigmoid did not converge in {_NEWTON_STEPS} Newton steps: {gain:.2g} nats still "
            "to gain; the scores' tails may be too long for it",
            ConvergenceWarning,
        )
    slope = float(theta[1]) / half
    error = 1 / (half * math.sqrt(total * rate * (1 - rate)))
    return Sigmoid(float(theta[0]) - slope * centre, slope, error, -value)


def _loss(u: Array, y: Array, weight: Array, theta: Array, target: tuple[float, float]) -> Array:
    """Minus the log likelihood, the slopes of the log likelihood, and minus its curvatures."""
    t = np.where(y == 1, target[1], target[0])
    nu = theta[0] + theta[1] * u
    p = expit(nu)
    pull, bend = weight * (t - p), weight * (p * (1 - p))
    value = weight @ (np.logaddexp(0, nu) - t * nu)
    return np.array([value, pull.sum(), pull @ u, bend.sum(), bend @ u, bend @ u**2])


def _moments(u: Array, y: Array, weight: Array) -> Array:
    """The sums of 1, y, u and u^2."""
    return np.array([weight.sum(), weight @ y, weight @ u, weight @ u**2])


def _standard(z: Array, y: Array, centre: float, unit: float) -> tuple[Array, Array]:
    return (z - centre) / unit, y


def _first_moment(z: Array, y: Array, weight: Array) -> Array:
    return np.array([weight.sum(), weight @ z])


def _with_x(x: Array, y: Array, function: Callable[[Array], Array]) -> tuple[Array, Array]:
    return function(x), y


@dataclass(frozen=True)
class _Ends:
    """The identity from low to high; beyond, the line shrinks to end at bottom and top.

    Where there were no infinite values, bottom or top are infinite, and nothing shrinks: a later
    one is put farther out than scores can be, on their scale.
    """

    low: float
    high: float
    bottom: float
    top: float

    @classmethod
    def fit(cls, values: Array, weight: Array, n: int) -> "_Ends":
        """The line through the ends of the finite values, of n, in a normal quantile plot is read.

        At the middle of the mass beyond.
        """
        total = weight.sum()
        below, above = (float(weight[values == end].sum() / total) for end in (-np.inf, np.inf))
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
        least = 0.5 / n
        z = ndtri([max(below, least), 1 - max(above, least)])
        rate = max((high - low) / (z[1] - z[0]) if high > low else 0.0, _VOTE)
        return cls(
            low,
            high,
            low + rate * (ndtri(below / 2) - z[0]) if below > 0 else -math.inf,
            high + rate * (ndtri(1 - above / 2) - z[1]) if above > 0 else math.inf,
        )

    def __call__(self, values: Array, least: float = -math.inf, most: float = math.inf) -> Array:
        far = min(_FARTHEST * ((self.high - self.low) or 1.0), np.finfo(np.float64).max / 4)
        values = values.clip(
            max(least, self.low - far) if self.bottom == -math.inf else -math.inf,
            min(most, self.high + far) if self.top == math.inf else math.inf,
        )
        if self.bottom == -math.inf and self.top == math.inf:
            return values
        inside = np.clip(values, self.low, self.high)
        with np.errstate(over="ignore", divide="ignore"):
            # A distance d becomes 1 / (1 / d + 1 / room): room, where d is infinite.
            below = 1 / (1 / (inside - values) + 1 / (self.low - self.bottom))
            above = 1 / (1 / (values - inside) + 1 / (self.top - self.high))
        return (
            inside - np.where(values < self.low, below, 0) + np.where(values > self.high, above, 0)
        )


@dataclass(frozen=True)
class _LogTails:
    """The identity from low to high, and beyond it the logarithm, on the scale of the width."""

    low: float
    high: float
    width: float

    @classmethod
    def fit(cls, values: Array, weight: Array) -> "_LogTails":
        """The range of all but a hundredth at either end, and half as much again on each side."""
        order = np.argsort(values)
        ordered, level = values[order], np.cumsum(weight[order])
        inner = np.searchsorted(level, [_TAIL * level[-1], (1 - _TAIL) * level[-1]])
        low, high = ordered[inner.clip(max=len(ordered) - 1)].tolist()
        width = high - low or float(ordered[-1] - ordered[0]) or 1.0
        return cls(low - width / 2, high + width / 2, width)

    def __call__(self, values: Array) -> Array:
        inside = np.clip(values, self.low, self.high)
        beyond = np.abs(values - inside)
        if not beyond.any():
            return values
        tail = self.width * np.log1p(beyond / self.width)
        return inside + np.copysign(tail, values - inside)


@dataclass(frozen=True)
class _Learned:
    """A range map between arrays."""

    range_map: RangeMap

    def __call__(self, values: Array) -> Array:
        return self.range_map(torch.from_numpy(values)).numpy()


def _real(scores: Array, probabilities: bool) -> Array:
    """Scores on the whole real line."""
    if not probabilities:
        return scores
    with np.errstate(divide="ignore"):
        return np.log(scores) - np.log1p(-scores)
