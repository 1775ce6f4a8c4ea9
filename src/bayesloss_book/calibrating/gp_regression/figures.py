"""The figures of the page on GP regression: two sparse means, and the ways to them."""

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from scipy.stats import norm

from bayesloss_book.calibrating.gp_regression.covariate_shift import risks, sparse_means
from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.problems.shifted_regression import DEVIATION, ShiftedProblem

STYLES = {
    "posterior mean": (COLOURS["ISGP"], "-"),
    "min KL": (COLOURS["GP"], "--"),
    "min d_L": (COLOURS["PAVA"], "-."),
}
_COSTS = {
    "d_L, exact solve": (COLOURS["PAVA"], "-", "o"),
    "d_L, conjugate gradients": (COLOURS["accent"], "-.", "s"),
    "d_L, larger support": (COLOURS["ISGP"], ":", "D"),
    "KL": (COLOURS["GP"], "--", "^"),
}


def draw_shift(problem: ShiftedProblem) -> Figure:
    """The decisions under covariate shift, and their risks."""
    model = problem.model
    table = risks(problem)
    x = torch.linspace(-3.6, 4.2, 391, dtype=torch.float64)
    figure, (curves, bars) = subplots(2, 1, figsize=(5.6, 6.4), height_ratios=[2.2, 1])
    curves.plot(model.x, model.y, ".", color=COLOURS["data"], markersize=4, alpha=0.6)
    for name, mean in {"posterior mean": model.mean, **sparse_means(problem)}.items():
        support = None if name == "posterior mean" else problem.support
        colour, dashes = STYLES[name]
        look = {"color": colour, "label": name.replace("d_L", "$d_L$")}
        curves.plot(x, model.action(x, mean, support), dashes, **look)
    floor = -2.7
    density = norm.pdf(x.numpy(), problem.shift, DEVIATION)
    curves.fill_between(x, floor, floor + density, color=COLOURS["bound"], alpha=0.4, linewidth=0)
    curves.text(problem.shift, floor + 0.35, "test inputs", ha="center")
    places = model.x[problem.support]
    curves.plot(places, torch.full_like(places, floor + 0.12), "|", color="black", markersize=9)
    curves.set(xlabel="input x", ylabel="prediction", ylim=(floor, 2.7))
    curves.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    names = list(STYLES)
    colours = [STYLES[name][0] for name in names]
    bars.bar(range(3), table.loc[names, "posterior risk"], color=colours)
    bars.axhline(table.loc["posterior mean", "posterior risk"], color="black", linewidth=0.8)
    bars.set_xticks(range(3), ["posterior mean", "min KL", "min $d_L$"])
    bars.set(ylabel="posterior risk")
    bars.grid(axis="x", visible=False)
    return figure


def draw_sweep(table: pd.DataFrame) -> Figure:
    """The excess risks of :func:`.covariate_shift.sweep`, by the mean of the test inputs."""
    figure, axis = subplots(figsize=(5.6, 3.8))
    for name in ("min KL", "min d_L"):
        colour, dashes = STYLES[name]
        style = {"marker": "o", "color": colour, "clip_on": False}
        axis.plot(table.index, table[name], dashes, label=name, **style)
    axis.set(xlabel="mean of the test inputs", ylabel="excess risk $d_L$", ylim=(0, None))
    axis.legend()
    return figure


def draw_routes(by_cg: pd.DataFrame, by_support: pd.Series) -> Figure:
    """How near conjugate gradients and a larger support come to the least d_L."""
    figure, (top, bottom) = subplots(2, 1, figsize=(5.6, 6.6), sharey=True)
    top.plot(by_cg.index, by_cg["excess"], "-o", color=COLOURS["accent"], label="sparse mean")
    top.plot(by_cg.index, by_cg["bound"], ":", color=COLOURS["data"], label="bound")
    top.set(xlabel="iterations of conjugate gradients", ylabel="$d_L$ / least $d_L$")
    top.set(yscale="log", ylim=(0.8, None))
    top.legend()
    bottom.plot(by_support.index, by_support, "-D", color=COLOURS["ISGP"])
    bottom.set(xlabel="points in the larger support", ylabel="$d_L$ / least $d_L$")
    for axis in (top, bottom):
        axis.axhline(1, color="black", linewidth=0.8)
    return figure


def draw_costs(stored: pd.DataFrame) -> Figure:
    """Stored seconds against N; of three runs each the fastest."""
    figure, axis = subplots(figsize=(5.6, 4.4))
    seconds = stored.groupby(["method", "n"])["seconds"].min()
    for name, (colour, dashes, marker) in _COSTS.items():
        one = seconds[name]
        label = name.replace("d_L", "$d_L$")
        axis.plot(one.index, one, dashes, marker=marker, color=colour, label=label)
    n = np.array([500, 4000])
    start = seconds["d_L, exact solve"].loc[4000]
    axis.plot(n, start * (n / 4000) ** 2, color="black", linewidth=0.8)
    axis.text(700, start * (700 / 4000) ** 2 * 1.5, "$N^2$")
    axis.set(xscale="log", yscale="log", xlabel="number of data N", ylabel="seconds")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return figure
