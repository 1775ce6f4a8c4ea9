r"""How far log probabilities of many classes lie behind the largest of a row, brought nearer.

Classifiers that take inputs for independent, or fit a covariance to few cases, are sure of
themselves by hundreds of nats. No temperature mends that: what is right among the likely classes is
wrong for the others. Of distances d = max log p - log p

    d  ->  c ((1 + d / c)^g - 1) / g,     0 < g <= 1,

is the identity near 0, and beyond c a power of the distance; g = 1 leaves all as it is, g -> 0 is a
logarithm. It keeps the order within a row. Temperature, g and c are those of the largest
likelihood, as long as g and c gain two nats, one a number.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp, softmax

from bayesloss.arrays import Array
from bayesloss.learning.calibration.calibrator_base import LOG_TEMPERATURE_VARIANCE
from bayesloss.threads import one_thread

_WORTH = 2.0  # nats that g and c have to gain, by Akaike's criterion
# The ends are 4.6 of the prior's standard deviations of log t away.
_TEMPERATURES = (1e-4, 1e4)
_POWERS = (0.02, 1.0)  # below, a power is a logarithm for any log probabilities of 64 bits
_SCALES = (1e-2, 1e3)  # of c: below all distances that matter, and beyond them
_STARTS = ((0.5, 1.0), (0.5, 30.0))  # of g and c
_ENOUGH = 2**21  # numbers that tell g and c well enough: of more, every second case or fewer


@dataclass(frozen=True)
class Tails:
    """A temperature's factor t, and a map of what lies behind the largest of a row."""

    t: float = 1.0
    g: float = 1.0
    c: float = 1.0
    loss: float = math.nan  # of the cases that it was fitted to, with the temperature's penalty

    def __call__(self, logits: Array) -> Array:
        """The mapped and tempered (n, K), with a largest of 0 in each row."""
        return -self.t * self.distances(logits.max(axis=1, keepdims=True) - logits)

    def distances(self, d: Array) -> Array:
        """The mapped distances of d, at least 0."""
        if self.g == 1:
            return d
        return self.c * np.expm1(self.g * np.log1p(d / self.c)) / self.g

    def slopes(self, d: Array) -> tuple[Array, Array]:
        """The derivatives of the mapped distances by log g and by log c."""
        line = np.log1p(d / self.c)
        power = np.exp(self.g * line)
        mapped = self.c * np.expm1(self.g * line) / self.g
        by_g = self.c * power * line - mapped
        by_c = mapped - power * self.c * d / (self.c + d)
        return by_g, by_c


@dataclass(frozen=True)
class _Cases:
    """Distances (n, K) behind the largest of a row, the codes of labels, and weights.

    To each probability a vote is added, which bounds what a single case can say against a tail.
    """

    behind: Array
    codes: NDArray
    weight: Array
    vote: float

    def every(self, step: int) -> "_Cases":
        """Every so many of the cases, by the distance of their label: neither order nor chance."""
        own = self.behind[np.arange(len(self.codes)), self.codes]
        rows = np.lexsort((self.behind.sum(axis=1), self.codes, own))[::step]
        return _Cases(self.behind[rows], self.codes[rows], step * self.weight[rows], self.vote)

    def temperature(self, tails: Tails) -> Tails:
        """The best temperature with a map, which has its own in this class."""
        mapped = tails.distances(self.behind)
        rows = np.arange(len(mapped))

        def penalised(log_t: float) -> float:
            logits = -math.exp(log_t) * mapped
            own = np.exp(logits[rows, self.codes] - logsumexp(logits, axis=1))
            return -float(self.weight @ np.log(own + self.vote)) + _penalty(log_t)

        search = minimize_scalar(penalised, bounds=np.log(_TEMPERATURES), method="bounded")
        return replace(tails, t=math.exp(search.x), loss=float(search.fun))

    def penalised(self, theta: Array) -> tuple[float, Array]:
        """The penalised loss at log t, log g and log c, and its gradient."""
        tails = Tails(*np.exp(theta).tolist())
        gradient = np.array([theta[0] / LOG_TEMPERATURE_VARIANCE, 0.0, 0.0])
        rows = np.arange(len(self.behind))
        mapped = tails.distances(self.behind)
        p = softmax(-tails.t * mapped, axis=1)
        own = p[rows, self.codes]
        value = -float(self.weight @ np.log(own + self.vote)) + _penalty(theta[0])
        p[rows, self.codes] -= 1
        # The derivatives by the mapped distances.
        p *= (-tails.t * self.weight * own / (own + self.vote))[:, None]
        for k, slopes in enumerate((mapped, *tails.slopes(self.behind))):
            gradient[k] += float((p * slopes).sum())
        return value, gradient


def _penalty(log_t: float) -> float:
    return log_t**2 / (2 * LOG_TEMPERATURE_VARIANCE)


@one_thread()
def fit_tails(logits: Array, codes: NDArray, weight: Array, vote: float) -> Tails:
    """The likeliest temperature and map; a weak prior keeps the temperature finite."""
    cases = _Cases(logits.max(axis=1, keepdims=True) - logits, codes, weight, vote)
    plain = cases.temperature(Tails())
    some = cases.every(1 + logits.size // _ENOUGH)
    bounds = np.log([_TEMPERATURES, _POWERS, _SCALES])
    searches = [
        minimize(
            some.penalised, np.log([plain.t, *start]), jac=True, method="L-BFGS-B", bounds=bounds
        )
        for start in _STARTS
    ]
    best = min(searches, key=lambda search: float(search.fun))
    if some.penalised(np.log([plain.t, 1.0, 1.0]))[0] - float(best.fun) < _WORTH:
        return plain
    _, g, c = np.exp(best.x).tolist()
    mapped = cases.temperature(Tails(g=g, c=c))
    if plain.loss - mapped.loss < _WORTH:
        return plain
    return mapped
