"""A source inside a range, straight lines beyond it.

Beyond the data a trigonometric f^2 repeats, and nu climbs a staircase that the data say nothing
about. Beyond [-e, e] every path goes on straight instead, with its mean slope over a stretch d:

    nu(x) = nu(e) + (x - e) (nu(e) - nu(e - d)) / d    for x > e,

and likewise for x < -e. So do the features h of the source, and moments stay exact.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from bayesloss.learning.sources.basis import Basis
from bayesloss.learning.sources.priors import SourcePrior


class StraightEnds(SourcePrior[Basis]):
    """The source of another prior on [-edge, edge], continued by straight lines."""

    def __init__(self, prior: SourcePrior, edge: float, stretch: float) -> None:
        super().__init__(prior.kernel, mu=prior.mu, gamma=prior.gamma)
        self.prior, self.edge, self.stretch = prior, edge, stretch
        self.location, self.precision, self.n_twins = prior.location, prior.precision, prior.n_twins

    def quadratic_form(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.prior.quadratic_form()

    def features(self, x: Tensor) -> Tensor:
        return self._continued(self.prior.features, x)

    def source(self, x: Tensor, Gamma: Tensor) -> Tensor:
        some = Gamma.reshape(-1, Gamma.shape[-1])
        values = self._continued(lambda at: self.prior.source(at, some).T, x)
        return values.T.reshape(*Gamma.shape[:-1], len(x))

    def derivative(self, x: Tensor, Gamma: Tensor) -> Tensor:
        inside = x.clamp(-self.edge, self.edge)
        slopes = self.coefficients(Gamma) @ self._slopes(self.prior.features, x).T
        within = self.prior.derivative(inside, Gamma)
        return torch.where(inside == x, within, slopes.clamp_min(0)[..., (x > 0).long()])

    def start(self, x: Tensor) -> Tensor:
        return self.prior.start(x.clamp(-self.edge, self.edge))

    def _continued(self, values: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Functions of x, (n,) to (n, any), continued by straight lines."""
        inside = x.clamp(-self.edge, self.edge)
        return values(inside) + (x - inside)[:, None] * self._slopes(values, x)[(x > 0).long()]

    def _slopes(self, values: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        e, d = self.edge, self.stretch
        low, first, last, high = values(x.new_tensor([-e, d - e, e - d, e]))
        return torch.stack([first - low, high - last]) / d
