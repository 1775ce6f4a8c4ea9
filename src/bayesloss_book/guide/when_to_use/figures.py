"""The figure on what to use when."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots

from bayesloss_book.figures import COLOURS
from bayesloss_book.guide.when_to_use.summary import averages

__all__ = ["draw_contest"]

STYLES = {  # colour, marker
    "linkgistic": (COLOURS["ISGP"], "o"),
    "paper's recipe": (COLOURS["held out"], "P"),
    "our calibrator": (COLOURS["bound"], "D"),
    "isotonic": (COLOURS["PAVA"], "^"),
    "boosting": (COLOURS["accent"], "v"),
    "ISGP": (COLOURS["ISGP"], "o"),
    "GP": (COLOURS["GP"], "X"),
}


def draw_contest(results: pd.DataFrame) -> Figure:
    """Log loss less that of logistic regression, and error over isotonic regression's, by table."""
    losses = averages(results[results["task"] == "classification"], "log_loss")
    errors = averages(results[results["task"] == "regression"], "rmse")
    figure, (left, right) = subplots(1, 2, figsize=(10.2, 8.0))
    _draw(left, 1e3 * losses.sub(losses["logistic CV"], axis=0))
    left.axvline(0, color="black", linewidth=0.8)
    left.set_xscale("symlog", linthresh=10)
    left.xaxis.set_major_formatter("{x:.0f}")
    left.set(title="classification", xlabel="log loss less logistic CV's (thousandths of a nat)")
    _draw(right, errors.div(errors["isotonic"], axis=0).drop(columns="isotonic"))
    right.axvline(1, color="black", linewidth=0.8)
    right.set_xscale("log", base=2)
    right.xaxis.set_major_formatter("{x:g}")
    right.set(title="regression", xlabel="root mean squared error over isotonic regression's")
    return figure


def _draw(axis: Axes, table: pd.DataFrame) -> None:
    for method, (colour, marker) in STYLES.items():
        if method in table:
            places = [-i for i in range(len(table))]
            axis.plot(
                table[method],
                places,
                marker,
                color=colour,
                markersize=4.5,
                alpha=0.85,
                label=method,
            )
    names = [data.replace("_", " ") for data in table.index]
    axis.set_yticks([-i for i in range(len(table))], names, fontsize=8)
    axis.set_ylim(-len(table) + 0.5, 0.5)
    axis.legend(loc="lower center", bbox_to_anchor=(0.4, 1.03), ncols=3, fontsize=8)
