"""A monotone map that brings far-away inputs near, learned without labels.

The trigonometric kernel spreads its basis evenly over a range, of which heavy-tailed data fill a
small part. With v the distance from the median in widths of the bulk, the map is

    s = lam asinh((v - xi) / lam),        t = the integral over s of a slope in (0, 1].

The first step runs from affine (lam large) to logarithmic (lam small); xi and lam make the normal
quantile plot of the bulk straightest, by Filliben's (1975) correlation, after the second step. Its
knots are the letter values (Tukey 1977), at depths 1/2, 1/4, ... to the extremes. With z_k the
normal quantiles of their levels, an interval may be twice as long as for a normal sample,

    dt_k = min(ds_k, 2 m dz_k),           m = the median of ds_k / dz_k in the bulk.

Rational quadratic splines (Gregory and Delbourgo 1982) join the knots: C^1, strictly increasing,
with a closed inverse; beyond them t grows by reach log(1 + slope (s - knot) / reach). The map is
the identity unless the range is more than a quarter longer than that of a normal sample.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.special import ndtri

from bayesloss.arrays import Array

Level = Float[ndarray, " m"]  # of points in ascending order, or the points

_LONG = 1.25  # ranges longer than this, in those of a normal sample with the bulk's slope, are cut
_STEEP = 2.0  # the steepest slope of a normal quantile plot that is kept, in those of the bulk
_FAR = 5.0  # what lies this much farther out than the rest would shorten the rest
_FEW = 0.01  # the part of the data that may lie far out
_BULK = 1 / 16  # letter values of at least this depth make up the bulk
_EVEN = np.linspace(0, 0.5, 17)  # depths of a normal quantile plot
_ROUNDING = 1e-12  # of a point: only rounding tells it from a neighbour that is nearer

# Depths at either end that the map asks for: of data it sees the points nearest to these levels.
DEPTHS = np.append(_EVEN, 0.5 ** np.arange(1.0, 65.0))
_nothing = partial(np.empty, 0)


@dataclass(frozen=True)
class RangeMap:
    """A strictly increasing, differentiable map of the real line that keeps the bulk's units."""

    centre: float = 0.0  # the median of the data
    width: float = 1.0  # of their bulk
    xi: float = 0.0
    lam: float = math.inf
    knots: Array = field(default_factory=_nothing, repr=False)  # the s_k,
    values: Array = field(default_factory=_nothing, repr=False)  # the t_k,
    slopes: Array = field(default_factory=_nothing, repr=False)  # and dt/ds there
    reach: float = math.inf

    @classmethod
    @np.errstate(all="ignore")
    def fit(cls, x: Array, weight: Array | None = None) -> "RangeMap":
        """Learn the map from finite data of shape (n,), in the time of a sort."""
        points, level = _distribution(x, weight)
        if len(points) < 3:
            return cls()
        k = _letter_values(level)
        z = ndtri(level[k])
        slope = _bulk_slope(points[k], z, level[k])
        half_range = points[-1] / 2 - points[0] / 2  # the range may overflow
        if half_range <= _LONG / 2 * slope * (z[-1] - z[0]):
            return cls()
        centre, low, high = _middle(points, level).tolist()
        v = (points - centre) / (high - low)
        xi, lam = _straighten(v, level)
        s = lam * np.arcsinh((v[k] - xi) / lam)
        rise = _kept_rise(s, z, level[k])
        kept = rise / np.diff(s)
        # What is kept at a knot is what is kept on its better side: the bulk stays as it is.
        slopes = np.concatenate([kept[:1], np.maximum(kept[1:], kept[:-1]), kept[-1:]])
        values = np.append(0.0, rise.cumsum())
        reach = _STEEP * float(_bulk_slope(s, z, level[k]))
        # Units of t in which the median stays, and so does the width of the bulk.
        rough = cls(xi=xi, lam=lam, knots=s, values=values, slopes=slopes, reach=reach)
        origin, below, above = rough(_middle(v, level))
        unit = float(above - below)
        slopes = slopes / unit
        if not ((slopes > 0) & np.isfinite(slopes)).all():  # floating point cannot tell knots apart
            return cls()
        return cls(
            centre=centre,
            width=high - low,
            xi=xi,
            lam=lam,
            knots=s,
            values=(values - origin) / unit,
            slopes=slopes,
            reach=reach / unit,
        )

    @property
    def is_identity(self) -> bool:
        """Whether the data were well spread."""
        return len(self.knots) == 0

    @np.errstate(all="ignore")
    def __call__(self, x: Float[ndarray, " n"]) -> Float[ndarray, " n"]:
        """The values t at x."""
        if self.is_identity:
            return x
        s = self.lam * np.arcsinh(((x - self.centre) / self.width - self.xi) / self.lam)
        piece = self._pieces(self.knots, s)
        theta = ((s - piece.knot) / piece.run).clip(0, 1)
        cross = theta * (1 - theta)
        below = piece.mean + piece.bend * cross
        above = piece.rise * (piece.mean * theta**2 + piece.left * cross)
        t = piece.value + above / below
        for end, outwards in ((0, -1), (-1, 1)):  # the first knot, and the last
            far = (outwards * (s - self.knots[end])).clip(min=0)
            excess = self.slopes[end] * far / self.reach
            beyond = self.values[end] + outwards * self.reach * np.log1p(excess)
            t = np.where(excess > 0, beyond, t)
        return self.centre + self.width * t

    @np.errstate(all="ignore")
    def inverse(self, t: Float[ndarray, " n"]) -> Float[ndarray, " n"]:
        """The x at which the map takes the values t."""
        if self.is_identity:
            return t
        t = (t - self.centre) / self.width
        piece = self._pieces(self.values, t)
        # With theta = (s - s_k) / ds the spline is a quotient of quadratics; solve for theta.
        y = ((t - piece.value) / piece.rise).clip(0, 1)
        a = piece.mean - piece.left + y * piece.bend
        b = piece.left - y * piece.bend
        c = -piece.mean * y
        theta = -2 * c / (b + np.sqrt(b**2 - 4 * a * c))
        s = piece.knot + piece.run * theta
        for end, outwards in ((0, -1), (-1, 1)):
            excess = (outwards * (t - self.values[end])).clip(min=0) / self.reach
            step = self.reach / self.slopes[end] * np.expm1(excess)
            s = np.where(excess > 0, self.knots[end] + outwards * step, s)
        return self.centre + self.width * (self.xi + self.lam * np.sinh(s / self.lam))

    def _pieces(self, edges: Float[ndarray, " K"], at: Float[ndarray, " n"]) -> "_Pieces":
        """The spline's piece for each point, found between its edges: knots, or values there."""
        k = (np.searchsorted(edges, at) - 1).clip(0, len(edges) - 2)
        return _Pieces(
            knot=self.knots[k],
            value=self.values[k],
            run=np.diff(self.knots)[k],
            rise=np.diff(self.values)[k],
            left=self.slopes[k],
            right=self.slopes[k + 1],
        )


@dataclass(frozen=True)
class _Pieces:
    """From a knot to the next, each: s and t at the first, the steps, and dt/ds at both."""

    knot: Array
    value: Array
    run: Array  # the step of s,
    rise: Array  # and that of t
    left: Array
    right: Array

    @cached_property
    def mean(self) -> Array:
        """The mean slope."""
        return self.rise / self.run

    @cached_property
    def bend(self) -> Array:
        """By how much the slopes at the ends exceed the mean."""
        return self.left + self.right - 2 * self.mean


def robust_reach(x: Array, weight: Array | None = None) -> float:
    """How far from zero the data lie, ignoring at most one in a hundred that lies farther out."""
    largest = float(np.abs(x).max())
    learned = RangeMap.fit(x, weight)
    if learned.is_identity:
        return largest
    distances, level = _distribution(np.abs(x), weight)
    most = distances[min(int(np.searchsorted(level, 1 - _FEW)), len(distances) - 1)]
    reach = max(float(np.abs(learned(x)).max()), float(most))
    if largest > _FAR * reach:
        return reach
    return largest


def _distribution(x: Array, weight: Array | None) -> tuple[Level, Level]:
    """The distinct points, ascending, and the part of the data below each, with half of ties."""
    if weight is None or (weight == weight.max()).all():
        points, mass = np.unique(x, return_counts=True)
    else:
        counted = weight > 0
        points, place = np.unique(x[counted], return_inverse=True)
        mass = np.bincount(place, weight[counted] / weight.max(), minlength=len(points))
    tied = np.diff(points, prepend=np.nan) <= _ROUNDING * np.abs(points)
    first = np.flatnonzero(~tied)
    points = points[first]
    mass = np.add.reduceat(mass, first)
    return points, (mass.cumsum() - 0.5 * mass) / mass.sum()


def _at_depths(level: Float[ndarray, " m"], depth: Float[ndarray, " k"]) -> Int[ndarray, "2 k"]:
    """The indices of the points nearest to these levels and to 1 less these, ties outwards."""

    def nearest(level: Array) -> Array:
        above = np.searchsorted(level, depth).clip(1, len(level) - 1)
        nearer = depth - level[above - 1] <= level[above] - depth + 1e-9  # ties, despite rounding
        return above - nearer

    return np.stack([nearest(level), len(level) - 1 - nearest(1 - level[::-1])])


def _halves(level: Float[ndarray, " m"]) -> Float[ndarray, " k"]:
    """The depths 1/2, 1/4, ..., beyond the extremes."""
    deepest = math.ceil(-math.log2(min(float(level[0]), 1 - float(level[-1]))))
    return 0.5 ** np.arange(1.0, max(deepest, 1) + 1)


def _letter_values(level: Float[ndarray, " m"]) -> Int[ndarray, " k"]:
    """The indices of the points at the depths 1/2, 1/4, ..., and of the extremes."""
    low, high = _at_depths(level, _halves(level))
    return np.unique(np.concatenate([low, high, [0, len(level) - 1]]))


def _middle(x: Float[ndarray, " m"], level: Float[ndarray, " m"]) -> Float[ndarray, " 3"]:
    """The median, and the quartiles or, where they coincide, the next letter values that do not."""
    low, high = x[_at_depths(level, _halves(level))]
    apart = int((low < high)[1:].argmax()) + 1
    return np.array([(low[0] + high[0]) / 2, low[apart], high[apart]])


def _bulk_slope(x: Float[ndarray, "*any k"], z: Level, level: Level) -> Float[ndarray, "*any"]:
    """The median slope of a normal quantile plot in the bulk."""
    return np.median((np.diff(x) / np.diff(z))[..., _in_bulk(level)], axis=-1)


def _kept_rise(s: Float[ndarray, "*any k"], z: Level, level: Level) -> Float[ndarray, "*any k-1"]:
    """The dt_k: steps of s, none steeper by z than a multiple of the bulk's."""
    steepest = _STEEP * _bulk_slope(s, z, level)
    return np.minimum(np.diff(s), steepest[..., None] * np.diff(z))


def _in_bulk(level: Float[ndarray, " k"]) -> Bool[ndarray, " k-1"]:
    """Which intervals between neighbours lie in the bulk; all if none does."""
    depth = np.minimum(level, 1 - level)
    inside = np.minimum(depth[1:], depth[:-1]) >= 0.9 * _BULK  # the nearest to 1/16 is near it
    return inside | ~inside.any()


def _straighten(v: Float[ndarray, " m"], level: Float[ndarray, " m"]) -> tuple[float, float]:
    """The xi and lam whose arcsinh makes the normal quantile plot of v straightest, on a grid."""
    even = _at_depths(level, _EVEN)
    k = np.unique(np.append(even[:, 2:], _letter_values(level)))
    at = v[np.unique(even)]
    xi = np.concatenate([2 * v[0] - at, at, 2 * v[-1] - at])  # and beyond the extremes
    xi = np.unique(xi[np.abs(xi) < 100])  # farther out, v - xi would lose digits
    lam = np.logspace(-5, 2, 57)  # from logarithms to lines, eight in each factor of ten
    s = np.arcsinh((v[k] - xi[:, None, None]) / lam[:, None])
    z = ndtri(level[k])
    rise = _kept_rise(s, z, level[k])
    t = np.pad(rise.cumsum(axis=2), ((0, 0), (0, 0), (1, 0)))
    t = t - t.mean(axis=2, keepdims=True)
    z = z - z.mean()
    straightness = (t @ z) / np.sqrt((t**2).sum(axis=2) * (z**2).sum())
    straightness[(rise <= 0).any(axis=2)] = -1.0  # points that rounding has made one
    best = int(np.nan_to_num(straightness, nan=-1.0).argmax())
    return float(xi[best // len(lam)]), float(lam[best % len(lam)])
