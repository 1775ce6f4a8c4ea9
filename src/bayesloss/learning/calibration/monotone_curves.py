r"""Curves of centred ISGPs without PyTorch: whoever only predicts need not wait for it.

For Gamma = (w, w_0, nu_0), with f = w_0 + w^T phi of a trigonometric kernel,

    nu(x) = nu_0 + int_0^x f(z)^2 dz
          = nu_0 + s_0 x + Re sum_k 2 s_k (exp(i k pi c x) - 1) / (i k pi c)

on [-1/c, 1/c], where s is the discrete Fourier transform of f^2. Beyond, where the sum would repeat
itself, the curve goes on straight with its mean slope s_0. That is
:class:`~bayesloss.learning.sources.priors.StraightEnds` of a
:class:`~bayesloss.learning.sources.priors.CentredISGP`, from which it is fitted.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicHermiteSpline
from scipy.stats import norm, qmc

from bayesloss.arrays import Array

_DRAWS = 256  # curves in a table: a power of two, as Sobol's points are balanced for
_HALF_PERIODS = 3  # that a table covers, on either side
_NODES = 200  # of a table for each half period: twelve for a wave of f^2's highest harmonic


@dataclass(frozen=True)
class CurveComponent:
    """A Gaussian N(mode, root root^T) of Gamma, of D numbers, under one of several priors.

    What a fit says of it is as in :class:`~bayesloss.learning.inference.laplace.Posterior`. The
    root is upper triangular, and stored without the zeros below its diagonal.
    """

    prior: int  # its place among the priors
    weight: float  # its probability
    mode: Array  # (D,)
    triangle: Array  # (D (D + 1) / 2,), row by row
    log_evidence: float
    evidence_bound: float
    least_curvature: float
    converged: bool
    n_iter: int

    @property
    def root(self) -> Array:
        """The root with its zeros, of shape (D, D)."""
        D = len(self.mode)
        root = np.zeros((D, D))
        root[np.triu_indices(D)] = self.triangle
        return root


@dataclass(frozen=True)
class CurvePosterior:
    """A mixture of Gaussians of Gamma, all at one c."""

    c: float
    components: list[CurveComponent]
    converged: bool  # whether the search for the mode converged wherever it counts

    @property
    def weights(self) -> Array:
        """The probabilities of the k components, of shape (k,) and sum 1."""
        return np.array([component.weight for component in self.components])

    def draws(self, noise: Array) -> Array:
        """Gamma from standard normal noise (S, D): each component gets its share of the rows."""
        ends = (self.weights.cumsum() * len(noise)).round().astype(int)
        shares = np.split(noise, ends[:-1])
        return np.concatenate(
            [
                component.mode + share @ component.root.T
                for component, share in zip(self.components, shares, strict=True)
            ]
        )


def monotone_curves(x: Array, Gamma: Array, c: float) -> tuple[Array, Array]:
    """The values nu(x) and slopes nu'(x) of x (n,) and Gamma (S, D), both of shape (S, n)."""
    M = Gamma.shape[1] - 2
    w = Gamma[:, : M // 2] - 1j * Gamma[:, M // 2 : M]
    w_0 = Gamma[:, M:-1]
    nu_0 = Gamma[:, -1:]
    # At so many points f^2, whose waves are twice as many, is known from its values.
    f = np.fft.irfft(np.concatenate([w_0, w / 2], axis=1), 2 * M + 2, norm="forward")
    spectrum = np.fft.rfft(f**2, norm="forward")[:, : M + 1]
    s_0 = spectrum[:, :1].real
    s = spectrum[:, 1:] * (2 / (math.pi * c * np.arange(1, M + 1)))
    inside = x.clip(-1 / c, 1 / c)
    wave = np.exp(0.5j * math.pi * c * inside)
    half = np.multiply.accumulate(np.broadcast_to(wave, (M, len(x))))
    # In half angles no digits are lost near x = 0.
    waves = s.real @ (2 * half.real * half.imag) - s.imag @ (2 * half.imag**2)
    nu = nu_0 + s_0 * x + waves
    f_at_x = w_0 + w.real @ half[1::2].real - w.imag @ half[1::2].imag
    slope = np.where(inside == x, f_at_x**2, s_0)
    return nu, slope


class MonotoneCurve(NamedTuple):
    """One such curve of x - centre, and the prior precision of its Gamma."""

    centre: float
    c: float
    Gamma: Array
    precision: Array

    def __call__(self, x: Array) -> Array:
        """The values nu(x), of shape (n,)."""
        nu, _ = monotone_curves(x - self.centre, self.Gamma[None], self.c)
        return nu[0]

    def derivatives(self, x: Array) -> tuple[Array, Array]:
        """The derivatives of nu(x) by x (n,) and by Gamma (n, D)."""
        unit = np.eye(len(self.Gamma))
        # As nu is quadratic in Gamma, its central differences are exact.
        moved = np.concatenate([self.Gamma[None], self.Gamma + unit, self.Gamma - unit])
        nu, slope = monotone_curves(x - self.centre, moved, self.c)
        up, down = np.split(nu[1:], 2)
        return slope[0], (up - down).T / 2


@dataclass(frozen=True)
class CurveTable:
    """Curves of log odds drawn from a posterior, at equally spaced nodes; and their mean."""

    nodes: Array  # (N,)
    curves: Array  # (S, N)
    mean: CubicHermiteSpline  # the log odds of the mean of the curves' probabilities

    @classmethod
    def of(cls, posterior: CurvePosterior) -> "CurveTable":
        """Draw the curves of a posterior, the same each time."""
        last = _HALF_PERIODS * _NODES
        nodes = np.arange(-last, last + 1) / _NODES / posterior.c  # +-1 / c exactly
        Gamma = posterior.draws(_noise(len(posterior.components[0].mode)))
        nu, slope = monotone_curves(nodes, Gamma, posterior.c)
        log_p = np.minimum(nu, 0) - np.log1p(np.exp(-np.abs(nu)))
        log_q = log_p - nu
        log_sum_p, share_p = _shares_of_sum(log_p)
        log_sum_q, share_q = _shares_of_sum(log_q)
        odds = log_sum_p - log_sum_q
        # d log mean(p) = mean of d log p = q d nu, weighted by p; for q likewise.
        slopes = ((share_p * np.exp(log_q) + share_q * np.exp(log_p)) * slope).sum(axis=0)
        # Cubics between nodes increase if no slope exceeds three secants (Fritsch, Carlson 1980).
        secants = np.diff(odds) / np.diff(nodes)
        slopes[1:-1] = np.minimum(slopes[1:-1], 3 * np.minimum(secants[1:], secants[:-1]))
        slopes[0] = secants[0]
        slopes[-1] = secants[-1]
        return cls(nodes=nodes, curves=nu, mean=CubicHermiteSpline(nodes, odds, slopes))

    def mean_at(self, x: Array) -> Array:
        """The log odds of the mean probability at x (n,)."""
        return self._extended(self.mean, x)

    def between_nodes(self, values: Array, x: Array) -> Array:
        """A curve with these values (N,) at the nodes, at x (n,)."""
        return self._extended(lambda at: np.interp(at, self.nodes, values), x)

    def _extended(self, curve: Callable[[Array], Array], x: Array) -> Array:
        """A curve between the nodes, and beyond them the straight lines of its last secants."""
        inside = x.clip(self.nodes[0], self.nodes[-1])
        values = curve(inside)
        beyond = x - inside
        if beyond.any():
            below = _secant(curve, self.nodes[:2])
            above = _secant(curve, self.nodes[-2:])
            values = values + beyond * np.where(beyond < 0, below, above)
        return values


def _secant(curve: Callable[[Array], Array], ends: Array) -> float:
    low, high = curve(ends)
    return (high - low) / (ends[1] - ends[0])


def _shares_of_sum(log_p: Array) -> tuple[Array, Array]:
    """The logarithms of the columns' sums, and what each row has of them."""
    top = log_p.max(axis=0)
    p = np.exp(log_p - top)
    total = p.sum(axis=0)
    return top + np.log(total), p / total


@lru_cache(maxsize=4)
def _noise(size: int) -> Array:
    """Normal numbers of low discrepancy, the same each time."""
    uniform = qmc.Sobol(size, scramble=True, rng=np.random.default_rng(0)).random(_DRAWS)
    return norm.ppf(uniform)
