"""The figures on variational inference for sources."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.pyplot import setp, subplots

from bayesloss_book.beyond.variational.fits import METHODS
from bayesloss_book.drawing.figures import COLOURS, legend_above
from bayesloss_book.problems.source_problems import TASKS, grid

STYLES = {
    "laplace": (COLOURS["GP"], "s", "--"),
    "exact": (COLOURS["ISGP"], "o", "-"),
    "normal": (COLOURS["PAVA"], "^", "-."),
    "bound": (COLOURS["bound"], "D", ":"),
}


def draw_bands(fits: pd.DataFrame, exact: pd.DataFrame, n: int, seed: int) -> Figure:
    """Exact band of nu, and mean and band by Laplace and by variation, for both tasks."""
    figure, axes = subplots(2, 1, figsize=(5.6, 6.8))
    x = grid().numpy()
    names = range(len(x))
    for axis, task in zip(axes, TASKS, strict=True):
        here: dict[str, str | int] = {"task": task, "n": n, "seed": seed}
        truth = _row(exact, here)
        low, high = (
            truth[[f"{end}_{i}" for i in names]].to_numpy(float) for end in ("low", "high")
        )
        mean = truth[[f"mean_{i}" for i in names]].to_numpy(float)
        axis.plot(x, mean, color="black", linewidth=1.6, label="exact mean")
        axis.fill_between(x, low, high, color=COLOURS["Linear"], alpha=0.35, linewidth=0)
        for method in ("laplace", "exact"):
            colour, _, line = STYLES[method]
            row = _row(fits, {**here, "method": method})
            mean, sd = (row[[f"{c}_{i}" for i in names]].to_numpy(float) for c in ("mean", "sd"))
            axis.plot(x, mean, color=colour, linestyle=line, linewidth=2.2, label=METHODS[method])
            for side in (-1.96, 1.96):
                axis.plot(x, mean + side * sd, color=colour, linestyle=line, linewidth=0.9)
        axis.set(title=f"{task}, {n} data", ylabel="ν(x)")
    axes[1].set(xlabel="x")
    axes[0].fill_between([], [], color=COLOURS["Linear"], alpha=0.35, label="exact 95 % band")
    legend_above(figure, axes[0], ncols=2)
    return figure


def draw_evidence(table: pd.DataFrame) -> Figure:
    """How far below the exact log evidence each method's value lies, problem by problem."""
    figure, axes = subplots(2, 1, figsize=(5.6, 6.2), sharex=True)
    for axis, task in zip(axes, TASKS, strict=True):
        part = table.loc[task]
        shown = [("laplace", "gap_bound", "Laplace's bound", -0.16)]
        if task == "classification":
            shown += [("bound", "gap", METHODS["bound"], -0.08)]
            shown += [("normal", "gap", METHODS["normal"], 0.0)]
        shown += [("laplace", "gap", "Laplace's evidence", 0.08)]
        shown += [("exact", "gap", "variational", 0.16)]
        for method, measure, label, offset in shown:
            values = part.xs(method, level="method")[measure]
            sizes = sorted(set(values.index.get_level_values("n")))
            places = [sizes.index(n) + offset for n in values.index.get_level_values("n")]
            colour, marker, _ = STYLES[method]
            if measure == "gap_bound":
                colour = COLOURS["accent"]
                marker = "X"
            axis.plot(places, values, marker, color=colour, markersize=7, label=label)
        axis.axhline(0, color="black", linewidth=1)
        axis.axhspan(0, 0.5, color=COLOURS["Linear"], alpha=0.25, linewidth=0)
        axis.set_yscale("symlog", linthresh=1)
        axis.set_yticks([-1, 0, 0.5, 1, 2, 5, 10], ["-1", "0", "½", "1", "2", "5", "10"])
        axis.minorticks_off()
        axis.set(title=task, ylabel="nats below the evidence")
        axis.invert_yaxis()
    _sizes(axes[1], table)
    legend_above(figure, axes[1], ncols=2)
    return figure


def draw_errors(table: pd.DataFrame) -> Figure:
    """Errors of the mean and of the width of nu, in exact standard deviations."""
    figure, axes = subplots(2, 2, figsize=(5.6, 5.8), sharex=True, sharey="row")
    for column, task in zip(axes.T, TASKS, strict=True):
        part = table.loc[task]
        for axis, measure in zip(column, ("shift", "width"), strict=True):
            for method, (colour, marker, line) in STYLES.items():
                if method not in part.index.get_level_values("method"):
                    continue
                values = part.xs(method, level="method")[measure]
                mean = values.groupby("n").mean()
                places = np.arange(len(mean))
                axis.plot(places, mean, color=colour, linestyle=line, label=METHODS[method])
                order = [list(mean.index).index(n) for n in values.index.get_level_values("n")]
                axis.plot(order, values, marker, color=colour, markersize=5)
        column[0].set(title=task)
        column[1].axhline(1, color="black", linewidth=0.8)
        _sizes(column[1], table)
    axes[0, 0].set(ylabel="error of the mean\n(exact sd)", ylim=(0, None))
    axes[1, 0].set(ylabel="width over\nthe exact one")
    legend_above(figure, axes[0, 1])
    return figure


def draw_ranks(ranks: pd.DataFrame) -> Figure:
    """Where the truth stands among 99 draws of nu, at both ends, over simulated data sets."""
    figure, axes = subplots(2, 2, figsize=(5.6, 5.2), sharex=True, sharey=True)
    edges = np.linspace(0, 100, 11)
    for row, task in zip(axes, TASKS, strict=True):
        for axis, side in zip(row, ("left", "right"), strict=True):
            for method in ("laplace", "exact"):
                colour, _, line = STYLES[method]
                part = ranks[(ranks["task"] == task) & (ranks["method"] == method)]
                counts, _ = np.histogram(part[f"rank_{side}"], edges)
                look = {"color": colour, "linestyle": line, "linewidth": 2}
                axis.stairs(10 * counts / len(part), edges, label=METHODS[method], **look)
            axis.axhline(1, color="black", linewidth=0.8)
            axis.set(title=f"{task}, {side} end")
    setp(axes[1], xlabel="draws below the truth")
    setp(axes[:, 0], ylabel="share, 1 is right")
    legend_above(figure, axes[0, 0], ncols=2)
    return figure


def _row(table: pd.DataFrame, cell: dict[str, str | int]) -> pd.Series:
    return table.set_index(list(cell)).loc[tuple(cell.values())]


def _sizes(axis: Axes, table: pd.DataFrame) -> None:
    sizes = sorted(set(table.index.get_level_values("n")))
    axis.set_xticks(range(len(sizes)), [f"{n:,}" for n in sizes])
    axis.set(xlabel="number of data")
