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
_ORDINARY = (2.0**-900, 2.0**900)  # sizes of scores whose ranges are numbers, and normal ones
_FEWEST = 2.0  # cases, since there are two classes
_FLAT = 0.5  # the least slope of a sigmoid, in its standard errors under no slope at all
_EQUAL = 1e-12  # the deviation of scores, in halves of their range, that rounding alone may make
_NEWTON_STEPS = 100
_EXACT = 1e-12  # nats a case that one more step may gain at the end
_RIDGE = 1e-12  # a case, added to the Hessian: a steep sigmoid leaves it no curvature
_SHORTEST = 1e-6  # the least part of a step that is tried


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
        """The slope, at least half its standard error; 1 if that is infinite."""
        if not math.isfinite(self.error):
            return max(self.slope, 1.0)
        return max(self.slope, _FLAT * self.error)


@dataclass(frozen=True)
class ScoreTransform:
    """A strictly increasing transform from scores to the log odds of Platt's sigmoid."""

    probabilities: bool
    finite: "_FiniteEnds"
    tails: Callable[[Array], Array]
    sigmoid: PlattSigmoid
    exponent: int = 0  # of the power of two that scores are divided by first

    @classmethod
    def fit(cls, rows: Rows, probabilities: bool) -> "ScoreTransform":
        """Learn the transform from scores without NaN and labels 0 and 1, both present."""
        rows = rows.map(partial(_real, probabilities=probabilities))
        values, weight = rows.distribution(np.append(DEPTHS, _TAIL))
        exponent = _exponent(values)
        if exponent:
            values = np.ldexp(values, -exponent)
            rows = rows.map(lambda x: np.ldexp(x, -exponent))
        finite = _FiniteEnds.fit(values, weight)
        values = finite(values)
        ends = np.array([values.min(), values.max()])
        rows = rows.map(finite)
        tails: Callable[[Array], Array] = LogTails.fit(values, weight)
        sigmoid = fit_platt(rows.map(tails), tails(ends))
        learned = RangeMap.fit(values, weight)
        if not learned.is_identity:
            other = fit_platt(rows.map(learned), learned(ends))
            if other.log_likelihood > sigmoid.log_likelihood:
                tails = learned
                sigmoid = other
        return cls(
            probabilities=probabilities,
            finite=finite,
            tails=tails,
            sigmoid=sigmoid,
            exponent=exponent,
        )

    def __call__(self, scores: NDArray) -> Array:
        """The log odds of scores, finite ones: unseen 0 and 1 are read in their own precision."""
        values = _real(scores.astype(np.float64, copy=False), self.probabilities)
        if self.probabilities:
            least, most = last_log_odds(scores.dtype)
            z = self.tails(self.finite(values, least, most))
        else:
            with np.errstate(over="ignore"):
                values = np.ldexp(values, -self.exponent)
            z = self.tails(self.finite(values))
        return self.sigmoid.level + self.sigmoid.upward * (z - self.sigmoid.middle)


def last_log_odds(dtype: np.dtype) -> tuple[float, float]:
    """The log odds at which a format rounds to 0 and to 1: -745.1 and 37.4 in 64 bits."""
    info = np.finfo(dtype)
    # Logarithms are halved, since half of the least number is none.
    log_p = math.log(info.smallest_subnormal) - math.log(2)
    log_q = math.log(info.epsneg) - math.log(2)
    return log_p - math.log1p(-math.exp(log_p)), math.log1p(-math.exp(log_q)) - log_q


@dataclass(frozen=True)
class _Targets:
    """The probabilities that Platt's sigmoid aims at, of labels 0 and 1."""

    of_0: float
    of_1: float


def fit_platt(rows: Rows, ends: Array) -> PlattSigmoid:
    """Platt scaling of z by Newton's method; the slope is 0 if all z are equal."""
    middle = float(ends[0] / 2 + ends[1] / 2)
    unit = float(ends[1] / 2 - ends[0] / 2) or 1.0
    total, positive, first, second = rows.fold(_moments, middle, unit)
    negative = total - positive
    targets = _Targets(of_0=1 / (negative + 2), of_1=(positive + 1) / (positive + 2))
    rate = (positive * targets.of_1 + negative * targets.of_0) / total
    level = float(logit(rate))
    mean = first / total
    deviation = math.sqrt(max(second / total - mean**2, 0.0))
    middle += unit * mean
    if deviation <= _EQUAL:
        entropy = -rate * math.log(rate) - (1 - rate) * math.log1p(-rate)
        return PlattSigmoid(
            middle=middle,
            level=level,
            slope=0.0,
            error=math.inf,
            log_likelihood=-total * entropy,
        )
    unit *= deviation
    rows = rows.map(lambda z: (z - middle) / unit)

    least = _least_loss(rows, targets, level, total)
    return PlattSigmoid(
        middle=middle,
        level=float(least.theta[0]),
        slope=float(least.theta[1]) / unit,
        error=1 / (unit * math.sqrt(total * rate * (1 - rate))),
        log_likelihood=-least.value,
    )


@dataclass(frozen=True)
class _Loss:
    """Minus the log likelihood of the sigmoid of theta[0] + theta[1] u, and its derivatives."""

    theta: Array  # (2,)
    value: float
    downhill: Array  # minus the gradient, (2,)
    hessian: Array  # (2, 2)

    @classmethod
    def at(cls, rows: Rows, targets: _Targets, theta: Array) -> "_Loss":
        """At theta, of rows of u."""
        sums = rows.fold(_loss_sums, theta, targets)
        return cls(
            theta=theta,
            value=sums[0],
            downhill=sums[1:3],
            hessian=sums[[3, 4, 4, 5]].reshape(2, 2),
        )


def _least_loss(rows: Rows, targets: _Targets, level: float, total: float) -> _Loss:
    """By Newton's method with halved steps, from a flat sigmoid; warns if it does not end."""
    loss = _Loss.at(rows, targets, np.array([level, 0.0]))
    for _ in range(_NEWTON_STEPS):
        step = np.linalg.solve(loss.hessian + _RIDGE * total * np.eye(2), loss.downhill)
        gain = float(loss.downhill @ step)
        if gain < _EXACT * total:
            return loss
        fraction = 1.0
        moved = _Loss.at(rows, targets, loss.theta + step)
        while moved.value > loss.value and fraction > _SHORTEST:
            fraction /= 2
            moved = _Loss.at(rows, targets, loss.theta + fraction * step)
        loss = moved
    warn_unconverged(
        f"the sigmoid did not converge in {_NEWTON_STEPS} Newton steps: {gain:.2g} nats still "
        "to gain; the scores' tails may be too long for it"
    )
    return loss


def _loss_sums(u: Array, y: Array, weight: Array, theta: Array, targets: _Targets) -> Array:
    """The loss, minus its gradient (2) and the upper triangle of its Hessian (3)."""
    target = np.where(y == 1, targets.of_1, targets.of_0)
    nu = theta[0] + theta[1] * u
    p = expit(nu)
    slope = weight * (target - p)
    curvature = weight * (p * (1 - p))
    value = weight @ (np.logaddexp(0, nu) - target * nu)
    return np.array(
        [
            value,
            slope.sum(),
            slope @ u,
            curvature.sum(),
            curvature @ u,
            curvature @ u**2,
        ]
    )


def _moments(z: Array, y: Array, weight: Array, middle: float, unit: float) -> Array:
    """The sums of 1, y, u and u^2, u = (z - middle) / unit: squares of 1e200 are no numbers."""
    u = (z - middle) / unit
    return np.array([weight.sum(), weight @ y, weight @ u, weight @ u**2])


def _exponent(values: Array) -> int:
    """The exponent of the largest finite value if its square or range may be no normal number."""
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    if largest == 0 or _ORDINARY[0] <= largest <= _ORDINARY[1]:
        return 0
    return math.frexp(largest)[1]


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
    def fit(cls, values: Array, weight: Array) -> "_FiniteEnds":
        """By a line through the ends of the values in a normal quantile plot."""
        total = weight.sum()
        below = float(weight[values == -np.inf].sum() / total)
        above = float(weight[values == np.inf].sum() / total)
        finite = values[np.isfinite(values)]
        low = 0.0
        high = 0.0
        if len(finite):
            low = float(finite.min())
            high = float(finite.max())
        # The normal quantiles of low and high, as far out as half a case at most.
        least = 0.5 / max(float(total), _FEWEST)
        z_low, z_high = ndtri([max(below, least), 1 - max(above, least)])
        rate = _VOTE
        if high > low:
            rate = max((high - low) / (z_high - z_low), _VOTE)
        bottom = -math.inf
        if below > 0:
            bottom = low + rate * (ndtri(below / 2) - z_low)
        top = math.inf
        if above > 0:
            top = high + rate * (ndtri(1 - above / 2) - z_high)
        return cls(low=low, high=high, bottom=bottom, top=top)

    def __call__(self, values: Array, least: float = -math.inf, most: float = math.inf) -> Array:
        """Finite values; unseen infinite ones become least and most."""
        span = (self.high - self.low) or 1.0
        far = min(_FARTHEST * span, np.finfo(np.float64).max / 4)
        lowest = -math.inf
        if self.bottom == -math.inf:
            lowest = max(least, self.low - far)
        highest = math.inf
        if self.top == math.inf:
            highest = min(most, self.high + far)
        values = values.clip(lowest, highest)
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
        ordered = values[order]
        upto = np.cumsum(weight[order])
        inner = np.searchsorted(upto, [_TAIL * upto[-1], (1 - _TAIL) * upto[-1]])
        low, high = ordered[inner.clip(max=len(ordered) - 1)].tolist()
        width = high - low or float(ordered[-1] - ordered[0]) or 1.0
        return cls(low=low - width / 2, high=high + width / 2, width=width)

    def __call__(self, values: Array) -> Array:
        """The values, those beyond low and high brought nearer."""
        inside = values.clip(self.low, self.high)
        far = np.flatnonzero(values != inside)
        beyond = values[far] - inside[far]
        inside[far] += np.copysign(self.width * np.log1p(np.abs(beyond) / self.width), beyond)
        return inside
