"""The figures of the page on the ISGP prior."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots

from bayesloss_book.figures import COLOURS
from bayesloss_book.learning.isgp.losses import (
    LOSSES,
    MARGINS,
    failure_frequency,
    failure_probability,
    represented_link,
)
from bayesloss_book.learning.isgp.prior import (
    Array,
    best_root,
    cumulants,
    flipped_root,
    inverse_source,
    level_cost,
    make_prior,
    origin_quadratic,
)

__all__ = [
    "draw_construction",
    "draw_cost",
    "draw_failure",
    "draw_flat_spot",
    "draw_origin",
    "draw_paths",
    "draw_slack",
    "draw_universality",
]


def draw_paths(*, seed: int, n_paths: int = 4, n_basis: int = 64) -> Figure:
    """Sample paths of f, f^2 and nu for four settings of the hyper-parameters."""
    settings = [(1.2, 1.0, 1.0), (2.0, 1.0, 1.0), (8.0, 1.0, 1.0), (2.0, 2.0, 100.0)]
    figure, axes = subplots(3, 4, figsize=(9.0, 6.4), sharex=True, sharey="row")
    x = torch.linspace(-1, 1, 801, dtype=torch.float64)
    for column, (a, c, gamma) in zip(axes.T, settings, strict=True):
        prior = make_prior(a=a, c=c, n_basis=n_basis, gamma=gamma)
        Gamma = prior.sample(n_paths, torch.Generator().manual_seed(seed))
        draws = (prior.root(x, Gamma), prior.derivative(x, Gamma), prior.source(x, Gamma))
        for axis, values in zip(column, draws, strict=True):
            axis.plot(x, values.T, linewidth=1.0)
        column[0].set_title(f"$a$ = {a:g}, $c$ = {c:g}, $\\gamma$ = {gamma:g}", fontsize=9)
        column[0].axhline(0, color="black", linewidth=0.6)
        column[2].plot(x, prior.mean(x), "--", color="black", linewidth=1)
        column[2].set(xlabel="$x$")
    for axis, label in zip(axes[:, 0], ("$f$", "$f^2$", "$\\nu$"), strict=True):
        axis.set(ylabel=label)
    return figure


def draw_flat_spot(*, seed: int) -> Figure:
    """One path of f and of nu over two periods, its flat places, and the inverse at one of them."""
    prior = make_prior(a=2.0, n_basis=16, gamma=1.0)
    Gamma = prior.sample(1, torch.Generator().manual_seed(seed))[0]
    x = torch.linspace(-1, 3, 4001, dtype=torch.float64)
    f, nu = prior.root(x, Gamma), prior.source(x, Gamma)
    zeros = x[:-1][torch.sign(f[:-1]) != torch.sign(f[1:])]
    figure, (left, middle, right) = subplots(1, 3, figsize=(9.0, 3.0))
    left.plot(x, f, color=COLOURS["ISGP"])
    left.axhline(0, color="black", linewidth=0.6)
    left.plot(zeros, 0 * zeros, "o", color=COLOURS["GP"], markersize=4)
    left.set(xlabel="$x$", ylabel="$f$")
    middle.plot(x, nu, color=COLOURS["ISGP"])
    middle.plot(zeros, prior.source(zeros, Gamma), "o", color=COLOURS["GP"], markersize=4)
    middle.set(xlabel="$x$", ylabel="$\\nu$")
    for axis in (left, middle):
        axis.axvspan(1, 3, color="black", alpha=0.07, linewidth=0)
    centre = float(prior.source(zeros[:1], Gamma)[0])
    z = centre + np.linspace(-0.02, 0.02, 401)
    right.plot(z - centre, inverse_source(prior, Gamma, z), color=COLOURS["ISGP"])
    right.plot(0, float(zeros[0]), "o", color=COLOURS["GP"], markersize=4)
    right.set(xlabel="$z$ less its value at the flat place", ylabel="$\\nu^{-1}(z)$")
    return figure


def draw_cost(
    smoothness: Sequence[float], *, n_basis: int, tolerance: float, constant: float
) -> Figure:
    """What f near 1 costs on a part of the period, without and with a constant basis function."""
    fractions = np.linspace(0.02, 1.0, 50)
    figure, axis = subplots(figsize=(7.2, 3.8))
    for a, colour in zip(smoothness, ("ISGP", "GP", "PAVA"), strict=False):
        kernel = make_prior(a=a, n_basis=n_basis).kernel
        for share, dashes in ((0.0, "-"), (constant, "--")):
            scaled = kernel.scaled(1 - share)
            cost = [
                level_cost(scaled, rho, tolerance=tolerance, constant=share) for rho in fractions
            ]
            name = f"$a$ = {a:g}" + (", with a constant" if share else "")
            axis.plot(fractions, cost, dashes, color=COLOURS[colour], label=name)
    axis.axhspan(0, n_basis, color="black", alpha=0.07, linewidth=0)
    axis.set(
        yscale="log",
        ylim=(0.5, 1e5),
        xlabel="part of the period on which $f$ is near 1",
        ylabel="least $w^\\top\\Lambda^{-1}w$",
    )
    figure.legend(loc="outside upper center", fontsize="small", ncols=3)
    return figure


def draw_universality(
    slope: Callable[[Array], Array], *, reach: float, sizes: Sequence[int]
) -> Figure:
    """How fast nu comes near a target on [-reach, reach], by three routes."""
    figure, axis = subplots(figsize=(7.2, 3.8))
    kernels = {
        rho: [make_prior(c=rho / reach, n_basis=M).kernel for M in sizes] for rho in (0.5, 1.0)
    }
    half = [best_root(slope, kernel, reach)[1] for kernel in kernels[0.5]]
    full = [best_root(slope, kernel, reach)[1] for kernel in kernels[1.0]]
    flipped = [flipped_root(slope, kernel) for kernel in kernels[1.0]]
    axis.plot(sizes, half, "o-", color=COLOURS["ISGP"], label="half the period")
    axis.plot(sizes, full, "s--", color=COLOURS["GP"], label="whole period, positive root")
    axis.plot(sizes, flipped, "^-.", color=COLOURS["PAVA"], label="whole period, root that flips")
    axis.set(xscale="log", yscale="log", xlabel="$M$", ylabel="largest error in $\\nu$")
    axis.set_xticks(list(sizes), [str(size) for size in sizes])
    axis.minorticks_off()
    axis.legend()
    return figure


def draw_origin(*, r: float, reach: float, seed: int, n_paths: int = 6) -> Figure:
    """The random intercept and appendix B's origin: paths, and standard deviations."""
    prior = make_prior(a=2.0, c=1 / (2 * reach), n_basis=16, gamma=1.0)
    Gamma = prior.sample(n_paths, torch.Generator().manual_seed(seed))
    x = torch.linspace(0, reach, 301, dtype=torch.float64)
    start = prior.kernel.integrated_square(torch.tensor([r], dtype=torch.float64), Gamma[:, :-1])
    moved = prior.kernel.integrated_square(x, Gamma[:, :-1]) - start + r
    figure, axes = subplots(1, 3, figsize=(9.0, 3.2))
    _paths(axes[0], x, prior.source(x, Gamma), "random intercept")
    _paths(axes[1], x, moved, f"origin at {r:g}")
    axes[1].axhline(r, color="black", linewidth=0.6, linestyle=":")
    spread = {"paths": ("as corrected", "ISGP", "-"), "printed": ("as printed", "GP", "--")}
    points = np.linspace(0, reach, 121)
    for form, (label, colour, dashes) in spread.items():
        sd = [cumulants(prior, origin_quadratic(prior, at, r, form)[0])[1] for at in points]
        axes[2].plot(points, sd, dashes, color=COLOURS[colour], label=label)
    axes[2].set(xlabel="$x$", ylabel="standard deviation", ylim=(0, None))
    axes[2].legend(fontsize="small")
    return figure


def _paths(axis: Axes, x: torch.Tensor, values: torch.Tensor, title: str) -> None:
    axis.plot(x, values.T, color=COLOURS["ISGP"], linewidth=0.9, alpha=0.7)
    axis.plot(x, x, "--", color="black", linewidth=1)
    axis.set(xlabel="$x$", ylabel="$\\nu$")
    axis.set_title(title, fontsize=9)


def draw_construction(name: str, *, n_paths: int, seed: int) -> Figure:
    """Theorem 2 (i) for one G: paths, the canonical links built from them, and the link chi."""
    margin = MARGINS[name]
    prior = make_prior(a=2.0, c=0.25, n_basis=16)
    u = np.linspace(0.02, 0.98, 97)
    chi = represented_link(margin, u)
    x = torch.linspace(-4, 4, 401, dtype=torch.float64)
    figure, (left, middle, right) = subplots(1, 3, figsize=(9.0, 3.2))
    for Gamma in prior.sample(n_paths, torch.Generator().manual_seed(seed)):
        left.plot(x, prior.source(x, Gamma), linewidth=1.2)
        link = prior.source(torch.from_numpy(chi), Gamma).numpy()
        middle.plot(u, link, linewidth=1.2)
        right.plot(u, inverse_source(prior, Gamma, link), linewidth=2)
    right.plot(u, chi, ":", color="black", linewidth=2)
    left.set(xlabel="$x$", ylabel="$\\nu(x)$")
    middle.set(xlabel="$u$", ylabel="$g(u) = \\nu(\\chi(u))$")
    right.set(xlabel="$u$", ylabel="$\\chi(u) = \\nu^{-1}(g(u))$")
    return figure


def draw_failure(*, turn: float, n_paths: int, seed: int) -> Figure:
    """How often G o nu^-1 is not calibrated, as the prior of the intercept gets narrower."""
    figure, axis = subplots(figsize=(7.2, 3.6))
    gammas = np.geomspace(1e-3, 1e2, 31)
    for a, colour, dashes in ((1.2, "ISGP", "-"), (8.0, "GP", "--")):
        exact = [failure_probability(make_prior(a=a, gamma=gamma), turn) for gamma in gammas]
        axis.plot(gammas, exact, dashes, color=COLOURS[colour], label=f"exact, $a$ = {a:g}")
        for number, gamma in enumerate(gammas[::6]):
            prior = make_prior(a=a, gamma=gamma)
            share, _ = failure_frequency(prior, turn, n_paths, seed + number)
            axis.plot(gamma, share, "o", color=COLOURS[colour], markersize=5)
    axis.axvline(0.01, color="black", linewidth=0.8, linestyle=":")
    axis.set(
        xscale="log",
        ylim=(0, 0.5),
        xlabel="precision $\\gamma$ of the intercept (dotted: W&N's)",
        ylabel="probability of failure",
    )
    axis.legend()
    return figure


def draw_slack(table: pd.DataFrame) -> Figure:
    """Both sides of theorem 4 on the breast-cancer data, for each loss and each gamma."""
    names = list(LOSSES)
    figure, axes = subplots(1, len(names), figsize=(9.0, 3.0))
    for axis, name in zip(axes, names, strict=True):
        rows = table.loc[name]
        place = np.arange(len(rows))
        axis.bar(place, rows["average over sources"], color=COLOURS["ISGP"], width=0.6)
        axis.axhline(rows["canonical loss"].iloc[0], color=COLOURS["GP"], linestyle="--")
        axis.set_xticks(place, [f"{gamma:g}" for gamma in rows.index])
        axis.set_title(name, fontsize=9)
        axis.set(xlabel="$\\gamma$")
    axes[0].set(ylabel="average loss")
    return figure
