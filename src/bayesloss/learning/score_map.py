r"""From a classifier's scores to log odds that a sigmoid gives: what a calibrator begins with.

Three strictly increasing steps, the first two without labels.

1. Probabilities become log odds. A classifier that votes, or whose floats run out, gives zeros and
   ones; with e half the least positive probability seen they become (0 + e) : (1 - 0), as if half a
   vote more had been cast on each side (Krichevsky and Trofimov 1981), and the others move along.
   Log odds beyond 12 say how a sum of many terms came out, not how sure one may be: they grow
   logarithmically from there.
2. Heavy tails come near: :class:`~bayesloss.learning.range_map.RangeMap`.
3. Platt's (1999) sigmoid, fitted by maximum likelihood to targets (N_+ + 1) / (N_+ + 2) for the N_+
   positives and 1 / (N_- + 2) for the others: separable data have a finite slope, too.
"""

import math
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from bayesloss.learning.range_map import RangeMap

__all__ = ["ScoreMap", "fit_sigmoid"]

Array = NDArray[np.float64]

_SURE = 12.0  # log odds up to which those of a probability are left as they are
_STRETCH = 4.0  # beyond, they grow like this times the logarithm
_NEWTON_STEPS = 100
_FLAT = 0.5  # the least slope of a sigmoid, in its standard errors under no slope at all


@dataclass(frozen=True)
class ScoreMap:
    """A strictly increasing map from scores to the log odds that a sigmoid gives.

    Attributes
    ----------
    probabilities : bool
        Whether scores are probabilities.
    zero, one : float
        What is added to a probability, and to its complement.
    low, high : float
        Where minus infinity and infinity are put, on the scale that the range map sees.
    range_map : RangeMap
    offset, slope : float
        Of the sigmoid.
    slope_found : float
        The slope of the sigmoid before it was made positive.
    slope_error : float
        The standard error of a slope that is truly zero.
    """

    probabilities: bool
    zero: float
    one: float
    low: float
    high: float
    range_map: RangeMap
    offset: float
    slope: float
    slope_found: float
    slope_error: float

    @classmethod
    def fit(cls, scores: Array, y: Array, weight: Array, probabilities: bool) -> "ScoreMap":
        """Learn the map.

        Parameters
        ----------
        scores : ndarray of shape (n,)
            Without NaN. Infinite ones are put a little beyond the finite ones.
        y : ndarray of shape (n,)
            Labels 0 and 1, both of them present.
        weight : ndarray of shape (n,)
            Positive.
        probabilities : bool
            Whether scores are probabilities.
        """
        zero = one = 0.0
        if probabilities:
            inner = scores[(scores > 0) & (scores < 1)]
            if (scores == 0).any():
                zero = max(0.5 * float(inner.min(initial=1.0)), np.finfo(np.float64).tiny)
            if (scores == 1).any():
                one = max(0.5 * float(1 - inner.max(initial=0.0)), 2.0**-54)
        raw = cls(
            probabilities, zero, one, -math.inf, math.inf, RangeMap(), 0.0, 1.0, math.nan, math.nan
        )
        values = raw._real(scores)
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
        # Half a range's share of a case: as far out as the next case might have been.
        step = (high - low) / max(math.sqrt(len(finite)), 2.0) or 1.0
        low = low - step if (values == -np.inf).any() else -math.inf
        high = high + step if (values == np.inf).any() else math.inf
        values = np.clip(values, low, high)
        range_map = RangeMap.fit(torch.from_numpy(values), torch.from_numpy(weight))
        z = range_map(torch.from_numpy(values)).numpy()
        offset, slope, error = fit_sigmoid(z, y, weight)
        floor = _FLAT * error if math.isfinite(error) else 1.0
        if slope < floor:  # the middle of the data keeps its log odds
            centre = float(np.average(z, weights=weight))
            offset += (slope - floor) * centre
        return cls(
            probabilities,
            zero,
            one,
            low,
            high,
            range_map,
            offset,
            max(slope, floor),
            slope,
            error,
        )

    def __call__(self, scores: Array) -> Array:
        """The log odds that the sigmoid gives to scores of shape (n,)."""
        values = np.clip(self._real(scores), self.low, self.high)
        if not self.range_map.is_identity:
            values = self.range_map(torch.from_numpy(values)).numpy()
        return self.offset + self.slope * values

    def _real(self, scores: Array) -> Array:
        """Scores on the whole real line."""
        if not self.probabilities:
            return scores
        with np.errstate(divide="ignore"):
            odds = np.log(scores + self.zero)
            odds -= np.log1p(-scores) if self.one == 0 else np.log((1 - scores) + self.one)
        beyond = np.abs(odds) - _SURE
        if not (beyond > 0).any():
            return odds
        tail = np.copysign(_SURE + _STRETCH * np.log1p(np.maximum(beyond, 0) / _STRETCH), odds)
        return np.where(beyond > 0, tail, odds)


def fit_sigmoid(z: Array, y: Array, weight: Array) -> tuple[float, float, float]:
    """Platt's sigmoid by Newton's method, with his targets.

    Parameters
    ----------
    z : ndarray of shape (n,)
    y : ndarray of shape (n,)
        Labels 0 and 1.
    weight : ndarray of shape (n,)

    Returns
    -------
    offset, slope : float
        The log odds are offset + slope z. Where all z are equal the slope is 0.
    error : float
        The standard error of the slope if the truth has none; infinite where all z are equal.

    Warns
    -----
    ConvergenceWarning
        If Newton's method did not converge.
    """
    total = weight.sum()
    positive = float(weight @ y)
    negative = float(total - positive)
    target = np.where(y == 1, (positive + 1) / (positive + 2), 1 / (negative + 2))
    mean_target = float(weight @ target) / total
    level = math.log(mean_target / (1 - mean_target))
    centre = float(weight @ z) / total
    u = z - centre
    spread = math.sqrt(float(weight @ u**2) / total)
    if spread <= 1e-12 * max(abs(centre), float(np.abs(z).max()), np.finfo(np.float64).tiny):
        return level, 0.0, math.inf
    u /= spread
    error = 1 / (spread * math.sqrt(total * mean_target * (1 - mean_target)))
    theta = np.array([level, 0.0])

    def objective(theta: Array) -> float:
        nu = theta[0] + theta[1] * u
        return float(weight @ (np.logaddexp(0, nu) - target * nu))

    value = objective(theta)
    for _ in range(_NEWTON_STEPS):
        p = 1 / (1 + np.exp(-np.clip(theta[0] + theta[1] * u, -700, 700)))
        pull, bend = weight * (target - p), weight * (p * (1 - p))
        gradient = np.array([pull.sum(), pull @ u])
        cross = bend @ u
        hessian = np.array([[bend.sum(), cross], [cross, bend @ u**2]])
        hessian[np.diag_indices(2)] *= 1 + 1e-10
        step = np.linalg.solve(hessian, gradient)
        gain = float(gradient @ step)
        if gain < 1e-12 * total:
            break
        fraction = 1.0
        while (new := objective(theta + fraction * step)) > value - 1e-4 * fraction * gain:
            fraction /= 2
            if fraction < 1e-8:
                break
        theta, value = theta + fraction * step, new
    else:
        warnings.warn(
            f"the sigmoid did not converge in {_NEWTON_STEPS} Newton steps: "
            f"{gain:.2g} nats still to gain",
            ConvergenceWarning,
            stacklevel=2,
        )
    slope = float(theta[1]) / spread
    return float(theta[0]) - slope * centre, slope, error
