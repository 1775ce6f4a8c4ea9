"""Appendix F as printed; the squared exponential's own Mercer expansion; what Nyström costs."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from numpy.typing import ArrayLike
from scipy.special import erf, erfi
from scipy.stats import norm
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bayesloss.kernels import SquaredExponential
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.sources.nystrom import NystromBasis, product_integrals
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book import Array
from bayesloss_book.drawing.figures import COLOURS

_PRODUCTS = ("mm", "bmm", "mv", "dot")


def printed_product_integral(
    x_i: ArrayLike, x_j: ArrayLike, t: ArrayLike, *, a: float, b: float
) -> Array:
    """Appendix F's integral of k(x_i, z) k(x_j, z) over z from 0 to t, to the letter."""
    x_i, x_j, t = (np.asarray(value, dtype=float) for value in (x_i, x_j, t))
    root = np.sqrt(a)
    growing = b**2 * np.sqrt(np.pi) / (2 * root) * np.exp(a / 4 * (x_i - x_j) ** 2)
    less = erfi(root / 2 * (x_i + x_j - 2 * t))
    return np.asarray(growing * (erfi(root / 2 * (x_i + x_j)) - less))


class HermiteBasis:
    """The exact eigenpairs of b exp(-a/2 (x - z)^2) under the density N(0, s^2)."""

    def __init__(self, *, a: float, b: float, s: float, n_basis: int) -> None:
        alpha = 1 / (4 * s**2)
        beta = a / 2
        c = math.sqrt(alpha**2 + 2 * alpha * beta)
        total = alpha + beta + c
        self.n_basis = n_basis
        self.eigenvalues = b * math.sqrt(2 * alpha / total) * (beta / total) ** np.arange(n_basis)
        self._norm = (c / alpha) ** 0.25
        self._decay, self._scale = c - alpha, math.sqrt(2 * c)

    def basis(self, x: ArrayLike) -> Array:
        """The eigenfunctions, orthonormal under the density: (n,) to (n, M)."""
        x = np.asarray(x, dtype=float)
        return self._norm * np.exp(-self._decay * x**2)[:, None] * self._polynomials(x)

    def psi(self, x: float) -> Array:
        """All products' integrals from 0 to x: by parts, each comes from two of lower degree."""
        n = self.n_basis
        k = 2 * self._decay
        g = self._scale
        at = self._polynomials(np.array([x]))[0]
        zero = self._polynomials(np.zeros(1))[0]
        boundary = math.exp(-k * x**2) * np.outer(at, at) - np.outer(zero, zero)
        out = np.zeros((n, n))
        out[0, 0] = math.sqrt(math.pi / k) / 2 * erf(math.sqrt(k) * x)
        for i in range(n):
            for j in range(max(i, 1), n):  # out[j, i] from row j - 1, already known
                p = j - 1
                value = -g / k * boundary[p, i] / math.sqrt(2 * j)
                if p:
                    value += (g**2 / k - 1) * math.sqrt(p / j) * out[p - 1, i]
                if i:
                    value += g**2 / k * math.sqrt(i / j) * out[p, i - 1]
                out[j, i] = out[i, j] = value
        return self._norm**2 * out

    def _polynomials(self, x: Array) -> Array:
        """Hermite polynomials of the scaled argument, over sqrt(2^n n!): shape (n, M)."""
        out = np.ones((len(x), self.n_basis))
        if self.n_basis > 1:
            out[:, 1] = math.sqrt(2) * self._scale * x
        for m in range(1, self.n_basis - 1):
            out[:, m + 1] = math.sqrt(2 / (m + 1)) * self._scale * x * out[:, m]
            out[:, m + 1] -= math.sqrt(m / (m + 1)) * out[:, m - 1]
        return out


def grid_integrated_square(
    kernel: SquaredExponential, points: Tensor, v: Tensor, x: Tensor
) -> Tensor:
    """The integral of (k(., X) v)^2 for equally spaced X: 2M - 1 error functions."""
    M = len(points)
    index = torch.arange(M)
    gap = points[:, None] - points
    product = kernel.b**2 * torch.exp(-0.25 * kernel.a * gap**2) * torch.outer(v, v)
    coefficients = v.new_zeros(2 * M - 1)
    coefficients = coefficients.index_add(0, (index[:, None] + index).flatten(), product.flatten())
    middles = torch.linspace(float(points[0]), float(points[-1]), 2 * M - 1, dtype=points.dtype)
    root = kernel.a.sqrt()
    columns = torch.erf(root * (x[:, None] - middles)) + torch.erf(root * middles)
    return math.sqrt(math.pi) / (2 * root) * (columns @ coefficients)


def effect_of_sampling(sizes: Sequence[int], n_draws: int, seed: int, a: float) -> pd.DataFrame:
    """The relative error of the three largest eigenvalues, for random points and for quantiles."""
    kernel = SquaredExponential(a=a)
    exact = HermiteBasis(a=a, b=1.0, s=1.0, n_basis=3).eigenvalues
    generator = torch.Generator().manual_seed(seed)

    def error(points: Tensor) -> float:
        top = NystromBasis(kernel, points).eigenvalues[:3].numpy()
        return float((((top - exact) / exact) ** 2).mean())

    rows = {}
    for M in sizes:
        drawn = (torch.randn(M, generator=generator, dtype=torch.float64) for _ in range(n_draws))
        rows[M] = {
            "random points": math.sqrt(float(np.mean([error(points) for points in drawn]))),
            "quantiles": math.sqrt(error(torch.from_numpy(norm.ppf((np.arange(M) + 0.5) / M)))),
        }
    return pd.DataFrame(rows).T.rename_axis("M")


def effect_of_jitter(jitters: Sequence[float], n_basis: int, a: float) -> pd.DataFrame:
    """Two errors against each other: the covariance's, and psi's in units of the prior."""
    kernel = SquaredExponential(a=a)
    points = torch.linspace(-2, 2, n_basis, dtype=torch.float64)
    nodes, weights = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(200))
    rows = {}
    for jitter in jitters:
        basis = NystromBasis(kernel, points, jitter=jitter)
        scaled = basis.basis(points) * basis.eigenvalues.sqrt()
        lost = float((scaled @ scaled.T - kernel(points, points)).abs().max())
        phi = basis.basis(0.5 * (nodes + 1)) * basis.eigenvalues.sqrt()
        exact = phi.T @ (0.5 * weights[:, None] * phi)
        scale = basis.eigenvalues.sqrt()
        found = scale[:, None] * basis.psi(torch.ones(1, dtype=torch.float64))[0] * scale
        rows[f"{jitter:.0e}"] = {"k(X, X)": lost, "psi": float((found - exact).abs().max())}
    return pd.DataFrame(rows).T.rename_axis("jitter")


def operations(action: Callable[[], object]) -> int:
    """How many numbers torch computes in an action, a product of matrices with all its terms."""
    with _Counter() as counter:
        action()
    return counter.total


def new_smoothness(n_data: int, n_basis: int) -> dict[str, Callable[[], Tensor]]:
    """Actions: nu at many x for a new a in three bases; E nu by Nyström, and its gradient."""
    x = torch.linspace(-1, 1, n_data, dtype=torch.float64)
    noise = torch.randn(n_basis, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    points = torch.linspace(-1.2, 1.2, n_basis, dtype=torch.float64)
    fixed = TrigonometricKernel(a=1.5, c=0.5, n_basis=n_basis).integrals(x)

    def trigonometric() -> Tensor:
        kernel = TrigonometricKernel(a=1.6, c=0.5, n_basis=n_basis)
        return fixed @ kernel.square_coefficients(noise * kernel.eigenvalues.sqrt())

    def nystrom() -> Tensor:
        basis = NystromBasis(SquaredExponential(a=9.0), points)
        return basis.integrated_square(x, noise * basis.eigenvalues.sqrt())

    def on_a_grid() -> Tensor:
        basis = NystromBasis(SquaredExponential(a=9.0), points)
        v = basis.weights @ (noise * basis.eigenvalues.sqrt())
        return grid_integrated_square(basis.kernel, points, v, x)

    def gradient() -> Tensor:
        a = torch.tensor(9.0, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(prior_mean_sum(a, points, x), a)
        return slope

    return {
        "trigonometric": trigonometric,
        "Nyström": nystrom,
        "Nyström on a grid": on_a_grid,
        "prior mean": lambda: prior_mean_sum(torch.tensor(9.0, dtype=torch.float64), points, x),
        "its gradient": gradient,
    }


def prior_mean_sum(a: Tensor, points: Tensor, x: Tensor) -> Tensor:
    """The sum over x of E[nu(x) - nu_0] = tr(psi(x) Lambda) = tr(k(X, X)^-1 of the integrals)."""
    kernel = SquaredExponential(a=a)
    noise = 1e-8 * torch.eye(len(points), dtype=torch.float64)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(kernel(points, points) + noise))
    return (product_integrals(kernel, points, x) * inverse).sum()


def draw_eigenpairs(n_points: int, n_functions: int, seed: int, a: float) -> Figure:
    """Nyström eigenfunctions beside the exact ones, and the spectrum with its floor."""
    kernel = SquaredExponential(a=a)
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n_points, generator=generator, dtype=torch.float64)
    found = NystromBasis(kernel, points)
    exact = HermiteBasis(a=a, b=1.0, s=1.0, n_basis=n_points)
    x = np.linspace(-3, 3, 301)
    functions = found.basis(torch.from_numpy(x)).numpy()
    truth = exact.basis(x)
    figure, (left, right) = subplots(2, 1, figsize=(5.8, 7.0))
    colours = [COLOURS[name] for name in ("ISGP", "GP", "PAVA", "accent")]
    for i, colour in zip(range(n_functions), colours, strict=False):
        sign = np.sign((functions[:, i] * truth[:, i] * norm.pdf(x)).sum())
        left.plot(x, truth[:, i], "--", color=colour, linewidth=1.2)
        left.plot(x, sign * functions[:, i], color=colour, label=f"$\\varphi_{i + 1}$")
    left.plot(points.numpy(), np.full(n_points, -2.4), "|", color=COLOURS["data"], markersize=8)
    left.set(xlabel="$x$", ylabel="eigenfunction", ylim=(-2.6, 2.6))
    left.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    index = np.arange(1, n_points + 1)
    right.plot(index, exact.eigenvalues, "--", color="black", linewidth=1.2, label="exact")
    for jitter, colour in ((1e-4, COLOURS["GP"]), (1e-8, COLOURS["ISGP"])):
        basis = NystromBasis(kernel, points, jitter=jitter)
        right.plot(index, basis.eigenvalues, ".-", color=colour, label=f"jitter {jitter:.0e}")
    right.set(yscale="log", xlabel="$i$", ylabel=r"$\lambda_i$", ylim=(1e-11, 2))
    right.legend()
    return figure


def draw_costs(sizes: Sequence[int], n_data: int) -> Figure:
    """What a new smoothness costs in the Nyström basis, over what it costs with waves."""
    figure, axis = subplots(figsize=(5.8, 3.8))
    work = []
    for M in sizes:
        actions = new_smoothness(n_data, M)
        actions["trigonometric"]()  # what it keeps for a number of functions is there from now on
        work.append({name: operations(actions[name]) for name in list(actions)[:3]})
    for name, label, colour in (
        ("Nyström", "Nyström, any points", "GP"),
        ("Nyström on a grid", "Nyström, equally spaced points", "ISGP"),
    ):
        ratio = [one[name] / one["trigonometric"] for one in work]
        axis.plot(sizes, ratio, "o-", color=COLOURS[colour], label=label)
    axis.axhline(1, color="black", linewidth=0.8, linestyle="--")
    axis.set(xscale="log", yscale="log", xlabel="basis functions $M$", ylabel="times the cost")
    axis.set_xticks(list(sizes), [str(size) for size in sizes])
    axis.minorticks_off()
    axis.legend()
    return figure


def draw_posteriors(posteriors: Mapping[str, Posterior], x: Tensor, y: Tensor) -> Figure:
    """Mean and 95 % band of nu under each posterior, by name, over the data x and y, (n,)."""
    grid = torch.linspace(float(x.min()), float(x.max()), 201, dtype=torch.float64)
    figure, axis = subplots(figsize=(5.8, 3.8))
    axis.plot(x, y, ".", color=COLOURS["data"], markersize=4, alpha=0.5)
    styles = zip(posteriors.items(), (("ISGP", "-"), ("GP", "--")), strict=True)
    for (name, posterior), (colour, dashes) in styles:
        mean, variance = posterior.moments(grid)
        half = 1.96 * variance.sqrt()
        axis.fill_between(grid, mean - half, mean + half, color=COLOURS[colour], alpha=0.2)
        axis.plot(grid, mean, dashes, color=COLOURS[colour], label=name)
    axis.set(xlabel="$x$", ylabel=r"$\nu(x)$")
    axis.legend()
    return figure


class _Counter(TorchDispatchMode):
    """Counts the numbers that torch's operations compute while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation; count what it returns, unless that is a view."""
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            results = out if isinstance(out, (tuple, list)) else (out,)
            numbers = sum(result.numel() for result in results if isinstance(result, Tensor))
            name = func.__name__.split(".")[0]
            # A number in a product of matrices is a sum; a decomposition is cubic in the order.
            if name in _PRODUCTS or "linalg" in name or "cholesky" in name:
                numbers *= args[0].shape[-1] if args[0].ndim else 1
            self.total += numbers
        return out
