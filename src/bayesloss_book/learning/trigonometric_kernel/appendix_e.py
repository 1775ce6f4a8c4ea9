"""Appendix E as printed, and as it should be; figure 4; what the trigonometric prior looks like."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import setp, subplots
from numpy.typing import ArrayLike, NDArray

from bayesloss.learning.sources.priors import ISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book import Array
from bayesloss_book.drawing.figures import COLOURS

Pair = Literal["sine", "cosine", "mixed"]


def mercer_sum(x: ArrayLike, z: ArrayLike, *, a: float, b: float, c: float, n_basis: int) -> Array:
    """The kernel by its definition: the sum of lambda phi(x) phi(z) over the pairs of eq. (14)."""
    x = np.asarray(x, dtype=float)[..., None]
    z = np.asarray(z, dtype=float)[..., None]
    m = np.arange(1.0, n_basis // 2 + 1)
    cosines = np.cos(np.pi * m * c * x) * np.cos(np.pi * m * c * z)
    sines = np.sin(np.pi * m * c * x) * np.sin(np.pi * m * c * z)
    return np.asarray((b * a**-m * (cosines + sines)).sum(axis=-1))


def printed_finite(d: ArrayLike, *, a: float, b: float, M: int) -> NDArray[Any]:
    """Appendix E's k(x, z) for finite M, to the letter, with ``d = c |x - z|``."""
    i = 1j * np.pi * np.asarray(d, dtype=complex)
    numerator = b * (
        a * np.exp(i * (2 * M + 3) / 2)
        + a * np.exp(i / 2)
        - np.exp(i * (M + 1))
        - np.exp(i)
        - 2 * a**M * np.exp(i * (M + 2) / 2) * (a * np.cos(np.pi * np.asarray(d) / 2) - 1)
    )
    denominator = (
        2 * a**M * np.exp(i * (M + 1) / 2) * (a * np.exp(i) - (a**2 + 1) * np.exp(i / 2) + a)
    )
    return np.asarray(numerator / denominator)


def printed_infinite(d: ArrayLike, *, a: float, b: float) -> NDArray[Any]:
    """Appendix E's k(x, z) for infinite M, to the letter, with ``d = c |x - z|``."""
    i = 1j * np.pi * np.asarray(d, dtype=complex)
    second = 1 / (a * np.exp(a - i / 2) - 1)
    return np.asarray(b / 2 * (a / (a - np.exp(i / 2)) + second))


def closed_form(d: ArrayLike, *, a: float, b: float, n_basis: int | None = None) -> Array:
    r"""The kernel as a real function of ``d = c |x - z|``; n_basis = None is the limit of many.

    With theta = pi d, s = sin(theta / 2) and H = M / 2 harmonics, k is b times the quotient of

        (a - 1)(1 - a^-H cos((H + 1) theta)) - 2 a s^2 + 2 a^-H s sin((H + 1/2) theta)

    and (a - 1)^2 + 4 a s^2,

    in which nothing cancels as a goes to 1 or d to 0 or 2. The terms with a^-H vanish in the limit.
    """
    d = np.asarray(d, dtype=float)
    theta = np.pi * (d - 2 * np.round(d / 2))  # within a period, where rounding is least
    s = np.sin(theta / 2)
    denominator = (a - 1) ** 2 + 4 * a * s**2
    if n_basis is None:
        return np.asarray(b * ((a - 1) - 2 * a * s**2) / denominator)
    H = n_basis // 2
    shrunk = math.exp(-H * math.log(a))
    # 1 - a^-H cos(u) = (1 - a^-H) + 2 a^-H sin(u / 2)^2
    first = -math.expm1(-H * math.log(a)) + 2 * shrunk * np.sin((H + 1) * theta / 2) ** 2
    numerator = (a - 1) * first - 2 * a * s**2 + 2 * shrunk * s * np.sin((H + 0.5) * theta)
    return np.asarray(b * numerator / denominator)


def pair_integral(
    pair: Pair, m: ArrayLike, n: ArrayLike, x: ArrayLike, *, c: float, printed: bool = True
) -> Array:
    """Appendix E's integral from 0 to x of sin m sin n, cos m cos n, or sin m cos n ("mixed")."""
    m, n, x = np.broadcast_arrays(*(np.asarray(v, dtype=float) for v in (m, n, x)))
    u = np.pi * c * m * x
    v = np.pi * c * n * x
    same = m == n
    gap = np.where(same, 1.0, np.pi * c * m**2 - np.pi * c * n**2)
    if pair == "sine":
        equal = x / 2 - np.sin(2 * u) / (4 * np.pi * c * m)
        other = n * np.sin(u) * np.cos(v) - m * np.cos(u) * np.sin(v)
    elif pair == "cosine":
        equal = x / 2 + np.sin(2 * u) / (4 * np.pi * c * m)
        other = m * np.sin(u) * np.cos(v) - n * np.cos(u) * np.sin(v)
    else:
        equal = np.sin(u) ** 2 / (2 * np.pi * c * m)
        second = np.sin(u) if printed else np.sin(v)
        other = -n * np.sin(u) * second - m * np.cos(u) * np.cos(v) + m
    return np.where(same, equal, other / gap)


def fourier_square(w: ArrayLike) -> Array:
    """The coefficients (2M + 1,) of f^2: of 1, the M cosines and the M sines."""
    cosine, sine = np.split(np.asarray(w, dtype=float), 2)
    half = (cosine - 1j * sine) / 2  # f = sum over k of F_k exp(i k pi c x), F_{-k} conjugate
    series = np.concatenate([half[::-1].conj(), [0], half])
    square = np.convolve(series, series)[2 * len(half) :]
    return np.concatenate([[square[0].real], 2 * square[1:].real, -2 * square[1:].imag])


def draw_figure_4(a: float, b: float, c: float, harmonics: Sequence[int], entries: int) -> Figure:
    """The kernel for several numbers of harmonics, and the entries of psi for one of them."""
    figure, (left, right) = subplots(2, 1, figsize=(5.8, 6.8), sharex=True)
    x = np.linspace(-1 / c, 1 / c, 401)
    for H, shade in zip(harmonics, np.linspace(0.25, 1.0, len(harmonics)), strict=True):
        values = closed_form(c * np.abs(x), a=a, b=b, n_basis=2 * H)
        left.plot(x, values, color=COLOURS["ISGP"], alpha=shade, label=f"{H} harmonics")
    limit = closed_form(c * np.abs(x), a=a, b=b)
    left.plot(x, limit, ":", color="black", linewidth=1.2, label="infinitely many")
    left.set(ylabel="$k(x, 0)$")
    left.legend()
    kernel = TrigonometricKernel(a=a, b=b, c=c, n_basis=2 * entries)
    psi = kernel.psi(torch.from_numpy(x)).numpy()
    styles = {"cosines": ("ISGP", "-"), "sines": ("GP", "--"), "one of each": ("PAVA", ":")}
    for i in range(2 * entries):
        for j in range(i + 1):
            kind = ["cosines", "one of each", "sines"][(i >= entries) + (j >= entries)]
            colour, dashes = styles[kind]
            right.plot(x, psi[:, i, j], dashes, color=COLOURS[colour], linewidth=1.1)
    for kind, (colour, dashes) in styles.items():
        right.plot([], [], dashes, color=COLOURS[colour], label=kind)
    right.set(xlabel="$x$", ylabel=r"entries of $\psi(x)$")
    right.legend()
    return figure


def draw_printed(a: float, b: float, M: int) -> Figure:
    """Appendix E's two closed forms, to the letter, beside the sums that they stand for."""
    figure, (upper, lower) = subplots(2, 1, figsize=(5.8, 6.6), sharex=True)
    d = np.linspace(0.01, 2, 400)  # from one period's peak to the next
    total = mercer_sum(d, 0, a=a, b=b, c=1, n_basis=M)
    upper.plot(d, total, color=COLOURS["ISGP"], label="the sum, W&N's (14)")
    finite = printed_finite(d, a=a, b=b, M=M).real
    upper.plot(d, finite, "--", color=COLOURS["GP"], label="closed form as printed")
    upper.set(title=f"{M} functions", ylabel="$k$")
    limit = mercer_sum(d, 0, a=a, b=b, c=1, n_basis=1000)
    lower.plot(d, limit, color=COLOURS["ISGP"], label="the sum, W&N's (14)")
    infinite = printed_infinite(d, a=a, b=b)
    lower.plot(d, infinite.real, "--", color=COLOURS["GP"], label="as printed, real part")
    lower.plot(d, infinite.imag, ":", color=COLOURS["accent"], label="as printed, imaginary part")
    lower.set(title="infinitely many", xlabel="$d = c\\,|x - z|$", ylabel="$k$")
    for axis in (upper, lower):
        axis.legend()
    return figure


def draw_missing(sizes: Sequence[int]) -> Figure:
    """The part of the variance of infinitely many functions that M of them lack, a^(-M/2)."""
    figure, axis = subplots(figsize=(5.8, 3.8))
    a = np.linspace(1.0, 1.5, 251)
    colours = ("GP", "PAVA", "ISGP")
    for M, colour, dashes in zip(sizes, colours, (":", "--", "-"), strict=True):
        axis.plot(a, a ** (-M / 2), dashes, color=COLOURS[colour], label=f"$M$ = {M}")
    axis.axvline(1.2, color="black", linewidth=0.8)
    axis.annotate("W&N's $a$", (1.2, 0.8), xytext=(4, 0), textcoords="offset points")
    axis.set(xlabel="$a$", ylabel="missing part of $k(0, 0)$", xlim=(1, 1.5), ylim=(0, 1))
    axis.legend()
    return figure


def draw_priors(n_samples: int, seed: int) -> Figure:
    """Samples of nu - nu_0 from the ISGP as one of a, b, c and M varies; the same draws."""
    base = {"a": 1.2, "c": 1.0, "M": 32}
    varied = {"a": (1.05, 1.2, 3.0), "b": (0.1, 0.2, 0.4), "c": (0.5, 1.0, 2.0), "M": (4, 8, 32)}
    figure, axes = subplots(4, 3, figsize=(8.0, 8.6), sharex=True, sharey="row")
    x = torch.linspace(-1, 1, 301, dtype=torch.float64)
    # Sorted by harmonic, so that a harmonic keeps its draw whatever M is.
    noise = np.random.default_rng(seed).normal(size=(n_samples, 2, 16))
    for row, (name, values) in zip(axes, varied.items(), strict=True):
        for axis, value in zip(row, values, strict=True):
            hyper = base | {name: value}
            H = int(hyper["M"]) // 2
            kernel = TrigonometricKernel(
                a=hyper["a"], b=hyper.get("b"), c=hyper["c"], n_basis=2 * H
            )
            draws = torch.from_numpy(noise[..., :H].reshape(n_samples, -1))
            w = draws * kernel.eigenvalues.sqrt()
            Gamma = torch.cat([w, w.new_zeros((n_samples, 1))], dim=1)
            axis.plot(x, ISGP(kernel).source(x, Gamma).T, color=COLOURS["ISGP"], linewidth=0.9)
            axis.plot(x, kernel.variance * x, "--", color="black", linewidth=1, label="prior mean")
            axis.set_title(f"${name} = {value:g}$")
    setp(axes[:, 0], ylabel=r"$\nu(x) - \nu_0$")
    setp(axes[-1], xlabel="$x$")
    return figure
