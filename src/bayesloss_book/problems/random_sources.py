r"""Sources drawn from W&N's prior, and the losses that meet them: what the pages on both share.

A proper canonical loss is written with its Fenchel conjugate: with F = -L and y* = (y + 1)/2,

    D_F*(x || -L'(y*)) = F*(x) - y* x,

where L(0) = L(1) = 0 is assumed. Here x may be any real number, also outside the range of a bounded
canonical link; F* is convex with slopes between 0 and 1.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from bayesloss.learning.sources.priors import ISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.proper_losses import LogLoss, MatsushitaLoss, ProperLoss, SquareLoss
from bayesloss_book import Array


def make_prior(
    *, a: float = 2.0, c: float = 1.0, n_basis: int = 64, mu: float = 0.0, gamma: float = 1.0
) -> ISGP:
    """An ISGP with k(0, 0) = 1, which is unbiased if mu = 0."""
    return ISGP(TrigonometricKernel(a=a, c=c, n_basis=n_basis), mu=mu, gamma=gamma)


def whole_period(kernel: TrigonometricKernel, n: int) -> torch.Tensor:
    """A grid of n points on [-1/c, 1/c), evenly spaced round the circle."""
    return (2 * torch.arange(n, dtype=torch.float64) / n - 1) / kernel.c


def inverse_source(prior: ISGP, Gamma: torch.Tensor, values: Array) -> Array:
    """The x with nu(x) = value, by bisection on one path Gamma (M + 1,)."""
    climb = float((Gamma[:-1] ** 2).sum()) / prior.kernel.c  # what nu gains in a period
    wanted = torch.as_tensor(values, dtype=torch.float64)
    low = 2 / prior.kernel.c * torch.floor((wanted - Gamma[-1]) / climb)
    high = low + 2 / prior.kernel.c
    for _ in range(60):
        middle = (low + high) / 2
        below = prior.source(middle, Gamma) < wanted
        low = torch.where(below, middle, low)
        high = torch.where(below, high, middle)
    return ((low + high) / 2).numpy()


def _in_arrays(name: str) -> Callable[..., Array]:
    """A method of a proper loss that returns an array."""
    return lambda self, *given: getattr(self.proper, name)(*given).numpy()


@dataclass(frozen=True)
class CanonicalLoss:
    """A proper loss under its canonical link, arrays in and arrays out."""

    proper: ProperLoss

    __call__ = _in_arrays("canonical_loss")  # of y and x: (5) at a real prediction x, y in {-1, 1}
    partial = _in_arrays("loss")  # of y and u: the loss at a probability u
    bayes_risk = _in_arrays("bayes_risk")
    link = _in_arrays("canonical_link")
    inverse_link = _in_arrays("inverse_canonical_link")
    weight = _in_arrays("weight")  # the slope of the canonical link
    conjugate = _in_arrays("conjugate")  # F*, of minus the Bayes risk


LOSSES: Mapping[str, CanonicalLoss] = {
    "log": CanonicalLoss(LogLoss()),
    "square": CanonicalLoss(SquareLoss()),
    "Matsushita": CanonicalLoss(MatsushitaLoss()),
}


@dataclass(frozen=True)
class MarginLoss:
    """A convex margin loss G, and its slope."""

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]


MARGINS: Mapping[str, MarginLoss] = {
    "logistic": MarginLoss(lambda x: np.logaddexp(0, -x), lambda x: -1 / (1 + np.exp(x))),
    "exponential": MarginLoss(lambda x: np.exp(-x), lambda x: -np.exp(-x)),
    "square": MarginLoss(lambda x: (1 - x) ** 2, lambda x: 2 * (x - 1)),
    "truncated square": MarginLoss(
        lambda x: np.maximum(1 - x, 0) ** 2, lambda x: -2 * np.maximum(1 - x, 0)
    ),
    "linear": MarginLoss(lambda x: -x, lambda x: np.full_like(x, -1.0)),
    "Matsushita": MarginLoss(lambda x: np.hypot(1, x) - x, lambda x: x / np.hypot(1, x) - 1),
    # Slopes between -3/2 and -1/2: the share of (2) stays between 1/4 and 3/4.
    "two slopes": MarginLoss(
        lambda x: -x + 0.5 * np.hypot(1, x), lambda x: -1 + 0.5 * x / np.hypot(1, x)
    ),
}
