r"""Isotonic regression with bounds on the slope, for squared error and for Bregman divergences.

The links of the Trons (:mod:`bayesloss_book.rivals.generalised_isotonic`) are such regressions:
along sorted scores z_1 <= ... <= z_n find values p that minimise sum_i f_i(p_i) subject to

    lower (z_{i+1} - z_i) <= p_{i+1} - p_i <= upper (z_{i+1} - z_i),   0 <= p_1,   p_n <= 1.

With lower = 0 and an infinite upper this is the isotonic regression that pooling adjacent violators
solves. With a finite upper pooling does not apply, and for f_i a Bregman divergence it matters
which: without slope bounds the regression of squared error, taken in the coordinates U*'(p),
minimises every divergence D_U*(p || q); with them it does not, because the bounds are not linear in
those coordinates.

The method is Mehrotra's predictor-corrector, an interior-point method. Each constraint concerns two
neighbours, so a Newton step costs one tridiagonal system, O(n). The system is solved for the
multipliers, and the differences p_{i+1} - p_i are carried along with p: both stay accurate where
scores lie so close together that the differences would drown in rounding.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solveh_banded
from sklearn.exceptions import ConvergenceWarning

from bayesloss_book import Array

_TOLERANCE = 1e-10  # of stationarity, values scaled to [0, 1]
_GAP = 1e-18  # of complementarity: values are off by its square root where multipliers vanish
_FULL_STEPS = 60  # iterations; some twenty are usual
_SHORTEST = 2.0**-20  # of a step, before the search along it is given up
_BELOW_1 = 1 - 2.0**-53
_BLUR = 2.0**-51  # of a derivative: a few roundings of its target and, bent, of its value


@dataclass(frozen=True)
class IsotonicFit:
    """A regression and how it was reached."""

    values: Array  # (n,), nondecreasing; equal where scores are
    residual: float  # the largest violation of an optimality condition
    n_iter: int
    converged: bool


def lipschitz_isotonic(
    z: ArrayLike, y: ArrayLike, *, lower: float = 0.0, upper: float = 1.0, max_iter: int = 500
) -> IsotonicFit:
    """Minimise the sum of (p_i - y_i)^2 among p in [0, 1] with slopes in [lower, upper].

    Scores z (n,) ascend, and equal ones get equal values; upper may be infinite.
    """
    data = _Data.of(z, y)
    unit = max(1.0, float(np.abs(data.target).max()))
    return _interior_point(
        data,
        (lower, upper),
        lambda p: (p - data.target) / unit,
        lambda p: np.full_like(p, 1 / unit),
        max_iter,
    )


def bregman_isotonic(
    z: ArrayLike,
    image: ArrayLike,
    link: Callable[[Array], Array],
    link_slope: Callable[[Array], Array],
    *,
    lower: float = 0.0,
    upper: float = 1.0,
    max_iter: int = 500,
) -> IsotonicFit:
    """Minimise the sum of D_U*(p_i || q_i) among p in [0, 1] with slopes in [lower, upper].

    Of U* only the link U*' and its slope are needed (at a kink, either side's), and of q only its
    image U*'(q). The residual is in units of U*'(3/4) - U*'(1/4).
    """
    data = _Data.of(z, image)
    lower_quartile, upper_quartile = link(np.array([0.25, 0.75]))
    unit = float(upper_quartile - lower_quartile)
    return _interior_point(
        data,
        (lower, upper),
        lambda p: (link(p) - data.target) / unit,
        lambda p: link_slope(p) / unit,
        max_iter,
    )


@dataclass(frozen=True)
class _Data:
    """Distinct scores, the mean target at each and how many there are, and each datum's place."""

    z: Array
    target: Array
    weight: Array
    place: NDArray[np.intp]

    @classmethod
    def of(cls, z: ArrayLike, target: ArrayLike) -> "_Data":
        scores = np.asarray(z, dtype=float)
        values = np.asarray(target, dtype=float)
        if scores.shape != values.shape or scores.ndim != 1 or not len(scores):
            raise ValueError(
                f"expected scores and targets of one shape (n,), n > 0, got {scores.shape} and "
                f"{values.shape}"
            )
        if not np.isfinite(scores + values).all() or (np.diff(scores) < 0).any():
            raise ValueError("expected sorted scores and targets, all of them finite")
        distinct, place = np.unique(scores, return_inverse=True)
        total = np.bincount(place).astype(float)
        return cls(distinct, np.bincount(place, values) / total, total / total.mean(), place)


def _interior_point(
    data: _Data,
    slopes: tuple[float, float],
    gradient: Callable[[Array], Array],
    curvature: Callable[[Array], Array],
    max_iter: int,
) -> IsotonicFit:
    """Minimise sum_i w_i f_i(p_i) over p in [0, 1] at the distinct scores, given f_i' and f_i''.

    With p_0 = 0 and p_{n+1} = 1 the constraints are least <= D p <= most, (D p)_i = p_{i+1} - p_i.
    With s = D p - least and t = most - D p, their multipliers a, b >= 0 satisfy at the optimum

        w f'(p) = D^T (a - b),   a s = 0,   b t = 0.
    """
    least, s, t = _start(data.z, *slopes)
    a = 0.01 / s
    b = 0.01 / t
    w = data.weight
    residual = math.inf
    overshot = False
    for n_iter in range(max_iter + 1):
        p, total = _values(least + s)
        bend = curvature(p)
        inverse = 1 / (w * bend)
        blur = _BLUR * w * (1 + bend * p)
        slack = w * gradient(p) + np.diff(a - b)  # D^T r = -diff(r)
        # In units of the derivative, or of the values where a steep derivative amplifies rounding.
        residual = float((np.abs(slack) * np.minimum(inverse, 1)).max())
        product = float(a @ s + b @ t) / (2 * len(s))
        if (residual < _TOLERANCE and product < _GAP) or n_iter == max_iter:
            break
        newton = _Newton(s, t, a, b, inverse, slack, total - 1)
        move, da, db, reach = newton.direction(-a, -b)  # the predictor
        after = float((a + reach * da) @ (s + reach * move) + (b + reach * db) @ (t - reach * move))
        if (
            overshot or n_iter >= _FULL_STEPS
        ):  # f' is no straight line: go slowly, and correct for nothing else
            aim = product / 2
            move, da, db, reach = newton.direction(aim / s - a, aim / t - b)
        else:
            aim = product * (after / (2 * len(s) * product)) ** 3  # Mehrotra (1992)
            move, da, db, reach = newton.direction(
                (aim - da * move) / s - a, (aim + db * move) / t - b
            )

        tilt = partial(_tilt, lambda p: w * gradient(p), least, s, t, move, aim)
        # Between two pieces of a link with kinks full steps may go back and forth for ever.
        furthest = 1.0 if n_iter < _FULL_STEPS else 0.5
        rounding = float(blur @ np.abs(np.cumsum(move)[:-1]))
        reach, overshot = _back_from_beyond(tilt, min(furthest, 0.995 * reach), rounding)
        s = s + reach * move
        t = t - reach * move
        a = a + reach * da
        b = b + reach * db
    converged = bool(residual < _TOLERANCE and product < _GAP)
    if not converged:
        warnings.warn(
            f"isotonic regression: after {n_iter} iterations optimality is missed by "
            f"{residual:.2g}, expected at most {_TOLERANCE:.0g}, and complementarity by "
            f"{product:.2g}, expected at most {_GAP:.0g}",
            ConvergenceWarning,
            stacklevel=3,
        )
    return IsotonicFit(p[data.place], residual, n_iter, converged)


def _start(z: Array, lower: float, upper: float) -> tuple[Array, Array, Array]:
    """The least differences, and how far those to begin with are above them and below the most."""
    if not 0 <= lower < upper:
        raise ValueError(f"expected slopes with 0 <= lower < upper, got {lower} and {upper}")
    steps = np.diff(z)
    least = np.concatenate([[0.0], lower * steps, [0.0]])
    room = 1 - least.sum()
    if not room > 0:
        raise ValueError(
            "expected a lower slope below that of a straight line from bound to bound, got "
            f"{least.sum():.6g} times that"
        )
    # No difference exceeds 1: limits of 2 are not felt where they stand in for infinite ones.
    width = np.concatenate([[2.0], np.minimum((upper - lower) * steps, 2.0), [2.0]])
    inner = width[1:-1].sum()
    share = min(0.5, 0.5 * room / inner) if inner else 0.0
    s = share * width
    s[[0, -1]] = (room - share * inner) / 2
    return least, s, width - s


def _values(differences: Array) -> tuple[Array, float]:
    """The values, small ones to full accuracy, strictly within (0, 1); and all the differences."""
    rise = np.cumsum(differences)
    return np.minimum(rise[:-1], _BELOW_1), rise[-1]


class _Newton:
    """Newton steps towards a s = aim, b t = aim and stationarity, all at the same point."""

    def __init__(
        self, s: Array, t: Array, a: Array, b: Array, inverse: Array, slack: Array, excess: float
    ) -> None:
        self.s = s
        self.t = t
        self.a = a
        self.b = b
        self.excess = excess
        self.softness = 1 / (a / s + b / t)
        self.pushed = np.diff(inverse * slack, prepend=0.0, append=0.0)  # D H^-1 slack
        # D H^-1 D^T + diag(softness), the upper bands of a tridiagonal matrix
        self.bands = np.zeros((2, len(s)))
        self.bands[0, 1:] = -inverse
        self.bands[1] = self.softness
        self.bands[1, :-1] += inverse
        self.bands[1, 1:] += inverse

    def direction(self, ca: Array, cb: Array) -> tuple[Array, Array, Array, float]:
        """Changes of D p, a and b, and how far one can go, given c: a's and b's, were p fixed."""
        wanted = ca - cb
        change = solveh_banded(self.bands, self.softness * wanted + self.pushed, check_finite=False)
        # Rounding makes the sum of all differences drift from 1: this much is put right each time.
        change += (self.softness @ (wanted - change) + self.excess) / self.softness.sum()
        move = self.softness * (wanted - change)
        da = ca - self.a / self.s * move
        db = cb + self.b / self.t * move
        ratios = (self.s, move), (self.t, -move), (self.a, da), (self.b, db)
        return move, da, db, min(_longest(x, dx) for x, dx in ratios)


def _longest(x: Array, dx: Array) -> float:
    """The largest step at which x + step dx is not negative."""
    falling = dx < 0
    return float((-x[falling] / dx[falling]).min()) if falling.any() else math.inf


def _tilt(
    gradient: Callable[[Array], Array],
    least: Array,
    s: Array,
    t: Array,
    move: Array,
    aim: float,
    reach: float,
) -> float:
    """The slope, along the way, of sum_i w_i f_i(p_i) - aim sum_i (log s_i + log t_i)."""
    ahead = s + reach * move
    behind = t - reach * move
    objective = gradient(_values(least + ahead)[0]) @ np.cumsum(move)[:-1]
    return float(objective - aim * (move / ahead - move / behind).sum())


def _back_from_beyond(
    tilt: Callable[[float], float], reach: float, rounding: float
) -> tuple[float, bool]:
    """Shorten a step downhill that ends on a steep slope uphill; and whether that was needed."""
    start = tilt(0.0)
    there = tilt(reach)
    overshot = False
    while start < -rounding and there > -start / 2 and reach > _SHORTEST:
        # Where the slope is zero if it changes in a straight line, but no less than a tenth.
        reach *= max(0.1, min(0.5, start / (start - there)))
        there = tilt(reach)
        overshot = True
    return reach, overshot
