"""The ISGP inside a range, straight lines beyond it.

Beyond the data, an ISGP with a trigonometric kernel is a staircase that no datum supports. Beyond
[-e, e], paths here continue straight, each with its mean slope over the last stretch d:

    nu(x) = nu(e) + (x - e) (nu(e) - nu(e - d)) / d    for x > e,

and likewise for x < -e. They stay continuous, non-decreasing and linear in the same coefficients,
so that moments stay exact, and the band widens as far as the slope is uncertain.
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
        """The nearest points in range, the stretches' ends and backs, and x beyond in stretches."""
        held = x.clamp(-self.edge, self.edge)
        end = torch.where(x < 0, -self.edge, self.edge).to(x.dtype)
        back = (1 - _STRETCH) * end
        return held, end, back, (x - held) / (end - back)
