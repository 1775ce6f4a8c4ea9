r"""Which of W&N's theorems hold for K sources and a softmax, by numbers that could say no.

Sources are increasing functions nu_k with slopes nu_k'; p(x) = softmax(nu_1(x_1), ..., nu_K(x_K)).
Scores are taken from the plane x_1 + ... + x_K = 0, where those of a penalised multinomial
regression lie. A proper loss has the convex function -L on distributions, and the inverse of its
canonical link is the gradient of the conjugate. So on the plane p is an inverse canonical link iff
it is a gradient: iff its Jacobian there,

    J = (diag p - p p^T) diag(nu'),

is symmetric, or the work of p around every closed curve is zero. With three classes the plane has
two coordinates, and one number measures the lack of symmetry, the *curl*.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax

from bayesloss_book import Array

# Two directions of length 1, at right angles, that span the plane of three scores with sum 0.
PLANE = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])

_FAR = 1e3  # scores of probabilities are looked for within
_LITTLE = 1e-12


@dataclass(frozen=True)
class Source:
    """An increasing function and its derivative, both of arrays."""

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]


def line(slope: float) -> Source:
    """The straight line through zero."""
    return Source(lambda x: slope * x, lambda x: np.full_like(x, slope))


def sources_like(kind: str) -> tuple[Source, Source, Source]:
    """Three sources: "one temperature", "a slope a class", "bent" or "with a floor"."""
    if kind == "one temperature":
        return line(1.5), line(1.5), line(1.5)
    if kind == "a slope a class":
        return line(2.0), line(1.0), line(1.0)
    if kind == "bent":
        bent = Source(lambda x: x + np.sin(x) / 2, lambda x: 1 + np.cos(x) / 2)
        return bent, line(1.0), Source(lambda x: x + x**3 / 9, lambda x: 1 + x**2 / 3)
    if kind == "with a floor":
        floor = Source(lambda x: np.logaddexp(0.0, x), lambda x: 1 / (1 + np.exp(-x)))
        return floor, floor, floor
    raise ValueError(f"expected a kind of sources, got {kind!r}")


def inverse_link(sources: Sequence[Source], x: Array) -> Array:
    """The probabilities at scores x, both of shape (..., K)."""
    nu = np.stack([source.value(x[..., k]) for k, source in enumerate(sources)], axis=-1)
    return softmax(nu, axis=-1)


def link(sources: Sequence[Source], p: Array) -> Array:
    """The scores with sum zero at which the probabilities are p, of shape (K,)."""
    ends = np.array([[float(s.value(np.array(x))) for s in sources] for x in (-_FAR, _FAR)])
    low, high = ends - np.log(p)
    least = low.max() + _LITTLE
    most = high.min() - _LITTLE

    def above(x: float, source: Source, target: float) -> float:
        return float(source.value(np.array(x))) - target

    def scores(t: float) -> Array:
        pairs = zip(sources, np.log(p) + t, strict=True)
        return np.array([brentq(above, -_FAR, _FAR, args=pair) for pair in pairs])

    return scores(brentq(lambda t: scores(t).sum(), least, most, xtol=1e-13))


def curl(sources: Sequence[Source], x: Array) -> Array:
    """e_2 . J e_1 - e_1 . J e_2 at scores x of shape (..., 3), for the directions of `PLANE`."""
    p = inverse_link(sources, x)
    q = p * np.stack([source.slope(x[..., k]) for k, source in enumerate(sources)], axis=-1)
    one, two = PLANE
    return (p @ one) * (q @ two) - (p @ two) * (q @ one)


def work(sources: Sequence[Source], corners: Array, n: int = 200) -> float:
    """The integral of p . dx along the closed polygon with these corners, of shape (m, 3)."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    total = 0.0
    for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        x = start + (nodes[:, None] + 1) / 2 * (end - start)
        total += float(weights @ (inverse_link(sources, x) @ (end - start))) / 2
    return total


def losses_of_draws(nu: Array, classes: NDArray[np.int64]) -> dict[str, Array]:
    """Log losses of drawn sources (S, n, K), of their mean, and of the mean probability."""
    rows = np.arange(len(classes))
    log_p = (nu - logsumexp(nu, axis=2, keepdims=True))[:, rows, classes]
    mean = nu.mean(axis=0)
    return {
        "drawn": -log_p.mean(axis=0),
        "mean source": logsumexp(mean, axis=1) - mean[rows, classes],
        "mean probability": np.log(len(nu)) - logsumexp(log_p, axis=0),
    }
