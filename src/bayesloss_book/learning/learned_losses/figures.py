"""Figures of Table 2: every reading beside the print, the baseline's path, and the gaps."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots

from bayesloss_book.drawing.figures import COLOURS, style
from bayesloss_book.learning.learned_losses.budget import ITERATIONS
from bayesloss_book.learning.learned_losses.summary import columns, paths, printed
from bayesloss_book.learning.learned_losses.table_2 import DATA, METHODS, TASKS

_TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "digits": "digits"}
_LEAST = 93  # per cent; the AUC at which the picture of the paths begins
_LOOKS = (("GP", "s"), ("PAVA", "^"), ("ISGP", "o"), ("bound", "D"))
_STYLES = dict(zip(TASKS, _LOOKS, strict=True))
_BUDGETS = {"short": -2, "default": -4, "long": -6}  # exponents of tolerances


def draw_readings(results: pd.DataFrame) -> Figure:
    """Area above the ROC curve of every method: printed, and measured under every reading."""
    figure, axes = subplots(2, 1, figsize=(5.6, 9.0), sharex=True)
    rows = np.arange(len(METHODS))[::-1]
    for axis, data in zip(axes, DATA, strict=True):
        axis.plot(
            100 - printed()[data], rows, "|", color="black", ms=22, mew=2.4, label="as printed"
        )
        auc, error = columns(results, data)
        for shift, task in zip((0.18, 0.06, -0.06, -0.18), TASKS, strict=True):
            if task not in auc:
                continue
            look = style(*_STYLES[task], ms=5, lw=1, label=task)
            axis.errorbar(100 - auc[task], rows + shift, xerr=error[task], **look)
        axis.set(xscale="log", title=_TITLES[data])
        ticks = (0.1, 0.3, 1, 3, 10)
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
        axis.set_xlim(0.04, 12)
        axis.set_yticks(rows, list(METHODS))
    axes[-1].set(xlabel="100 − AUC, % (log scale)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def draw_paths(paths_stored: pd.DataFrame, data: str = "fashion-mnist") -> Figure:
    """AUC of logistic regression against its iterations, and the paper's values as lines."""
    figure, axis = subplots(figsize=(5.6, 5.4))
    table = paths(paths_stored).loc[data]
    last = ITERATIONS[-1] * 3  # where "converged" stands
    for (task, penalty), row in table.iterrows():
        name = f"{task}, {'C = 1' if penalty else 'no penalty'}"
        look = style(*_STYLES[task], "-" if penalty else ":", ms=5, label=name)
        shown = list(np.flatnonzero(row.iloc[:-1] >= _LEAST))
        axis.plot(ITERATIONS, row.iloc[:-1], markevery=shown, **look)
        inside = look["color"] if penalty else "white"
        axis.plot(last, row["end"], **style(*_STYLES[task], ms=7, mfc=inside))
    values = printed()[data]
    axis.axhline(values["logistic"], color="black", lw=1)
    axis.axhline(values["ISGP"], color="black", lw=1, ls="--")
    for name, label in (("logistic", "printed: logistic"), ("ISGP", "printed: ISGP")):
        beside = axis.get_yaxis_transform()
        axis.text(0.02, values[name] - 0.08, label, fontsize="small", va="top", transform=beside)
    axis.set(xscale="log", xlabel="L-BFGS iterations of logistic regression", ylabel="test AUC, %")
    axis.set_xticks([*ITERATIONS, last], [*map(str, ITERATIONS), "converged"])
    axis.minorticks_off()
    axis.set_ylim(_LEAST, 100.2)
    figure.legend(loc="outside upper center", ncols=2, fontsize="small")
    return figure


def draw_gaps(table: pd.DataFrame, reading: dict[str, str]) -> Figure:
    """ISGP less logistic regression, equal tolerance and penalty, with two standard errors.

    Filled where the problem is the one named in ``reading``.
    """
    table = table[table["pair"] == "ISGP − logistic"]
    heights = [(table["data"] == data).sum() for data in reading]
    figure, axes = subplots(2, 1, figsize=(5.7, 8.6), sharex=True, height_ratios=heights)
    for axis, (data, task) in zip(np.atleast_1d(axes), reading.items(), strict=True):
        chosen = table[table["data"] == data].set_index(["task", "penalty", "budget"])
        tasks = [task, *(other for other in TASKS if other != task)]
        order = [(t, p, budget) for t in tasks for p in (1.0, 0.0) for budget in _BUDGETS]
        rows = [row for row in order if row in chosen.index]
        places = np.arange(len(rows))[::-1]
        for place, row in zip(places, rows, strict=True):
            found = chosen.loc[row]
            colour = COLOURS["ISGP"]
            inside = colour if row[0] == task else "white"
            look = {"fmt": "o", "color": colour, "ms": 5, "mfc": inside}
            axis.errorbar(found["gap"], place, xerr=2 * found["error"], **look)
        axis.axvline(0, color=COLOURS["Linear"], lw=1)
        values = printed()[data] if data in DATA else None
        if values is not None:
            gap = values["ISGP"] - values["logistic"]
            axis.axvline(gap, color="black", ls="--", lw=1.4)
            axis.text(gap, len(rows) - 0.45, "printed ", ha="right", fontsize="small")
        axis.set(title=_TITLES[data], ylim=(-0.6, len(rows) - 0.1))
        names = [
            f"{name}, {'C = 1' if penalty else 'no penalty'}, $10^{{{_BUDGETS[budget]}}}$"
            for name, penalty, budget in rows
        ]
        axis.set_yticks(places, names, fontsize="small")
    axis.set(xlabel="ISGP − logistic, points of AUC")
    return figure
