r"""A monotone map that brings far-away inputs near, learned without labels.

The trigonometric kernel spreads its basis evenly over a range. Where one value in a hundred lies a
hundred times farther out than the rest, or the inputs are log-normal like incomes and durations,
nearly all data share a few basis functions. The map tames such tails in two steps. With v the
distance from the median in widths of the bulk,

    s = lam asinh((v - xi) / lam),        t = the integral over s of a slope in (0, 1].

The first step runs from affine (lam large) to logarithmic (lam small); xi and lam make the bulk as
straight in a normal quantile plot as they can, by Filliben's (1975) correlation, after the second
step has cut down what is still too far out. Its knots are the letter values (Tukey 1977): the median, then the
points at depths 1/4, 1/8, ... to the extremes. Let z_k be the normal quantiles of their levels. An
interval may be three times as long as a normal sample with the bulk's slope would have it,

    dt_k = min(ds_k, 3 m dz_k),           m = the median of ds_k / dz_k in the bulk,

and rational quadratic splines (Gregory and Delbourgo 1982) join the knots: C^1, strictly
increasing, with inverse and derivative in closed form. Beyond the extremes t goes on growing
logarithmically.

Well-spread data need none of this and get the identity: the map acts only where the range is more
than half as long again as a normal sample with the bulk's slope would have it. That ratio is about
1 for normal samples of any size, below it for large uniform ones, and 1.2 to 1.7 for exponential
ones.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bayesloss.arrays import as_points

__all__ = ["RangeMap"]

_LONG = 1.5  # ranges longer than this, in those of a normal sample with the bulk's slope, are cut
_STEEP = 3.0  # the steepest slope of a normal quantile plot that is kept, in those of the bulk
_BULK = 1 / 16  # letter values of at least this depth make up the bulk


@dataclass(frozen=True)
class RangeMap:
    """A strictly increasing, differentiable map of the real line onto itself.

    Around the median it keeps the data's units and the bulk's width. ``RangeMap()`` is the
    identity.

    Attributes
    ----------
    centre, width : float
        The median of the data and the width of their bulk: v = (x - centre) / width.
    xi, lam : float
        Of the first step.
    knots, values, slopes : Tensor of shape (K,)
        The second step: s, t and dt/ds at the knots. Without knots the map is the identity.
    reach : float
        Beyond the knots t grows by ``reach log(1 + slope (s - knot) / reach)``.

    Examples
    --------
    >>> import torch
    >>> from bayesloss.learning.range_map import RangeMap
    >>> x = torch.linspace(0, 1, 101, dtype=torch.float64)
    >>> RangeMap.fit(x).is_identity
    True
    >>> x[-1] = 1000.0
    >>> g = RangeMap.fit(x)
    >>> bool(g(x)[-1] < 4), bool((g.inverse(g(x)) - x).abs().max() < 1e-9)
    (True, True)
    """

    centre: float = 0.0
    width: float = 1.0
    xi: float = 0.0
    lam: float = math.inf
    knots: Tensor | None = field(default=None, repr=False)
    values: Tensor | None = field(default=None, repr=False)
    slopes: Tensor | None = field(default=None, repr=False)
    reach: float = math.inf

    @classmethod
    def fit(cls, x: Tensor, weight: Tensor | None = None) -> "RangeMap":
        """Learn the map from data, in the time of a sort.

        Parameters
        ----------
        x : Tensor of shape (n,)
        weight : Tensor of shape (n,), optional
            How many times each datum counts, not negative. A common factor changes nothing.

        Returns
        -------
        RangeMap
            The identity where the data are well-spread, see the module's text.

        Raises
        ------
        ValueError
            If x is not finite or has another shape, or weights are no weights.
        """
        points, level = _distribution(x, weight)
        if len(points) < 3:
            return cls()
        z = torch.special.ndtri(level)
        k = _letter_values(level)
        steepest = _STEEP * _bulk_slope(points[k], z[k], level[k])
        longest = _LONG / _STEEP * steepest * (z[-1] - z[0])
        if points[-1] / 2 - points[0] / 2 <= longest / 2:  # halved: a range of 1e308 is a number
            return cls()
        low, high = _bulk(points, level)
        centre, width = float(points[_nearest(level, 0.5)]), float(high - low)
        v = (points - centre) / width
        xi, lam = _straighten(v, level, z)
        s = lam * torch.asinh((v[k] - xi) / lam)
        steepest = _STEEP * _bulk_slope(s, z[k], level[k])
        rise = torch.minimum(s.diff(), steepest * z[k].diff())
        kept = rise / s.diff()
        # What is kept at a knot is what is kept on its better side: the bulk stays as it is.
        slopes = torch.cat([kept[:1], torch.maximum(kept[1:], kept[:-1]), kept[-1:]])
        t = torch.cat([rise.new_zeros(1), rise.cumsum(0)])
        # Units of t in which the median stays, and so does the width of the bulk.
        raw = cls(0.0, 1.0, xi, lam, s, t, slopes, float(steepest))
        origin, low, high = raw(torch.stack([v.new_zeros(()), *_bulk(v, level)]))
        unit = float(high - low)
        return cls(
            centre, width, xi, lam, s, (t - origin) / unit, slopes / unit, float(steepest) / unit
        )

    @property
    def is_identity(self) -> bool:
        """Whether the data that it was fitted to were well-spread."""
        return self.knots is None

    def __call__(self, x: Tensor) -> Tensor:
        """The values t at x, of shape (n,) both; differentiable."""
        x = as_points(x)
        return x if self.knots is None else self._forward(x)[0]

    def derivative(self, x: Tensor) -> Tensor:
        """The derivatives dt/dx, positive, of shape (n,)."""
        x = as_points(x)
        return torch.ones_like(x) if self.knots is None else self._forward(x)[1]

    def inverse(self, t: Tensor) -> Tensor:
        """The x at which the map takes the values t, of shape (n,) both; differentiable."""
        t = as_points(t)
        if self.knots is None or self.values is None or self.slopes is None:
            return t
        t = (t - self.centre) / self.width
        cell, rise, run, left, right = self._cell(self.values, t)
        # With theta = (s - s_k) / ds the spline is a quotient of quadratics; solve for theta.
        y = ((t - self.values[cell]) / rise).clamp(0, 1)
        mean = rise / run
        bend = left + right - 2 * mean
        a = mean - left + y * bend
        b = left - y * bend
        c = -mean * y
        theta = -2 * c / (b + (b**2 - 4 * a * c).sqrt())
        s = self.knots[cell] + run * theta
        for edge, outside in ((0, t < self.values[0]), (-1, t > self.values[-1])):
            sign = -1 if edge == 0 else 1
            excess = (sign * (t - self.values[edge])).clamp_min(0) / self.reach
            beyond = self.knots[edge] + sign * self.reach / self.slopes[edge] * excess.expm1()
            s = torch.where(outside, beyond, s)
        return self.centre + self.width * (self.xi + self.lam * torch.sinh(s / self.lam))

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The values and the derivatives."""
        v = (x - self.centre) / self.width
        inner = (v - self.xi) / self.lam
        t, slope = self._second_step(self.lam * torch.asinh(inner))
        return self.centre + self.width * t, slope / torch.hypot(inner, torch.ones_like(inner))

    def _second_step(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """The values t and the derivatives dt/ds."""
        knots, values, slopes = self.knots, self.values, self.slopes
        if knots is None or values is None or slopes is None:
            return s, torch.ones_like(s)
        cell, rise, run, left, right = self._cell(knots, s)
        theta = ((s - knots[cell]) / run).clamp(0, 1)
        mean, cross = rise / run, theta * (1 - theta)
        below = mean + (left + right - 2 * mean) * cross
        t = values[cell] + rise * (mean * theta**2 + left * cross) / below
        slope = mean**2 * (right * theta**2 + 2 * mean * cross + left * (1 - theta) ** 2) / below**2
        for edge, outside in ((0, s < knots[0]), (-1, s > knots[-1])):
            sign = -1 if edge == 0 else 1
            excess = slopes[edge] * (sign * (s - knots[edge])).clamp_min(0) / self.reach
            t = torch.where(outside, values[edge] + sign * self.reach * excess.log1p(), t)
            slope = torch.where(outside, slopes[edge] / (1 + excess), slope)
        return t, slope

    def _cell(self, ladder: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        """For each point: its interval, dt and ds there, and dt/ds at both ends."""
        cell = (torch.searchsorted(ladder, at.detach()) - 1).clamp(0, len(ladder) - 2)
        rise, run = self.values.diff()[cell], self.knots.diff()[cell]
        return cell, rise, run, self.slopes[cell], self.slopes[cell + 1]


def _distribution(x: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """The distinct points, ascending, and their levels: the part of the data below, half of ties.

    Raises
    ------
    ValueError
        If x is not finite or has another shape, or weights are no weights.
    """
    x = as_points(x).detach()
    if not torch.isfinite(x).all():
        raise ValueError(f"expected finite x, got {int((~torch.isfinite(x)).sum())} that are not")
    if weight is None:
        points, counts = torch.unique(x, return_counts=True)
        mass = counts.to(torch.float64)
    else:
        weight = as_points(weight, "weight").detach()
        if weight.shape != x.shape or not (torch.isfinite(weight) & (weight >= 0)).all():
            raise ValueError(
                f"expected {len(x)} weights, finite and at least 0, got {len(weight)} of which "
                f"{int((~(weight >= 0) | weight.isinf()).sum())} are not"
            )
        points, cell = torch.unique(x[weight > 0], return_inverse=True)
        mass = torch.bincount(cell, weight[weight > 0] / weight.max(), minlength=len(points))
    return points, (mass.cumsum(0) - mass / 2) / mass.sum()


def _nearest(level: Tensor, target: float | Tensor) -> Tensor:
    """The indices of the points whose levels are nearest to the targets."""
    target = torch.as_tensor(target, dtype=level.dtype)
    above = torch.searchsorted(level, target).clamp(1, len(level) - 1)
    return above - (target - level[above - 1] < level[above] - target).to(above.dtype)


def _letter_values(level: Tensor) -> Tensor:
    """The indices of the letter values, ascending, with both extremes."""
    deepest = math.ceil(-math.log2(min(float(level[0]), 1 - float(level[-1]))))
    depth = 0.5 ** torch.arange(1, deepest + 1, dtype=level.dtype)
    ends = torch.tensor([0, len(level) - 1])
    return torch.cat([_nearest(level, depth), _nearest(level, 1 - depth), ends]).unique()


def _bulk_slope(x: Tensor, z: Tensor, level: Tensor) -> float:
    """The median slope of the normal quantile plot between letter values of the bulk."""
    inside = (level >= 0.9 * _BULK) & (level <= 1 - 0.9 * _BULK)
    between = inside[1:] & inside[:-1]
    slopes = x.diff() / z.diff()
    return float((slopes[between] if between.any() else slopes).median())


def _bulk(x: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    """The quartiles; where they coincide, the next letter values that do not."""
    for k in range(2, 60):
        low, high = x[_nearest(level, 0.5**k)], x[_nearest(level, 1 - 0.5**k)]
        if low < high:
            break
    return low, high


def _straighten(v: Tensor, level: Tensor, z: Tensor) -> tuple[float, float]:
    """The xi and lam whose arcsinh makes the normal quantile plot of v straightest, on a grid."""
    even = _nearest(level, torch.linspace(_BULK, 1 - _BULK, 33, dtype=v.dtype))
    k = torch.cat([even, _letter_values(level)]).unique()
    xi = v[_nearest(level, torch.linspace(0, 1, 33, dtype=v.dtype))]
    xi = torch.cat([2 * v[0] - xi, xi, 2 * v[-1] - xi]).unique()  # and as far beyond the extremes
    xi = xi[xi.abs() < 100]  # farther out, v - xi would lose digits
    lam = torch.logspace(-5, 2, 57, dtype=v.dtype)
    rise = torch.asinh((v[k] - xi[:, None, None]) / lam[:, None]).diff()
    dz, inside = z[k].diff(), (level[k[1:]] <= 1 - 0.9 * _BULK) & (level[k[:-1]] >= 0.9 * _BULK)
    steepest = _STEEP * (rise / dz)[..., inside].median(dim=2, keepdim=True).values
    s = torch.minimum(rise, steepest * dz).cumsum(dim=2)
    s, z = s - s.mean(dim=2, keepdim=True), z[k[1:]] - z[k[1:]].mean()
    straightness = (s @ z) / ((s**2).sum(dim=2) * (z**2).sum()).sqrt()
    straightness[(rise <= 0).any(dim=2)] = -1.0  # points that rounding has made one
    best = int(straightness.nan_to_num(-1.0).argmax())
    return float(xi[best // len(lam)]), float(lam[best % len(lam)])
