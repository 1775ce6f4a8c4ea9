"""The figures of Table 1's page."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.pyplot import setp, subplots

from bayesloss_book.drawing.figures import COLOURS, legend_above, style
from bayesloss_book.learning.auto_mpg import table_1


def draw_fits(n_basis: int, period_fraction: float) -> Figure:
    """The four methods on all cars: posterior means with bands of two standard deviations."""
    figure, axes = subplots(2, 2, figsize=(5.8, 6.0), sharey=True)
    for axis, name in zip(axes.flat, table_1.INPUTS, strict=True):
        x, y = table_1.rows_of(name)
        axis.plot(x, y, ".", color=COLOURS["data"], markersize=3, alpha=0.35, zorder=1)
        grid = np.linspace(x.min(), x.max(), 200)
        for method, dashes in (("GP", "--"), ("ISGP", "-")):
            model = table_1.fitted(name, method, n_basis, period_fraction)
            mean, std = model.predict(grid[:, None], return_std=True)
            colour = COLOURS[method]
            ends = (mean - 2 * std, mean + 2 * std)
            axis.fill_between(grid, *ends, color=colour, alpha=0.2, linewidth=0)
            axis.plot(grid, mean, dashes, color=colour, label=method)
        for method, dashes in (("PAVA", "-."), ("Linear", ":")):
            mean, _ = table_1.plug_in(method, x, y, grid)
            axis.plot(grid, mean, dashes, color=COLOURS[method], label=method, linewidth=1.2)
        axis.set(xlabel=f"{table_1.INPUTS[name]} ({table_1.UNITS[name]})")
    setp(axes[:, 0], ylabel="miles per gallon")
    legend_above(figure, axes[0, 0], ncols=4)
    return figure


def draw_gains(results: pd.DataFrame, varied: pd.DataFrame) -> Figure:
    """The ISGP's gain over the GP: input by input beside the print, and against the period."""
    table = table_1.paired_gains(results)
    figure, (upper, lower) = subplots(2, 1, figsize=(5.6, 6.8), height_ratios=(1.4, 1))
    for size, colour, aside in (("large", "GP", 0.12), ("small", "ISGP", -0.12)):
        rows = table.loc[size].loc[list(table_1.INPUTS)]
        heights = np.arange(len(rows))[::-1] + aside
        ours = style(colour, "o", label=f"ours, {size.capitalize()}")
        upper.errorbar(rows["ours"], heights, xerr=rows["luck of one draw"], **ours)
        theirs = style(colour, "x", ms=9, mew=2, label=f"printed, {size.capitalize()}")
        upper.plot(rows["printed"], heights, **theirs)
    upper.set_yticks(np.arange(len(table_1.INPUTS))[::-1], list(table_1.INPUTS.values()))
    upper.axvline(0, color="black", lw=0.8)
    upper.set(xlabel="ISGP over GP: squared error saved, per cent", ylim=(-0.5, 3.5))
    upper.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    column = varied["ISGP over GP, Small, %"]
    lower.plot(column.index, column, "o-", color=COLOURS["ISGP"])
    lower.axhline(0, color="black", lw=0.8)
    lower.axvline(table_1.PERIOD_FRACTION, color=COLOURS["bound"], label="our setting")
    lower.set(xlabel="part of the period that the inputs cover", ylabel="saved in Small, per cent")
    lower.legend()
    return figure


def draw_units(results: pd.DataFrame, ratio: float) -> Figure:
    """Each printed number against our mean squared error, with the line of constant ratio."""
    ours = table_1.summary(results)
    table = table_1.printed()
    figure, axis = subplots(figsize=(5.6, 5.0))
    reach = np.array([0.9 * ours["mean"].min(), 1.1 * ours["mean"].max()])
    axis.plot(reach, ratio * reach, color="black", linewidth=0.8, zorder=0)
    markers = {"GP": "o", "ISGP": "s", "PAVA": "^", "Linear": "x"}
    for method in table_1.METHODS:
        for size in table_1.SIZES:
            mine = ours.loc[(size, slice(None), method), :]
            theirs = table.loc[(size, slice(None), method)]
            look = style(method, markers[method], markersize=6, linewidth=1)
            look |= {"fillstyle": "full" if size == "large" else "none"}
            label = f"{method}, {size}"
            axis.errorbar(mine["mean"], theirs, xerr=2 * mine["sd"], label=label, **look)
    axis.set(xscale="log", yscale="log")
    axis.set_xticks([20, 30, 40, 50], ["20", "30", "40", "50"])
    axis.set_yticks([800, 1000, 1500, 2000], ["800", "1000", "1500", "2000"])
    axis.minorticks_off()
    axis.set_xlabel("our mean squared test error (squared miles per gallon)")
    axis.set_ylabel("printed in Table 1")
    axis.legend(ncols=2, fontsize="small")
    return figure
