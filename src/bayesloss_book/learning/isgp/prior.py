r"""What the ISGP prior believes: zeros of f, slopes of nu, what a straight line costs, its origin.

W&N section 3 and appendix B, for the basis (14). Three facts carry most of it. f is a stationary
Gaussian process, so Rice's formula counts its level crossings: with r the root mean square of the
harmonic number under the eigenvalues,

    E #{zeros of f in a period} = 2 r,        r^2 = sum m^2 lambda_m / sum lambda_m.

f has no constant term, so it averages to zero over a period and cannot stay above a level all the
way round: to exceed it, f must cross it. And nu(x) is a quadratic form in Gaussian weights, so all
its cumulants are traces.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from bayesloss.learning.sources.priors import ISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book import Array
from bayesloss_book.problems.random_sources import (
    inverse_source as inverse_source,  # the page calls it
)
from bayesloss_book.problems.random_sources import make_prior, whole_period


def rms_harmonic(kernel: TrigonometricKernel, constant: float = 0.0) -> float:
    """The root mean square r of the harmonic number, weighted with the eigenvalues."""
    half = kernel.n_basis // 2
    weight = kernel.eigenvalues[:half].numpy()
    return math.sqrt((np.arange(1, half + 1) ** 2) @ weight / (constant + weight.sum()))


def expected_zeros(kernel: TrigonometricKernel, constant: float = 0.0) -> float:
    """Rice's formula: the mean number of zeros of f in a period, 2 r."""
    return 2 * rms_harmonic(kernel, constant)


def count_zeros(prior: ISGP, Gamma: torch.Tensor, n_grid: int = 4096) -> NDArray[np.int64]:
    """How often f changes sign in a period, for each row of Gamma."""
    sign = np.sign(prior.root(whole_period(prior.kernel, n_grid), Gamma).numpy())
    return (sign != np.roll(sign, -1, axis=-1)).sum(axis=-1)


def zeros_table(
    smoothness: Sequence[float], *, n_basis: int, n_paths: int, seed: int
) -> pd.DataFrame:
    """Zeros of f in a period by a: Rice's formula, and those counted on simulated paths."""
    rows = {}
    for a in smoothness:
        prior = make_prior(a=a, n_basis=n_basis)
        Gamma = prior.sample(n_paths, torch.Generator().manual_seed(seed))
        counts = count_zeros(prior, Gamma)
        middle = prior.root(torch.linspace(-0.5, 0.5, 1025, dtype=torch.float64), Gamma).numpy()
        rows[a] = {
            "rice": expected_zeros(prior.kernel),
            "counted": counts.mean(),
            "error": counts.std(ddof=1) / math.sqrt(n_paths),
            "fewest": counts.min(),
            "most": counts.max(),
            "odd counts": (counts % 2).sum(),
            "half free": (np.abs(np.sign(middle).sum(axis=1)) == middle.shape[1]).mean(),
        }
    return pd.DataFrame(rows).T.rename_axis("a")


def steepest(prior: ISGP, Gamma: torch.Tensor, n_grid: int = 4096) -> Array:
    """The largest f^2 in a period, for each row of Gamma: the steepest slope of nu."""
    return prior.derivative(whole_period(prior.kernel, n_grid), Gamma).numpy().max(axis=-1)


def tail_bound(kernel: TrigonometricKernel, probability: float) -> float:
    """A level that sup f^2 exceeds with at most the given probability."""
    return 2 * float(kernel.variance) * math.log(2 * rms_harmonic(kernel) / probability)


def slope_table(
    smoothness: Sequence[float], *, n_basis: int, n_paths: int, seed: int
) -> pd.DataFrame:
    """Three handles on the steepest slope of nu, and the slope itself."""
    rows = {}
    for a in smoothness:
        prior = make_prior(a=a, n_basis=n_basis, gamma=0.01)
        Gamma = prior.sample(n_paths, torch.Generator().manual_seed(seed))
        grid = whole_period(prior.kernel, 2048)
        sup = steepest(prior, Gamma, 2048)
        lemma = n_basis / 2 * (Gamma[:, :-1] ** 2).sum(dim=1).numpy()  # sup |phi|^2 = M / 2
        # For y = -1 the log loss has slope sigma(nu(x)) f(x)^2.
        slope = torch.sigmoid(prior.source(grid, Gamma)) * prior.derivative(grid, Gamma)
        rows[a] = {
            "log loss, median": float(slope.max(dim=1).values.median()),
            "sup f², median": np.median(sup),
            "Lemma 6, median": np.median(lemma),
            "sup f², 95 %": np.quantile(sup, 0.95),
            "Rice, 95 %": tail_bound(prior.kernel, 0.05),
            "Lemma 6, 95 %": np.quantile(lemma, 0.95),
            "tightest": (lemma / sup).min(),
        }
    return pd.DataFrame(rows).T.rename_axis("a")


def _design(kernel: TrigonometricKernel, x: Array, constant: float) -> tuple[Array, Array]:
    """Basis functions at x and their prior variances, with a constant in front if asked."""
    basis = kernel.basis(torch.from_numpy(x)).numpy()
    variance = kernel.eigenvalues.numpy()
    if constant > 0:
        basis = np.column_stack([np.ones(len(x)), basis])
        variance = np.concatenate([[constant], variance])
    return basis, variance


def least_penalty(
    kernel: TrigonometricKernel, fraction: float, *, tolerance: float, constant: float = 0.0
) -> float:
    """The least prior penalty, w^T Lambda^-1 w / 2 nats, of f within a root mean square of 1."""
    # Whole periods of the highest harmonic are sampled evenly, the ends included by symmetry.
    n = 16 * kernel.n_basis
    x = fraction * (2 * (np.arange(n) + 0.5) / n - 1) / kernel.c
    basis, variance = _design(kernel, x, constant)
    left, values, _ = np.linalg.svd(basis * np.sqrt(variance / n), full_matrices=False)
    target = left.T @ np.full(n, 1 / math.sqrt(n))
    outside = max(0.0, 1 - float(target @ target))

    def deviation(ridge: float) -> float:
        return outside + float(((ridge / (values**2 + ridge) * target) ** 2).sum())

    # the logarithm (base 10) of the ridge
    low = -32.0
    high = 4.0
    if deviation(10**low) > tolerance**2:
        return math.inf
    for _ in range(80):  # the deviation rises with the ridge
        middle = (low + high) / 2
        low, high = (middle, high) if deviation(10**middle) <= tolerance**2 else (low, middle)
    return float(((values / (values**2 + 10**low) * target) ** 2).sum()) / 2


def best_root(
    slope: Callable[[Array], Array], kernel: TrigonometricKernel, reach: float
) -> tuple[float, float]:
    """The best f for a slope on [-reach, reach]: deviations of f from its root, and of nu."""
    x = np.linspace(-reach, reach, 4001)
    basis, _ = _design(kernel, x, 0.0)
    root = np.sqrt(slope(x))
    f = basis @ np.linalg.lstsq(basis, root, rcond=1e-13)[0]
    return float(np.abs(f - root).max()), _source_gap(x, f**2 - root**2)


def flipped_root(slope: Callable[[Array], Array], kernel: TrigonometricKernel) -> float:
    """The error in nu, on the whole period, of a root with mean 0: it changes sign once."""
    x = (2 * (np.arange(2**14) + 0.5) / 2**14 - 1) / kernel.c
    root = np.sqrt(slope(x))
    mass = np.cumsum(root)
    root = np.where(mass <= mass[-1] / 2, -root, root)
    basis, _ = _design(kernel, x, 0.0)
    f = basis @ (2 * basis.T @ root / len(x))
    return _source_gap(x, f**2 - root**2)


def _source_gap(x: Array, excess: Array) -> float:
    """The largest integral of the excess from the middle of x."""
    integral = np.concatenate([[0.0], np.cumsum((excess[1:] + excess[:-1]) / 2 * np.diff(x))])
    return float(np.abs(integral - integral[len(x) // 2]).max())


def cumulants(prior: ISGP, matrix: torch.Tensor) -> tuple[float, float, float]:
    """Mean, standard deviation and skewness of w^T matrix w under the prior: traces of powers."""
    product = matrix @ torch.diag(prior.kernel.eigenvalues)
    first = float(product.trace())
    second = 2 * float((product @ product).trace())
    third = 8 * float((product @ product @ product).trace())
    return first, math.sqrt(second), third / second**1.5 if second > 0 else 0.0


def origin_quadratic(prior: ISGP, x: float, r: float, form: str) -> tuple[torch.Tensor, float]:
    """Appendix B's process at x as w^T matrix w + shift, integrated from r <= 0."""
    level = float(prior.kernel.variance)
    at = {"paths": [x, r], "law": [x - r, 0.0], "printed": [x + r, 0.0]}
    psi = prior.kernel.psi(torch.tensor(at[form], dtype=torch.float64))
    return psi[0] - psi[1], -r * level if form == "printed" else r * level
