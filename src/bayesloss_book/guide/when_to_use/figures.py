"""Figures on what to use when."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots

from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.guide.when_to_use.summary import averages

STYLES = {  # colour, marker, as on `calibration_methods` where that has the method
    "W&N's EM": (COLOURS["ISGP"], "o"),
    "our calibrator": ("black", "*"),
    "isotonic": (COLOURS["PAVA"], "^"),
    "boosting": (COLOURS["data"], "<"),
    "linkgistic": (COLOURS["held out"], "P"),
    "ISGP": (COLOURS["ISGP"], "p"),
    "GP": (COLOURS["GP"], "X"),
    "logistic CV": (COLOURS["Linear"], "s"),
}
NAMES = {"paper's recipe": "W&N's EM"}  # where the stores have others


def draw_probabilities(results: pd.DataFrame) -> Figure:
    """What classifiers save over logistic regression with a chosen penalty, a row a table."""
    losses = averages(results, "log_loss")
    rows = results.groupby("data")["rows"].first()
    losses = losses.loc[sorted(losses.index, key=lambda data: (", " in data, rows[data]))]
    losses.index = [data + f" ({rows[data]:,})" * (", " not in data) for data in losses.index]
    figure, axis = subplots(figsize=(5.6, 8.4))
    saved = 1e3 * losses.rsub(losses["logistic CV"], axis=0).rename(columns=NAMES)
    _draw(axis, saved.drop(columns="logistic CV"), at=0)
    axis.set_xscale("symlog", linthresh=10)
    axis.xaxis.set_major_formatter("{x:.0f}")
    axis.set_xlim(1.5 * saved.min(axis=None), 1.5 * saved.max(axis=None))
    axis.set(xlabel="log loss saved over logistic CV, millinats")
    return figure


def draw_curves(results: pd.DataFrame) -> Figure:
    """The regressors' errors over isotonic regression's, a row a table."""
    errors = averages(results, "rmse")
    figure, axis = subplots(figsize=(5.6, 6.4))
    _draw(axis, errors.div(errors["isotonic"], axis=0).drop(columns="isotonic"), at=1)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set(xlabel="root mean squared error over isotonic regression's")
    return figure


def draw_seconds(results: pd.DataFrame) -> Figure:
    """How long a fit and its predictions take, over the rows that it was trained on."""
    figure, axes = subplots(2, 1, figsize=(5.6, 7.0))
    for axis, task in zip(axes, ("classification", "regression"), strict=True):
        for method, taken in results[results["task"] == task].groupby("method", sort=False):
            if method in STYLES:
                colour, marker = STYLES[method]
                median = taken.groupby("rows")["seconds"].median()
                axis.plot(median, marker, color=colour, markersize=5, alpha=0.85, label=method)
        axis.set(xscale="log", yscale="log", ylabel=f"seconds, {task}")
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.xaxis.set_minor_formatter("")
        axis.legend(fontsize=9, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes[-1].set(xlabel="training rows")
    return figure


def _draw(axis: Axes, table: pd.DataFrame, *, at: float) -> None:
    """A row of dots for each table, and a line where a method is level with what it is held to."""
    places = [-i for i in range(len(table))]
    for method, (colour, marker) in STYLES.items():
        if method in table:
            axis.plot(table[method], places, marker, c=colour, label=method, ms=5, alpha=0.85)
    axis.axvline(at, color="black", linewidth=1)
    axis.set_yticks(places, [data.replace("_", " ") for data in table.index], fontsize=9)
    axis.set_ylim(-len(table) + 0.5, 0.5)
    axis.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=3, fontsize=9)
