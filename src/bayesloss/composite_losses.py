"""Composite and margin losses: a proper loss seen through another link (W&N section 2).

A source nu, differentiable and strictly increasing, takes a model's score x to the canonical score
of the loss. The composite link chi and its inverse are, eqs. (3), (4):

    chi = nu^{-1} o (-L'),      chi^{-1} = (-L')^{-1} o nu.
"""

from collections.abc import Callable

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from bayesloss.proper_losses import ProperLoss
from bayesloss.tensors import as_float64

# The inverse of a source is looked for up to here: sixty doublings of the first bracket, [-1, 1].
_FAR = 2.0**60
_NEAR = 1e-17  # where a bracket is narrower, bisection ends: floats near zero could be halved on


class CompositeLoss:
    """A proper loss completed with a source: the composite loss of equation (5).

    Parameters
    ----------
    loss : ProperLoss
    source : callable
        nu, strictly increasing, from and to float64 tensors of shape (n,). Only probabilities whose
        canonical score it takes have a score.

    Examples
    --------
    >>> from bayesloss import CompositeLoss, SquareLoss
    >>> halved = CompositeLoss(SquareLoss(), lambda x: x / 2)
    >>> halved.inverse_link([-1.0, 0.0, 1.0]).tolist()
    [0.25, 0.5, 0.75]
    """

    def __init__(self, loss: ProperLoss, source: Callable[[Tensor], Tensor]) -> None:
        if not isinstance(loss, ProperLoss):
            raise ValueError(f"expected a ProperLoss, got {type(loss).__name__}")
        self.canonical = loss
        self.source = source

    def __repr__(self) -> str:
        return f"CompositeLoss({self.canonical!r})"

    def loss(self, y: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Tensor:
        """What the score x costs when the label is y, -1 or 1: equation (5)."""
        return self.canonical.canonical_loss(y, self._source(x))

    def inverse_link(self, x: ArrayLike | Tensor) -> Tensor:
        """The probability of a score, chi^{-1}(x): equation (4)."""
        return self.canonical.inverse_canonical_link(self._source(x))

    def link(self, u: ArrayLike | Tensor) -> Tensor:
        """The score of a probability, chi(u) = nu^{-1}(-L'(u)); see :meth:`inverse_source`."""
        return self.inverse_source(self.canonical.canonical_link(u))

    def inverse_source(self, a: ArrayLike | Tensor) -> Tensor:
        """The x in [-2^60, 2^60] where the source is a, without gradients; else a ValueError."""
        a = as_float64(a).detach()
        low = torch.full_like(a, -1.0)
        high = torch.full_like(a, 1.0)
        finite = torch.isfinite(a)
        # Double the bracket until it holds the x.
        while True:
            below = finite & (self._source(high) < a)
            above = finite & (self._source(low) > a)
            if not bool((below | above).any()):
                break
            if float(torch.maximum(high, -low).max()) >= _FAR:
                lost = float(a[below | above].flatten()[0])
                raise ValueError(f"expected values that the source takes, got {lost:.6g}")
            high = torch.where(below, 2 * high, high)
            low = torch.where(above, 2 * low, low)
        # Bisect it.
        middle = (low + high) / 2
        while bool(((middle > low) & (middle < high) & (high - low > _NEAR)).any()):
            less = self._source(middle) < a
            low = torch.where(less, middle, low)
            high = torch.where(less, high, middle)
            middle = (low + high) / 2
        return torch.where(finite, middle, a)

    def margin_loss(self, margin: Callable[[Tensor], Tensor], z: ArrayLike | Tensor) -> Tensor:
        """The margin loss G(nu^{-1}(z)) of Theorem 2 (ii); equation (6)'s if the source is odd."""
        return margin(self.inverse_source(z))

    def _source(self, x: ArrayLike | Tensor) -> Tensor:
        x = as_float64(x)
        return self.source(x.reshape(-1)).reshape(x.shape)
