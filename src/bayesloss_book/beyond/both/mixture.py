r"""A proper loss as a mixture of cost pairs, and the score at which each of them turns.

With the costs t of a false yes and 1 - t of a missed one, yes is right where the probability is
above t. Schervish (1989): every proper loss is a mixture of such pairs, with a weight w(t). The log
loss has w(t) = 1 / (t (1 - t)), so that w(t) dt is d logit(t). Under a link
:math:`\sigma(\nu(x))` the pair t turns from no to yes at the score :math:`x_t` with
:math:`\nu(x_t) = \mathrm{logit}\, t`. Taken over scores instead of over t the weight is
:math:`d\nu(x) = f(x)^2\, dx`: the square of W&N's Gaussian process is the density of cost pairs
that turn at x.

What one pair loses by deciding with q where p is right is LHG's excess risk (5). Added up with the
weights it is the proper loss's divergence.
"""

import itertools
from collections.abc import Callable

import numpy as np
import torch
from scipy.integrate import fixed_quad, quad
from scipy.special import expit, logit
from torch import Tensor

from bayesloss.learning.sources.priors import ISGP
from bayesloss.proper_losses import ProperLoss
from bayesloss_book import Array
from bayesloss_book.problems.random_sources import inverse_source

_FAR = 34.0  # log odds beyond which a cost pair is cheaper than rounding


def by_decisions(prior: ISGP, Gamma: Tensor, score: float, label: int) -> float:
    """The cost of all cost pairs' decisions at a score, each taken by its own turning score."""

    def cost(log_odds: Array) -> Array:
        yes = score > inverse_source(prior, Gamma, log_odds)
        t = expit(log_odds)
        return np.where(yes, t, 0.0) if label == 0 else np.where(yes, 0.0, 1 - t)

    return _over_log_odds(cost, _source(prior, Gamma, score))  # where the pair turns at the score


def by_scores(prior: ISGP, Gamma: Tensor, low: float, high: float, label: int) -> float:
    """What the loss changes between two scores: costs times f^2, by quadrature over scores."""

    def density(x: float) -> float:
        at = torch.tensor([x], dtype=torch.float64)
        p = float(expit(_source(prior, Gamma, x)))
        return float(prior.derivative(at, Gamma)[0]) * (p if label == 0 else p - 1)

    return float(quad(density, low, high, epsabs=1e-11, epsrel=1e-11, limit=200)[0])


def turning_scores(prior: ISGP, Gamma: Tensor, thresholds: Array, grid: Tensor) -> Array:
    """The scores (K, T) at which cost pairs turn, by interpolation on an ascending grid."""
    nu = prior.source(grid, Gamma).numpy()
    return np.array([np.interp(logit(thresholds), row, grid.numpy()) for row in nu])


def excess_risks(p: Tensor, q: Tensor, thresholds: Array) -> Array:
    """LHG's excess risk (5) of deciding with q (S,) where p (S,) is right: (T,)."""
    t = torch.from_numpy(thresholds)[:, None]
    # A wrong decision costs what separates the two: |t (1 - p) - (1 - t) p|.
    return (((p > t) != (q > t)) * (p - t).abs()).mean(dim=1).numpy()


def added_up(loss: ProperLoss, p: float, q: float) -> float:
    """The excess risks of one target, weighted by the loss and added up over thresholds."""

    def weight(log_odds: Array) -> Array:
        t = expit(log_odds)
        return np.asarray(loss.weight(t)) * t * (1 - t)

    return _weighted_risks(weight, p, q)


def drawn_divergences(prior: ISGP, Gamma: Tensor, p: float, q: float) -> tuple[float, float]:
    """The same where f^2 of a path is the weight over log odds; and the divergence of its loss.

    The loss is that of :func:`by_scores` in which the score is the log odds itself.
    """

    def weight(log_odds: Array) -> Array:
        return prior.derivative(torch.from_numpy(log_odds), Gamma).numpy()

    ends = logit([p, q])
    false_yes = float(fixed_quad(lambda z: expit(z) * weight(z), *ends, n=200)[0])
    missed = float(fixed_quad(lambda z: (expit(z) - 1) * weight(z), *ends, n=200)[0])
    return _weighted_risks(weight, p, q), (1 - p) * false_yes + p * missed


def _weighted_risks(weight: Callable[[Array], Array], p: float, q: float) -> float:
    """The excess risks of one target, with a weight over log odds."""
    truth, given = torch.tensor([[p], [q]], dtype=torch.float64).unbind()

    def density(log_odds: Array) -> Array:
        return excess_risks(truth, given, expit(log_odds)) * weight(log_odds)

    return _over_log_odds(density, *logit([p, q]))


def _over_log_odds(density: Callable[[Array], Array], *jumps: float) -> float:
    """The integral over log odds of a function with jumps, smooth between: Gauss's 200 nodes."""
    parts = itertools.pairwise([-_FAR, *sorted(jumps), _FAR])
    return sum(float(fixed_quad(density, *part, n=200)[0]) for part in parts)


def _source(prior: ISGP, Gamma: Tensor, score: float) -> float:
    return float(prior.source(torch.tensor([score], dtype=torch.float64), Gamma)[0])
