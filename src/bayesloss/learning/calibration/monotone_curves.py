r"""Curves of centred ISGPs in NumPy alone: whoever only predicts need not wait for PyTorch.

For Gamma = (w, w_0, nu_0), with f = w_0 + w^T phi of a trigonometric kernel,

    nu(x) = nu_0 + int_0^x f(z)^2 dz
          = nu_0 + s_0 x + Re sum_k 2 s_k (exp(i k pi c x) - 1) / (i k pi c)

on [-1/c, 1/c], where s is the discrete Fourier transform of f^2. Beyond, where the sum would repeat
itself, the curve goes on straight with its mean slope s_0. That is
:class:`~bayesloss.learning.sources.priors.StraightEnds` of a
:class:`~bayesloss.learning.sources.priors.CentredISGP`, from which it is fitted.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from bayesloss.arrays import Array


class CurvePosterior(NamedTuple):
    """A mixture of k Gaussians N(mode, root root^T) of Gamma, of D numbers, at one c."""

    c: float
    weights: Array  # (k,), of sum 1
    modes: Array  # (k, D)
    roots: Array  # (k, D, D)
    facts: list[tuple[Any, ...]]  # of each: its prior's place, and what its fit says of itself

    def draws(self, noise: Array) -> Array:
        """Gamma from standard normal noise (S, D): each component gets its share of the rows."""
        ends = (self.weights.cumsum() * len(noise)).round().astype(int)
        parts = zip(self.modes, self.roots, np.split(noise, ends[:-1]), strict=True)
        return np.concatenate([mode + part @ root.T for mode, root, part in parts])


def monotone_curves(x: Array, Gamma: Array, c: float) -> tuple[Array, Array]:
    """The values nu(x) and slopes nu'(x) of x (n,) and Gamma (S, D), both of shape (S, n)."""
    M = Gamma.shape[1] - 2
    w, w_0, nu_0 = Gamma[:, : M // 2] - 1j * Gamma[:, M // 2 : M], Gamma[:, M:-1], Gamma[:, -1:]
    f = np.fft.irfft(np.concatenate([w_0, w / 2], axis=1), 2 * M + 2, norm="forward")
    s = np.fft.rfft(f**2, norm="forward")[:, : M + 1]
    s_0, s = s[:, :1].real, s[:, 1:] * (2 / (math.pi * c * np.arange(1, M + 1)))
    inside = x.clip(-1 / c, 1 / c)
    wave = np.exp(0.5j * math.pi * c * inside)
    half = np.multiply.accumulate(np.broadcast_to(wave, (M, len(x))))
    # In half angles no digits are lost near x = 0.
    nu = s.real @ (2 * half.real * half.imag) - s.imag @ (2 * half.imag**2)
    f = w_0 + w.real @ half[1::2].real - w.imag @ half[1::2].imag
    return nu_0 + s_0 * x + nu, np.where(inside == x, f**2, s_0)


class MonotoneCurve(NamedTuple):
    """One such curve of x - centre, and the prior precision of its Gamma."""

    centre: float
    c: float
    Gamma: Array
    precision: Array

    def __call__(self, x: Array) -> Array:
        """The values nu(x), of shape (n,)."""
        return monotone_curves(x - self.centre, self.Gamma[None], self.c)[0][0]

    def derivatives(self, x: Array) -> tuple[Array, Array]:
        """The derivatives of nu(x) by x (n,) and by Gamma (n, D)."""
        unit = np.eye(len(self.Gamma))
        # As nu is quadratic in Gamma, its central differences are exact.
        moved = np.concatenate([self.Gamma[None], self.Gamma + unit, self.Gamma - unit])
        nu, slope = monotone_curves(x - self.centre, moved, self.c)
        up, down = np.split(nu[1:], 2)
        return slope[0], (up - down).T / 2
