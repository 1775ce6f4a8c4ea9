"""What a learned link costs and saves: round by round, and on four problems."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots

from bayesloss_book.drawing.figures import style


def draw_rounds(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Training and test log loss of some runs of EM, by round."""
    figure, axis = subplots(figsize=(5.6, 4.2))
    for (name, table), colour, marker in zip(
        tables.items(), ("GP", "ISGP"), ("o", "s"), strict=False
    ):
        for which, dashes in (("test", "-"), ("training", "--")):
            look = style(colour, marker, dashes, label=f"{name}, {which}")
            axis.plot(table[f"{which} log loss"], **look)
    axis.set(xlabel="round of EM", ylabel="log loss, nats a datum", ylim=(0, None))
    axis.legend()
    return figure


def draw_savings(results: pd.DataFrame) -> Figure:
    """What links save against the fixed link, with two standard errors, one row a problem."""
    figure, axis = subplots(figsize=(5.6, 3.8))
    heights = np.arange(len(results))[::-1]
    for which, colour, aside, label in (
        ("EM", "GP", 0.12, "paper's EM"),
        ("left out", "ISGP", -0.12, "leave-one-out"),
    ):
        saved, error = results[f"saved, {which}"], 2 * results[f"+-, {which}"]
        axis.errorbar(saved, heights + aside, xerr=error, **style(colour, "o", label=label))
    axis.axvline(0, color="black", lw=0.8)
    axis.set_yticks(heights, results.index)
    axis.set(xlabel="test log loss saved, nats a datum")
    axis.legend(loc="upper left")
    return figure
