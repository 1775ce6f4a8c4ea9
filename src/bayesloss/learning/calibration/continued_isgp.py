r"""The ISGP around a line on one period of its kernel, and straight lines beyond.

Beyond half a period on either side the kernel would repeat its waves. There each path goes on with
its own mean slope over the period: with e = 1 / c,

    nu(x) = nu(e) + (x - e) (nu(e) - nu(-e)) / (2 e)    for x > e,

and likewise for x < -e. This is linear in the coefficients, so the functions h(x) are continued.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.sources.priors import CentredISGP


class ContinuedISGP(CentredISGP):
    """A :class:`CentredISGP` whose paths are straight beyond [-1/c, 1/c]."""

    def features(self, x: Float[Tensor, " n"]) -> Float[Tensor, "n F"]:
        """The functions h(x), continued, and 1."""
        inside = x.clamp(-self.kernel.edge, self.kernel.edge)
        return super().features(inside) + (x - inside)[:, None] * self._rise()

    def derivative(self, x: Float[Tensor, " n"], Gamma: Tensor) -> Tensor:
        """The values nu'(x): f(x)^2, or the mean slope."""
        edge = self.kernel.edge
        slope = self.coefficients(Gamma) @ self._rise()
        inner = super().derivative(x.clamp(-edge, edge), Gamma)
        return torch.where(x.abs() <= edge, inner, slope[..., None])

    def _rise(self) -> Float[Tensor, " F"]:
        """The mean slopes of the functions h over the period."""
        edge = self.kernel.edge
        low, high = super().features(self.mu.new_tensor([-edge, edge]))
        return (high - low) / (2 * edge)
