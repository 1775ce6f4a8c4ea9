"""The figures on calibration by a learned link."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.pyplot import setp, subplots
from numpy.typing import NDArray
from scipy.special import expit, logit

from bayesloss import ReliabilityDisplay
from bayesloss_book import Array
from bayesloss_book.beyond.calibration import rivals, summary
from bayesloss_book.drawing.figures import COLOURS, legend_above, style

STYLES = {  # colour, marker, line
    rivals.OURS: (COLOURS["ISGP"], "o", "-"),
    "none": ("black", "", ":"),
    "sigmoid": (COLOURS["accent"], "v", "--"),
    "isotonic": (COLOURS["PAVA"], "^", "-."),
    "temperature": (COLOURS["Linear"], "X", ":"),
    "beta": (COLOURS["bound"], "D", "--"),
    "affine": (COLOURS["accent"], "1", ":"),
    "quadratic": (COLOURS["GP"], "s", "--"),
    "spline": (COLOURS["held out"], "P", "-."),
    "Venn-Abers": (COLOURS["data"], "*", "-"),
    "centred isotonic": (COLOURS["PAVA"], "2", ":"),
    "vector": (COLOURS["bound"], "3", ":"),
    "structured vector": (COLOURS["held out"], "s", "-."),
    "structured matrix": (COLOURS["data"], "*", "--"),
}

_TRUE_SLOPE = 0.7  # of predictions that are too sure
_FLOOR = 0.1  # of means on a logarithmic axis, in thousandths


def draw_bound(judged: pd.DataFrame) -> Figure:
    """Evidence, bound and loss against the smoothness: thin lines are draws, thick ones means."""
    figure, axes = subplots(3, 1, figsize=(5.6, 7.8), sharex=True)
    titles = {
        "evidence": "Laplace's evidence",
        "bound": "lower bound on the evidence",
        "loss": "log loss, minus the sigmoid's",
    }
    for axis, (name, title) in zip(axes, titles.items(), strict=True):
        scale = 1e3 if name == "loss" else 1.0
        for _, part in judged.groupby("number"):
            axis.plot(part["a"], scale * part[name], color=COLOURS["Linear"], linewidth=0.7)
        mean = judged.groupby("a")[name].mean()
        axis.plot(mean.index, scale * mean, color=COLOURS["ISGP"], marker="o", markersize=4)
        axis.set(xscale="log", title=title)
        axis.set_xticks([1.1, 2, 5, 12, 50], ["1.1", "2", "5", "12", "50"])
        axis.minorticks_off()
    setp(axes[:2], ylim=(-40, 2), ylabel="nats below the best")
    axes[2].set(ylabel="millinats", xlabel="smoothness a")
    return figure


def draw_benchmark(rows: pd.DataFrame, measure: str = "log_loss") -> Figure:
    """Mean excess over the best of the row against the number of cases, with standard errors."""
    found = 1e3 * summary.table(rows, measure)
    sizes = list(found.columns.get_level_values("n").unique())
    figure, axis = subplots(figsize=(5.6, 6.2))
    methods = [method for method in STYLES if method in found.index and method != "none"]
    for j, method in enumerate(methods):
        mean = found.xs("mean", axis=1, level=1).loc[method]
        error = found.xs("error", axis=1, level=1).loc[method]
        places = [i + 0.03 * (j - len(methods) / 2) for i in range(len(sizes))]
        width = 2.2 if method == rivals.OURS else 1.1
        label = "learned link" if method == rivals.OURS else method
        look = style(*STYLES[method], markersize=5, linewidth=width, label=label)
        axis.errorbar(places, mean.clip(lower=_FLOOR), error, **look)
    axis.set(
        yscale="log",
        xlabel="cases to calibrate on",
        ylabel=f"{measure.replace('_', ' ')} above the best (millinats)",
    )
    axis.set_xticks(range(len(sizes)), [f"{n:,}" for n in sizes])
    axis.yaxis.set_major_formatter("{x:g}")
    legend_above(figure, axis, ncols=2)
    return figure


def draw_where(gaps: pd.DataFrame, rival: str) -> Figure:
    """Ours less a rival by data set, in millinats: left of 0 ours is ahead."""
    gaps = 1e3 * gaps.dropna(how="all")
    gaps = gaps.loc[gaps.mean(axis=1).sort_values().index]
    figure, axis = subplots(figsize=(5.6, 1.2 + 0.21 * len(gaps)))
    axis.axvline(0, color="black", linewidth=1)
    shades = [COLOURS["held out"], COLOURS["ISGP"]]
    for n, colour, marker in zip(gaps, shades, "oD", strict=True):
        places = range(len(gaps))
        axis.plot(gaps[n], places, marker, color=colour, linestyle="", label=f"{n:,} cases")
    axis.set_yticks(range(len(gaps)), gaps.index)
    axis.set_xscale("symlog", linthresh=1)
    axis.set_xticks([-100, -10, -1, 0, 1, 10], ["−100", "−10", "−1", "0", "1", "10"])
    axis.set(xlabel=f"log loss minus that of {rival} (millinats)", ylim=(-1, len(gaps)))
    legend_above(figure, axis, ncols=2)
    return figure


def too_sure(n: int, seed: int) -> tuple[Array, NDArray[np.bool_]]:
    """Predictions and labels whose true log odds are 0.7 of those predicted."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.01, 0.99, n)
    return p, rng.random(n) < expit(_TRUE_SLOPE * logit(p))


def draw_reliability(sizes: Sequence[int], seed: int) -> Figure:
    """The same predictions, too sure of themselves, judged by few cases and by many."""
    figure, axes = subplots(len(sizes), 1, figsize=(5.6, 4.6 * len(sizes)))
    for axis, n in zip(axes, sizes, strict=True):
        p, y = too_sure(n, seed)
        ReliabilityDisplay.from_predictions(y, p, ax=axis)
        at = np.linspace(p.min(), p.max(), 200)
        axis.plot(at, expit(_TRUE_SLOPE * logit(at)), "--", color=COLOURS["GP"], label="truth")
        axis.set(title=f"{n:,} cases")
        axis.legend(loc="upper left")
    return figure


def draw_coverage(covered: pd.DataFrame) -> Figure:
    """The share of scores whose true probability the 95 % band holds, by truth and cases."""
    figure, axis = subplots(figsize=(5.6, 4.8))
    axis.axvspan(93, 97, color=COLOURS["Linear"], alpha=0.2, linewidth=0)
    shades = [COLOURS[name] for name in ("held out", "ISGP", "data", "bound", "GP", "PAVA")]
    for n, colour, marker in zip(covered, shades, "^osvDP", strict=False):
        places = range(len(covered))
        axis.plot(100 * covered[n], places, marker, color=colour, linestyle="", label=f"{n:,}")
    axis.set_yticks(range(len(covered)), covered.index)
    axis.set(xlabel="% of scores with the truth in the band")
    legend_above(figure, axis, title="cases", ncols=3)
    return figure
