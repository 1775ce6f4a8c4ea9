r"""The ISGP inside a range, straight lines beyond it.

Where there are no data the trigonometric kernel goes on in waves and the integral of f^2 climbs a
period at a time: a staircase that the data say nothing about. Beyond a range [-e, e] every path
goes on straight instead, with its own mean slope over the last stretch d:

    nu(x) = nu(e) + (x - e) (nu(e) - nu(e - d)) / d    for x > e,

and likewise for x < -e. A path stays continuous and non-decreasing, and linear in the same
coefficients, so that its moments stay exact: with h the features of the ISGP, those beyond are

    h(e) + (x - e) (h(e) - h(e - d)) / d,

and the band widens with the distance by what the data leave open of the slope.
"""

import torch
from torch import Tensor

from bayesloss.learning.sources.basis import Basis
from bayesloss.learning.sources.priors import ISGP

_STRETCH = 0.125  # of which the slope is taken, in halves of the range: longer is too sure


class StraightEnds(ISGP[Basis]):
    """The source of an ISGP on [-edge, edge], continued by straight lines."""

    def __init__(self, prior: ISGP, edge: float = 1.0) -> None:
        super().__init__(prior.kernel, mu=prior.mu, gamma=prior.gamma)
        self.edge = edge

    def source(self, x: Tensor, Gamma: Tensor) -> Tensor:
        """The values nu(x), with shapes as in :meth:`ISGP.source`."""
        held, end, back, times = self._ends(x)
        rise = super().source(end, Gamma) - super().source(back, Gamma)
        return super().source(held, Gamma) + times * rise

    def features(self, x: Tensor) -> Tensor:
        """The functions h(x), continued, and 1."""
        held, end, back, times = self._ends(x)
        rise = super().features(end) - super().features(back)
        return super().features(held) + times[:, None] * rise

    def root(self, x: Tensor, Gamma: Tensor) -> Tensor:
        """The root of nu'(x), with shapes as in :meth:`ISGP.root`."""
        held, end, back, _ = self._ends(x)
        rise = super().source(end, Gamma) - super().source(back, Gamma)
        slope = (rise / (end - back)).clamp_min(0)  # rounding
        return torch.where(held == x, super().root(held, Gamma), slope.sqrt())

    def _ends(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The nearest points in the range, stretches' ends and backs, and x beyond in stretches."""
        held = x.clamp(-self.edge, self.edge)
        end = torch.where(x < 0, -self.edge, self.edge).to(x.dtype)
        back = (1 - _STRETCH) * end
        return held, end, back, (x - held) / (end - back)
