r"""A proper loss as a mixture of cost pairs, and the score at which each of them turns.

With the costs t of a false yes and 1 - t of a missed one, yes is right where the probability is
above t. Schervish (1989): every proper loss is a mixture of such pairs, with a weight w(t). The log
loss has w(t) = 1 / (t (1 - t)), so that w(t) dt is d logit(t). Under a link
:math:`\sigma(\nu(x))` the pair t turns from no to yes at the score :math:`x_t` with
:math:`\nu(x_t) = \mathrm{logit}\, t`. Taken over scores instead of over t the weight is
:math:`d\nu(x) = f(x)^2\, dx`: the square of W&N's Gaussian process is the density of cost pairs
that turn at x.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import expit
from torch import Tensor

from bayesloss.learning.sources.priors import ISGP

_FAR = 34.0  # log odds beyond which a cost pair is cheaper than rounding


def by_decisions(prior: ISGP, Gamma: Tensor, score: float, label: int) -> float:
    """The cost of all cost pairs' decisions at a score, each taken by its own turning score.

    By quadrature over the log odds of t, on one path Gamma (M + 1,); in nats.
    """
    middle = _source(prior, Gamma, score)

    def cost(log_odds: float) -> float:
        yes = score > _turning_score(prior, Gamma, log_odds)
        t = float(expit(log_odds))
        return (t if yes else 0.0) if label == 0 else (0.0 if yes else 1 - t)

    # The integrand jumps where the pair turns at the score itself.
    parts = [(-_FAR, middle), (middle, _FAR)]
    return sum(quad(cost, *part, epsabs=1e-11, epsrel=1e-11, limit=200)[0] for part in parts)


def by_scores(prior: ISGP, Gamma: Tensor, low: float, high: float, label: int) -> float:
    """What the loss changes between two scores: costs times f^2, by quadrature over scores."""

    def density(x: float) -> float:
        at = torch.tensor([x], dtype=torch.float64)
        p = float(expit(_source(prior, Gamma, x)))
        return float(prior.derivative(at, Gamma)[0]) * (p if label == 0 else p - 1)

    return float(quad(density, low, high, epsabs=1e-11, epsrel=1e-11, limit=200)[0])


def turning_scores(
    prior: ISGP, Gamma: Tensor, thresholds: NDArray[np.float64], grid: Tensor
) -> NDArray[np.float64]:
    """The scores (K, T) at which cost pairs turn, on many links at once.

    By linear interpolation of the log odds, for Gamma (K, M + 1), thresholds (T,) and a grid of
    scores (G,), both ascending; a pair that turns beyond the grid is put at its end.
    """
    log_odds = np.log(thresholds / (1 - thresholds))
    nu = prior.source(grid, Gamma).numpy()
    return np.array([np.interp(log_odds, row, grid.numpy()) for row in nu])


def _source(prior: ISGP, Gamma: Tensor, score: float) -> float:
    return float(prior.source(torch.tensor([score], dtype=torch.float64), Gamma)[0])


def _turning_score(prior: ISGP, Gamma: Tensor, log_odds: float) -> float:
    """Beyond the data the formula of the source goes on as a rising staircase, so a root exists."""

    def over(score: float) -> float:
        return _source(prior, Gamma, score) - log_odds

    reach = 1 / prior.kernel.c
    while over(-float(reach)) > 0 or over(float(reach)) < 0:
        reach = reach * 2
    return float(brentq(over, -float(reach), float(reach), xtol=1e-9))
