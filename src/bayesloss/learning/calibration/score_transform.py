r"""From a classifier's scores to log odds: the transform that a calibrator begins with.

Three strictly increasing steps.

1. Probabilities become log odds. Those of 0 and 1, infinite, are taken as censored and placed by a
   normal quantile plot; if none were fitted, a later one counts as the last number that its format
   tells from 0 or 1 (:func:`last_log_odds`).
2. Long tails are shortened: logarithmically beyond the bulk, or by
   :class:`~bayesloss.learning.data.range_map.RangeMap`, which makes scores as normal as it can.
   Neither sees a label; the one with the likelier Platt sigmoid is taken.
3. Platt scaling (Platt 1999): the likeliest sigmoid for targets ``(N_+ + 1) / (N_+ + 2)`` of the
   ``N_+`` positives and ``1 / (N_- + 2)`` of the others, which keep the slope finite.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from bayesloss.arrays import Array
from bayesloss.learning.data.range_map import DEPTHS, RangeMap
from bayesloss.learning.data.rows import Rows
from bayesloss.warnings import warn_unconverged

_TAIL = 0.01  # the part of the cases, at either end, that does not tell how wide the bulk is
_VOTE = 1.0  # the least slope of the normal quantile plot that infinite scores are placed by
_FARTHEST = 2.0**500  # in ranges: where infinite scores lie that are no probabilities
_NEWTON_STEPS = 100
_FLAT = 0.5  # the least slope of a sigmoid, in its standard errors under no slope at all


@dataclass(frozen=True)
class PlattSigmoid:
    """The log odds level + slope (z - middle), with the standard error of a slope of zero."""

    middle: float
    level: float
    slope: float
    error: float
    log_likelihood: float

    @property
    def upward(self) -> float:
        """The slope, at least half its standard error."""
        return max(self.slope, _FLAT * self.error if math.isfinite(self.error) else 1.0)


@dataclass(frozen=True)
class ScoreTransform:
    """A strictly increasing transform from scores to the log odds of Platt's sigmoid."""

    probabilities: bool
    finite: "_FiniteEnds"
    tails: "Callable[[Array], Array]"
    sigmoid: PlattSigmoid

    @classmethod
    def fit(cls, rows: Rows, n: int, probabilities: bool) -> "ScoreTransform":
        """Learn the transform from n scores without NaN and labels 0 and 1, both present."""
        rows = rows.map(partial(_real, probabilities=probabilities))
        values, weight = rows.distribution(np.append(DEPTHS, _TAIL))
        finite = _FiniteEnds.fit(values, weight, n)
        values = finite(values)
        short, learned = LogTails.fit(values, weight), RangeMap.fit(values, weight)
        every: list[Callable] = [short] if learned.is_identity else [short, learned]
        ends, rows = np.array([values.min(), values.max()]), rows.map(finite)
        fits = [(fit_platt(rows.map(tails), tails(ends)), tails) for tails in every]
        sigmoid, tails = max(fits, key=lambda fit: fit[0].log_likelihood)
        return cls(probabilities, finite, tails, sigmoid)

    def __call__(self, scores: NDArray) -> Array:
        """The log odds of scores, finite ones: unseen 0 and 1 are read in their own precision."""
        values = _real(scores.astype(np.float64, copy=False), self.probabilities)
        limits = last_log_odds(scores.dtype) if self.probabilities else ()
        z = self.tails(self.finite(values, *limits))
        return self.sigmoid.level + self.sigmoid.upward * (z - self.sigmoid.middle)


def last_log_odds(dtype: np.dtype) -> tuple[float, float]:
    """The log odds at which a format rounds to 0 and to 1: -745.1 and 37.4 in 64 bits."""
    info = np.finfo(dtype)
    # Logarithms are halved, since half of the least number is none.
    p, q = (math.log(gap) - math.log(2) for gap in (info.smallest_subnormal, info.epsneg))
    return p - math.log1p(-math.exp(p)), math.log1p(-math.exp(q)) - q


def fit_platt(rows: Rows, ends: Array) -> PlattSigmoid:
    """Platt scaling of z by Newton's method; the slope is 0 if all z are equal."""
    middle, unit = float(ends[0] / 2 + ends[1] / 2), float(ends[1] / 2 - ends[0] / 2) or 1.0
    total, positive, first, second = rows.fold(_moments, middle, unit)
    target = (1 / (total - positive + 2), (positive + 1) / (positive + 2))  # of labels 0 and 1
    rate = (positive * target[1] + (total - positive) * target[0]) / total
    level, mean = float(logit(rate)), first / total
    spread = math.sqrt(max(second / total - mean**2, 0.0))
    middle += unit * mean
    if spread <= 1e-12:
        entropy = -rate * math.log(rate) - (1 - rate) * math.log1p(-rate)
        return PlattSigmoid(middle, level, 0.0, math.inf, -total * entropy)
    unit *= spread
    rows = rows.map(lambda z: (z - middle) / unit)

    def sums(theta: Array) -> tuple[float, Array, Array]:
        found = rows.fold(_loss, theta, target)
        return found[0], found[1:3], found[[3, 4, 4, 5]].reshape(2, 2)

    theta = np.array([level, 0.0])
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
        warn_unconverged(
            f"the sigmoid did not converge in {_NEWTON_STEPS} Newton steps: {gain:.2g} nats still "
            "to gain; the scores' tails may be too long for it"
        )
    error = 1 / (unit * math.sqrt(total * rate * (1 - rate)))
    return PlattSigmoid(middle, float(theta[0]), float(theta[1]) / unit, error, -value)


def _loss(u: Array, y: Array, weight: Array, theta: Array, target: tuple[float, float]) -> Array:
    """The loss, minus its gradient (2) and the upper triangle of its Hessian (3)."""
    t = np.where(y == 1, target[1], target[0])
    nu = theta[0] + theta[1] * u
    p = expit(nu)
    pull, bend = weight * (t - p), weight * (p * (1 - p))
    value = weight @ (np.logaddexp(0, nu) - t * nu)
    return np.array([value, pull.sum(), pull @ u, bend.sum(), bend @ u, bend @ u**2])


def _moments(z: Array, y: Array, weight: Array, middle: float, unit: float) -> Array:
    """The sums of 1, y, u and u^2, u = (z - middle) / unit: squares of 1e200 are no numbers."""
    u = (z - middle) / unit
    return np.array([weight.sum(), weight @ y, weight @ u, weight @ u**2])


def _real(scores: Array, probabilities: bool) -> Array:
    if not probabilities:
        return scores
    with np.errstate(divide="ignore"):
        return np.log(scores) - np.log1p(-scores)


@dataclass(frozen=True)
class _FiniteEnds:
    """The identity from low to high; beyond, the line shrinks to end at bottom and top.

    If no value was infinite, these are, and later infinite values are put very far out.
    """

    low: float
    high: float
    bottom: float
    top: float

    @classmethod
    def fit(cls, values: Array, weight: Array, n: int) -> "_FiniteEnds":
        """By a line through the ends of n values in a normal quantile plot."""
        total = weight.sum()
        below, above = (float(weight[values == end].sum() / total) for end in (-np.inf, np.inf))
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
        least = 0.5 / n
        z = ndtri([max(below, least), 1 - max(above, least)])
        rate = max((high - low) / (z[1] - z[0]) if high > low else 0.0, _VOTE)
        bottom = low + rate * (ndtri(below / 2) - z[0]) if below > 0 else -math.inf
        top = high + rate * (ndtri(1 - above / 2) - z[1]) if above > 0 else math.inf
        return cls(low, high, bottom, top)

    def __call__(self, values: Array, least: float = -math.inf, most: float = math.inf) -> Array:
        """Finite values; unseen infinite ones become least and most."""
        far = min(_FARTHEST * ((self.high - self.low) or 1.0), np.finfo(np.float64).max / 4)
        values = values.clip(
            max(least, self.low - far) if self.bottom == -math.inf else -math.inf,
            min(most, self.high + far) if self.top == math.inf else math.inf,
        )
        if self.bottom == -math.inf and self.top == math.inf:
            return values
        inside = values.clip(self.low, self.high)
        beyond = values - inside
        room = np.where(beyond < 0, self.low - self.bottom, self.top - self.high)
        with np.errstate(over="ignore", divide="ignore"):
            # A distance d becomes 1 / (1 / d + 1 / room): room, where d is infinite.
            return inside + np.copysign(1 / (1 / np.abs(beyond) + 1 / room), beyond)


@dataclass(frozen=True)
class LogTails:
    """The identity from low to high, and beyond it the logarithm, in units of the width."""

    low: float
    high: float
    width: float

    @classmethod
    def fit(cls, values: Array, weight: Array) -> "LogTails":
        """The range without a hundredth of the cases at either end, made twice as wide."""
        order = np.argsort(values)
        ordered, level = values[order], np.cumsum(weight[order])
        inner = np.searchsorted(level, [_TAIL * level[-1], (1 - _TAIL) * level[-1]])
        low, high = ordered[inner.clip(max=len(ordered) - 1)].tolist()
        width = high - low or float(ordered[-1] - ordered[0]) or 1.0
        return cls(low - width / 2, high + width / 2, width)

    def __call__(self, values: Array) -> Array:
        """The values, those beyond low and high brought nearer."""
        inside = values.clip(self.low, self.high)
        far = np.flatnonzero(values != inside)
        beyond = values[far] - inside[far]
        inside[far] += np.copysign(self.width * np.log1p(np.abs(beyond) / self.width), beyond)
        return inside
