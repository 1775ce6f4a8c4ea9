"""The pictures of the findings in ten minutes, each made from what is stored or was found."""

from collections.abc import Mapping
from textwrap import fill

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots

from bayesloss_book.drawing.figures import COLOURS, style
from paperledger.ledger.claims import Finding
from paperledger.ledger.under_specified import sway


def draw_decisions(tails: Mapping[str, float], share: float) -> Figure:
    """Draw the probability of a disaster by each distribution, and where decisions change."""
    figure, axes = subplots(figsize=(4.8, 2.4))
    truth = next(iter(tails.values())) > share
    for row, tail in enumerate(tails.values()):
        right = (tail > share) == truth
        colour = COLOURS["ISGP"] if right else COLOURS["GP"]
        axes.barh(row, tail, color=colour, height=0.55, hatch="" if right else "//")
        words = ("shut down" if tail > share else "stay on") + ("" if right else ": wrong")
        axes.text(max(tail, share) + 0.003, row, words, va="center")
    axes.axvline(share, color=COLOURS["data"], linestyle="--")
    axes.set_yticks(range(len(tails)), list(tails))
    axes.invert_yaxis()
    axes.set(xlabel="probability of a meltdown", xlim=(0, 1.45 * max(tails.values())))
    return figure


def readings(finding: Finding) -> pd.Series:
    """What an open setting does: the result under each reading of the paper."""
    return pd.Series(sway(finding)[0])


def draw_readings(found: pd.Series, printed: float, label: str) -> Figure:
    """Draw the result under each reading, beside the printed one."""
    figure, axes = subplots(figsize=(6.0, 0.5 * len(found) + 1.0))
    axes.axvline(0, color=COLOURS["data"], linewidth=1)
    axes.axvline(printed, color=COLOURS["data"], linestyle="--", label="printed")
    axes.plot(found, range(len(found)), "o", color=COLOURS["ISGP"], markersize=9, label="measured")
    axes.set_yticks(range(len(found)), [fill(name, 28) for name in found.index])
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set(xlabel=label)
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def draw_excess(excess: pd.DataFrame) -> Figure:
    """Draw how much more each calibrator loses than the best, in millinats."""
    ordered = excess.sort_values("mean")
    figure, axes = subplots(figsize=(4.8, 0.34 * len(ordered) + 0.9))
    for row, (name, (mean, error)) in enumerate(ordered.iterrows()):
        own = name == "link"
        look = style("ISGP", "D") if own else style("Linear", "o")
        axes.errorbar(mean, row, xerr=2 * error, markersize=8, **look)
    axes.set_yticks(
        range(len(ordered)), ["learned link" if n == "link" else n for n in ordered.index]
    )
    axes.invert_yaxis()
    axes.set_xscale("symlog", linthresh=10)
    axes.set_xticks([0, 10, 100], ["0", "10", "100"])
    axes.set(xlabel="log loss above the best, in millinats")
    return figure
