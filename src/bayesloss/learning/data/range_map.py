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

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bayesloss.arrays import as_points

Level = Float[Tensor, " m"]  # of points in ascending order, or the points

_LONG = 1.25  # ranges longer than this, in those of a normal sample with the bulk's slope, are cut
_STEEP = 2.0  # the steepest slope of a normal quantile plot that is kept, in those of the bulk
_FAR = 5.0  # what lies this much farther out than the rest would shorten the rest
_FEW = 0.01  # the part of the data that may lie far out
_BULK = 1 / 16  # letter values of at least this depth make up the bulk
_EVEN = torch.linspace(0, 0.5, 17, dtype=torch.float64)  # depths of a normal quantile plot

# Depths at either end that the map asks for: of data it sees the points nearest to these levels.
DEPTHS = torch.cat([_EVEN, 0.5 ** torch.arange(1.0, 65.0, dtype=torch.float64)])
_NOTHING = torch.empty(0, dtype=torch.float64)


@dataclass(frozen=True)
class RangeMap:
    """A strictly increasing, differentiable map of the real line that keeps the bulk's units."""

    centre: float = 0.0  # the median of the data
    width: float = 1.0  # of their bulk
    xi: float = 0.0
    lam: float = math.inf
    knots: Tensor = field(default=_NOTHING, repr=False)  # the s_k,
    values: Tensor = field(default=_NOTHING, repr=False)  # the t_k,
    slopes: Tensor = field(default=_NOTHING, repr=False)  # and dt/ds there
    reach: float = math.inf

    @classmethod
    def fit(cls, x: Tensor, weight: Tensor | None = None) -> "RangeMap":
        """Learn the map from finite data of shape (n,), in the time of a sort."""
        points, level = _distribution(x, weight)
        if len(points) < 3:
            return cls()
        k = _letter_values(level)
        z = torch.special.ndtri(level[k])
        slope = float(_bulk_slope(points[k], z, level[k]))
        if points[-1] / 2 - points[0] / 2 <= _LONG / 2 * slope * (z[-1] - z[0]):  # no overflow
            return cls()
        centre, low, high = _middle(points, level).tolist()
        v = (points - centre) / (high - low)
        xi, lam = _straighten(v, level)
        s = lam * torch.asinh((v[k] - xi) / lam)
        rise = _kept_rise(s, z, level[k])
        kept = rise / s.diff()
        # What is kept at a knot is what is kept on its better side: the bulk stays as it is.
        slopes = torch.cat([kept[:1], torch.maximum(kept[1:], kept[:-1]), kept[-1:]])
        values = torch.cat([rise.new_zeros(1), rise.cumsum(0)])
        reach = _STEEP * float(_bulk_slope(s, z, level[k]))
        # Units of t in which the median stays, and so does the width of the bulk.
        origin, below, above = cls(0.0, 1.0, xi, lam, s, values, slopes, reach)(_middle(v, level))
        unit = float(above - below)
        values, slopes = (values - origin) / unit, slopes / unit
        if not ((slopes > 0) & slopes.isfinite()).all():  # floating point cannot tell knots apart
            return cls()
        return cls(centre, high - low, xi, lam, s, values, slopes, reach / unit)

    @property
    def is_identity(self) -> bool:
        """Whether the data were well spread."""
        return len(self.knots) == 0

    def __call__(self, x: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """The values t at x."""
        x = as_points(x)
        if self.is_identity:
            return x
        s = self.lam * torch.asinh(((x - self.centre) / self.width - self.xi) / self.lam)
        cell, rise, run, left, right = self._cell(self.knots, s)
        theta = _within_unit((s - self.knots[cell]) / run)
        mean, cross = rise / run, theta * (1 - theta)
        below = mean + (left + right - 2 * mean) * cross
        t = self.values[cell] + rise * (mean * theta**2 + left * cross) / below
        for k, sign in ((0, -1), (-1, 1)):
            excess = self.slopes[k] * (sign * (s - self.knots[k])).clamp_min(0) / self.reach
            beyond = self.values[k] + sign * self.reach * excess.log1p()
            t = torch.where(excess > 0, beyond, t)
        return self.centre + self.width * t

    def inverse(self, t: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """The x at which the map takes the values t."""
        t = as_points(t)
        if self.is_identity:
            return t
        t = (t - self.centre) / self.width
        cell, rise, run, left, right = self._cell(self.values, t)
        # With theta = (s - s_k) / ds the spline is a quotient of quadratics; solve for theta.
        y = _within_unit((t - self.values[cell]) / rise)
        mean = rise / run
        bend = left + right - 2 * mean
        a = mean - left + y * bend
        b = left - y * bend
        c = -mean * y
        theta = -2 * c / (b + (b**2 - 4 * a * c).sqrt())
        s = self.knots[cell] + run * theta
        for k, sign in ((0, -1), (-1, 1)):
            excess = (sign * (t - self.values[k])).clamp_min(0) / self.reach
            beyond = self.knots[k] + sign * self.reach / self.slopes[k] * excess.expm1()
            s = torch.where(excess > 0, beyond, s)
        return self.centre + self.width * (self.xi + self.lam * torch.sinh(s / self.lam))

    def _cell(self, edges: Float[Tensor, " K"], at: Float[Tensor, " n"]) -> tuple[Tensor, ...]:
        """For each point: its interval, dt and ds there, and dt/ds at both ends."""
        cell = (torch.searchsorted(edges, at.detach()) - 1).clamp(0, len(edges) - 2)
        rise, run = self.values.diff()[cell], self.knots.diff()[cell]
        return cell, rise, run, self.slopes[cell], self.slopes[cell + 1]


def _within_unit(x: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Clip x to [0, 1]; not by clamp, whose gradient at its bounds, the knots, is a convention."""
    return torch.where(x < 0, 0.0, torch.where(x > 1, 1.0, x))


def robust_reach(x: Tensor, weight: Tensor | None = None) -> float:
    """How far from zero the data lie, ignoring at most one in a hundred that lies farther out."""
    largest = float(torch.linalg.vector_norm(x, math.inf))
    learned = RangeMap.fit(x, weight)
    if learned.is_identity:
        return largest
    points, level = _distribution(x.abs(), weight)
    most = points[min(int(torch.searchsorted(level, 1 - _FEW)), len(points) - 1)]
    reach = max(float(learned(x).abs().max()), float(most))
    return reach if largest > _FAR * reach else largest


def _distribution(x: Tensor, weight: Tensor | None) -> tuple[Level, Level]:
    """The distinct points, ascending, and the part of the data below each, with half of ties."""
    x = x.detach().double()
    if weight is None or bool((weight == weight.max()).all()):
        found, counts = np.unique(x.numpy(), return_counts=True)
        points, mass = torch.from_numpy(found), torch.from_numpy(counts).to(x.dtype)
    else:
        points, cell = torch.unique(x[weight > 0], return_inverse=True)
        mass = torch.bincount(cell, weight[weight > 0] / weight.max(), minlength=len(points))
    return points, mass.cumsum(0).sub_(mass, alpha=0.5).div_(mass.sum())


def _at_depths(level: Float[Tensor, " m"], depth: Float[Tensor, " k"]) -> Int[Tensor, "2 k"]:
    """The indices of the points nearest to these levels and to 1 less these, ties outwards."""

    def nearest(level: Tensor) -> Tensor:
        above = torch.searchsorted(level, depth).clamp(1, len(level) - 1)
        nearer = depth - level[above - 1] <= level[above] - depth + 1e-9  # ties, despite rounding
        return above - nearer.to(above.dtype)

    return torch.stack([nearest(level), len(level) - 1 - nearest(1 - level.flip(0))])


def _halves(level: Float[Tensor, " m"]) -> Float[Tensor, " k"]:
    """The depths 1/2, 1/4, ..., beyond the extremes."""
    deepest = math.ceil(-math.log2(min(float(level[0]), 1 - float(level[-1]))))
    return 0.5 ** torch.arange(1, max(deepest, 1) + 1, dtype=level.dtype)


def _letter_values(level: Float[Tensor, " m"]) -> Int[Tensor, " k"]:
    ends = torch.tensor([0, len(level) - 1])
    return torch.cat([*_at_depths(level, _halves(level)), ends]).unique()


def _middle(x: Float[Tensor, " m"], level: Float[Tensor, " m"]) -> Float[Tensor, " 3"]:
    """The median, and the quartiles or, where they coincide, the next letter values that do not."""
    low, high = x[_at_depths(level, _halves(level))]
    apart = int((low < high)[1:].to(torch.int8).argmax()) + 1
    return torch.stack([(low[0] + high[0]) / 2, low[apart], high[apart]])


def _bulk_slope(x: Float[Tensor, "*any k"], z: Level, level: Level) -> Float[Tensor, "*any"]:
    slopes = (x.diff(dim=-1) / z.diff())[..., _in_bulk(level)]
    return slopes.quantile(0.5, dim=-1)


def _kept_rise(s: Float[Tensor, "*any k"], z: Level, level: Level) -> Float[Tensor, "*any k-1"]:
    steepest = _STEEP * _bulk_slope(s, z, level)
    return torch.minimum(s.diff(dim=-1), steepest[..., None] * z.diff())


def _in_bulk(level: Float[Tensor, " k"]) -> Bool[Tensor, " k-1"]:
    """Which intervals between neighbours lie in the bulk; all if none does."""
    depth = torch.minimum(level, 1 - level)
    inside = torch.minimum(depth[1:], depth[:-1]) >= 0.9 * _BULK  # the nearest to 1/16 is near it
    return inside | ~inside.any()


def _straighten(v: Float[Tensor, " m"], level: Float[Tensor, " m"]) -> tuple[float, float]:
    """The xi and lam whose arcsinh makes the normal quantile plot of v straightest, on a grid."""
    even = _at_depths(level, _EVEN)
    k = torch.cat([even[:, 2:].flatten(), _letter_values(level)]).unique()
    at = v[even.unique()]
    xi = torch.cat([2 * v[0] - at, at, 2 * v[-1] - at])  # and beyond the extremes
    xi = xi[xi.abs() < 100].unique()  # farther out, v - xi would lose digits
    lam = torch.logspace(-5, 2, 57, dtype=v.dtype)
    s, z = torch.asinh((v[k] - xi[:, None, None]) / lam[:, None]), torch.special.ndtri(level[k])
    rise = _kept_rise(s, z, level[k])
    s, z = torch.nn.functional.pad(rise.cumsum(dim=2), (1, 0)), z - z.mean()
    s = s - s.mean(dim=2, keepdim=True)
    straightness = (s @ z) / ((s**2).sum(dim=2) * (z**2).sum()).sqrt()
    straightness[(rise <= 0).any(dim=2)] = -1.0  # points that rounding has made one
    best = int(straightness.nan_to_num(-1.0).argmax())
    return float(xi[best // len(lam)]), float(lam[best % len(lam)])
