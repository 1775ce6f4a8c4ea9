"""The figures of the learning curves and of the learned link of a dress."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.pyplot import setp, subplots

from bayesloss_book.drawing.figures import COLOURS, legend_above, style
from bayesloss_book.learning.learning_curves.figure_2 import COMPARED, DATA, METHODS, SETTING
from bayesloss_book.learning.learning_curves.figure_9 import curves_of, groups_of
from bayesloss_book.learning.learning_curves.summary import LEARNED, WHOLE, curves, gains
from bayesloss_book.rivals.baselines import HELD_OUT

_STYLE = {
    "logistic": ("data", "o", ":"),
    "GP": ("GP", "^", "--"),
    "ISGP": ("ISGP", "s", "-"),
    HELD_OUT: ("held out", "D", "-."),
}
_NAME = {"ovr_accuracy": "one-vs-rest", "accuracy": "ten classes"}
_SHIFT = dict(zip(_STYLE, (0.97, 0.99, 1.01, 1.03), strict=True))  # bars beside each other


def draw_curves(results: pd.DataFrame) -> Figure:
    """Figure 2: both accuracies against training size, a row a data set."""
    figure, axes = subplots(len(DATA), 2, figsize=(5.6, 8.0), sharex=True)
    for column, measure in zip(axes.T, WHOLE, strict=True):
        table = 100 * curves(results, measure)
        for axis, data in zip(column, DATA, strict=True):
            for method in COMPARED:
                line = table.loc[data, method]
                _errorbar(axis, line.index, line["mean"], 2 * line["error"].fillna(0), method)
        column[0].set(title=f"{_NAME[measure]}, %")
    _finish(figure, axes)
    return figure


def draw_gains(results: pd.DataFrame) -> Figure:
    """What a learned link adds to logistic regression, in percentage points, with two errors."""
    figure, axes = subplots(len(DATA), 2, figsize=(5.6, 8.0), sharex=True, sharey="col")
    for column, measure in zip(axes.T, WHOLE, strict=True):
        for method in COMPARED[1:]:
            table = gains(results, measure, method)
            table = table.xs(tuple(SETTING.values()), level=list(SETTING))
            for axis, data in zip(column, DATA, strict=True):
                line = table.loc[data].sort_index()
                _errorbar(axis, line.index, line["gain"], 2 * line["error"], method)
        for axis in column:
            axis.axhline(0, color=COLOURS["data"], linewidth=0.8)
        column[0].set(title=f"{_NAME[measure]}, points")
    _finish(figure, axes)
    return figure


def draw_settings(table: pd.DataFrame) -> Figure:
    """What learned links add to logistic regression under several settings, with two errors."""
    settings = sorted(table.reset_index("data").index.unique())
    labels = [_setting(penalty, budget) for penalty, budget in settings]
    figure, axes = subplots(len(DATA), 2, figsize=(5.6, 8.4), sharex="col", sharey=True)
    places = np.arange(len(settings))[::-1]
    for column, measure in zip(axes.T, WHOLE, strict=True):
        for axis, data in zip(column, DATA, strict=True):
            here = table.xs(data, level="data").reindex(settings)
            for shift, method in zip((0.12, -0.12), LEARNED, strict=True):
                gain, error = (
                    here[f"{_NAME[measure]}, {w} of {method}"] for w in ("gain", "error")
                )
                look = style(*_STYLE[method][:2], markersize=5, label=method)
                axis.errorbar(gain, places + shift, xerr=2 * error, **look)
            axis.axvline(0, color=COLOURS["data"], linewidth=0.8)
            axis.set(ylim=(-0.6, len(settings) - 0.4))
            axis.set_yticks(places, labels)
        column[0].set(title=_NAME[measure])
        column[-1].set(xlabel="gain, points")
    for axis, data in zip(axes[:, 0], DATA, strict=True):
        axis.set(ylabel=data)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _setting(penalty: float, budget: str) -> str:
    words = "no penalty" if penalty == 0 else f"C = {1 / penalty:g}"
    return words if budget == "default" else f"{words},\n{budget} budget"


def draw_losses(results: pd.DataFrame) -> Figure:
    """Log loss on test images (full lines) and on training images (thin lines)."""
    figure, axes = subplots(len(DATA), 1, figsize=(5.6, 8.0), sharex=True, sharey=True)
    for measure, width in (("log_loss", 1.6), ("train_log_loss", 0.7)):
        table = curves(results, measure)["mean"]
        for axis, data in zip(axes, DATA, strict=True):
            for method in COMPARED:
                line = table.loc[data, method]
                look = style(*_STYLE[method], markersize=4, linewidth=width)
                if measure == "log_loss":
                    axis.plot(line.index, line, label=method, **look)
                else:
                    axis.plot(line.index, line, fillstyle="none", **look)
    axes[0].set(title="mean log loss, nats", yscale="log")
    ticks = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2]
    low, high = axes[0].get_ylim()
    axes[0].set_yticks([t for t in ticks if low < t < high])
    axes[0].yaxis.set_major_formatter("{x:g}")
    _finish(figure, axes[:, None])
    return figure


def draw_dress(results: pd.DataFrame, penalty: float = 1.0) -> Figure:
    """Figure 9: three inverse links with their bands, and the frequencies of dresses."""
    figure, axes = subplots(len(METHODS), 2, figsize=(5.6, 8.0), sharex="row", sharey="col")
    for panels, method in zip(axes, METHODS, strict=True):
        row = results[(results["method"] == method) & (results["penalty"] == penalty)].iloc[0]
        table = curves_of(row)
        groups = groups_of(row)
        name_of_colour, _, dashes = _STYLE[method]
        colour = COLOURS[name_of_colour]
        for axis, name in zip(panels, ("link", "source"), strict=True):
            ends = table[f"{name}_low"], table[f"{name}_high"]
            axis.fill_between(table["x"], *ends, color=colour, alpha=0.25, linewidth=0)
            axis.plot(table["x"], table[name], dashes, color=colour)
        error = np.sqrt(groups["ones"] * (1 - groups["ones"]) / groups["count"])
        look = style("data", ".", markersize=4, linewidth=0.8)
        panels[0].errorbar(groups["score"], groups["ones"], 2 * error, **look)
        panels[0].set(ylabel=method)
    setp(axes[-1], xlabel="score $x$")
    axes[0, 0].set(title="probability of a dress")
    axes[0, 1].set(title=r"source $\nu(x)$")
    return figure


def _errorbar(axis: Axes, x: pd.Index, y: pd.Series, error: pd.Series, method: str) -> None:
    look = style(*_STYLE[method], label=method, markersize=4, linewidth=1.2, elinewidth=0.9)
    axis.errorbar(x.to_numpy() * _SHIFT[method], y.to_numpy(), error.to_numpy(), **look)


def _finish(figure: Figure, axes: np.ndarray) -> None:
    for row, data in zip(axes, DATA, strict=True):
        row[0].set(ylabel=data)
    for axis in axes[-1]:
        axis.set(xscale="log", xlabel="thousands of images")
        axis.set_xticks([1_000, 10_000, 60_000], ["1", "10", "60"])
        axis.minorticks_off()
    legend_above(figure, axes[0, 0], ncols=2)
