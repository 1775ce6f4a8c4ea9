"""The figures of the page on the ISGP prior."""

from collections.abc import Callable, Sequence
from itertools import compress

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots

from bayesloss_book import Array
from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.learning.isgp import flat_places
from bayesloss_book.learning.isgp import prior as isgp
from bayesloss_book.problems.random_sources import inverse_source, make_prior


def draw_paths(settings: Sequence[tuple[float, float, float]], *, seed: int) -> Figure:
    """A column for each setting of a, c and gamma: one draw of f, f^2, and nu among others.

    Its title names those of the three in which the columns differ.
    """
    figure, axes = subplots(
        3, len(settings), figsize=(5.6, 7.6), sharex=True, sharey="row", height_ratios=(1, 1, 2)
    )
    x = torch.linspace(-1, 1, 801, dtype=torch.float64)
    differ = [len(set(values)) > 1 for values in zip(*settings, strict=True)]
    for column, (a, c, gamma) in zip(axes.T, settings, strict=True):
        prior = make_prior(a=a, c=c, gamma=gamma)
        Gamma = prior.sample(4, torch.Generator().manual_seed(seed))
        draws = (prior.root(x, Gamma), prior.derivative(x, Gamma), prior.source(x, Gamma))
        for axis, values in zip(column, draws, strict=True):
            if axis is column[2]:
                axis.plot(x, values[1:].T, color=COLOURS["Linear"], linewidth=0.8)
            axis.plot(x, values[0], color=COLOURS["ISGP"])
        crossed = draws[0][0].sign().diff().nonzero()[:, 0]
        column[2].plot(x[crossed], draws[2][0][crossed], "o", color=COLOURS["GP"], markersize=3.5)
        values = (f"$a$ = {a:g}", f"$c$ = {c:g}", f"$\\gamma$ = {gamma:g}")
        column[0].set_title(", ".join(compress(values, differ)))
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
    f = prior.root(x, Gamma)
    nu = prior.source(x, Gamma)
    zeros = x[:-1][torch.sign(f[:-1]) != torch.sign(f[1:])]
    figure, (left, middle, right) = subplots(3, 1, figsize=(5.8, 7.2))
    left.plot(x, f, color=COLOURS["ISGP"])
    left.axhline(0, color="black", linewidth=0.6)
    left.plot(zeros, 0 * zeros, "o", color=COLOURS["GP"], markersize=4)
    left.set(ylabel="$f$")
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
    fractions = np.linspace(0.04, 1.0, 33)
    figure, axis = subplots(figsize=(5.6, 4.4))
    for a, colour in zip(smoothness, ("ISGP", "GP", "PAVA"), strict=False):
        kernel = make_prior(a=a, n_basis=n_basis).kernel
        for share, dashes in ((0.0, "-"), (constant, "--")):
            scaled = kernel.scaled(1 - share)
            bounds = {"tolerance": tolerance, "constant": share}
            cost = [isgp.least_penalty(scaled, rho, **bounds) for rho in fractions]
            name = f"$a$ = {a:g}" + (", with a constant" if share else "")
            axis.plot(fractions, cost, dashes, color=COLOURS[colour], label=name)
    axis.hlines(n_basis / 2, 0, 1, color=COLOURS["data"], linewidth=1, linestyle=":")
    axis.set(xlabel="part of the period on which $f$ is within 5 % of 1")
    axis.set(ylabel="least prior penalty in nats", yscale="log", ylim=(0.25, 1e5))
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def draw_fits(source: str, *, n: int, a: float, filled: Sequence[float], seed: int) -> Figure:
    """Posteriors of nu with and without a constant in the basis, a panel for each period."""
    figure, axes = subplots(len(filled), 1, figsize=(5.8, 3.4 * len(filled)), sharex=True)
    x, y = flat_places.labels(source, n, seed)
    styles = dict(zip(flat_places.PRIORS, (("GP", "-"), ("ISGP", "--")), strict=True))
    names = {"waves": "W&N's basis", "constant": "with a constant"}
    points = flat_places.grid()
    truth = flat_places.SOURCES[source](points)
    for axis, part in zip(axes, filled, strict=True):
        for prior, (colour, dashes) in styles.items():
            nu = flat_places.source_draws(flat_places.fit(prior, x, y, filled=part, a=a))
            band = np.quantile(nu, [0.025, 0.975], axis=0)
            if dashes == "-":
                axis.fill_between(points, *band, color=COLOURS[colour], alpha=0.2, linewidth=0)
            else:  # two filled bands would turn grey where they overlap
                axis.plot(points, band.T, dashes, color=COLOURS[colour], linewidth=0.8)
            axis.plot(points, nu.mean(axis=0), dashes, color=COLOURS[colour], label=names[prior])
        axis.plot(points, truth, ":", color=COLOURS["data"], label="truth")
        axis.set(ylabel="$\\nu$", title=f"the data fill {part:.0%} of the period")
    axes[0].legend(loc="upper left")
    axes[-1].set(xlabel="score $x$")
    return figure


def draw_universality(
    slope: Callable[[Array], Array], *, reach: float, sizes: Sequence[int]
) -> Figure:
    """How fast nu comes near a target on [-reach, reach], by three routes."""
    figure, axis = subplots(figsize=(5.6, 4.2))
    within, whole = (
        [make_prior(c=rho / reach, n_basis=M).kernel for M in sizes] for rho in (0.5, 1.0)
    )
    half = [isgp.best_root(slope, kernel, reach)[1] for kernel in within]
    full = [isgp.best_root(slope, kernel, reach)[1] for kernel in whole]
    flipped = [isgp.flipped_root(slope, kernel) for kernel in whole]
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
        matrices = (isgp.origin_quadratic(prior, at, r, form)[0] for at in points)
        sd = [isgp.cumulants(prior, matrix)[1] for matrix in matrices]
        axes[2].plot(points, sd, dashes, color=COLOURS[colour], label=label)
    axes[2].set(xlabel="$x$", ylabel="standard deviation", ylim=(0, None))
    axes[2].legend(fontsize="small")
    return figure


def _paths(axis: Axes, x: torch.Tensor, values: torch.Tensor, title: str) -> None:
    axis.plot(x, values.T, color=COLOURS["ISGP"], linewidth=0.9, alpha=0.7)
    axis.plot(x, x, "--", color="black", linewidth=1)
    axis.set(xlabel="$x$", ylabel="$\\nu$")
    axis.set_title(title, fontsize=9)
