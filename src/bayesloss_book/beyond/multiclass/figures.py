"""The figures on many classes at once."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots

from bayesloss import LinkgisticClassifier
from bayesloss_book.beyond.multiclass import summary
from bayesloss_book.beyond.multiclass.theorems import PLANE, curl, sources_like
from bayesloss_book.drawing.figures import COLOURS, legend_above, style

STYLES = {  # colour and marker
    "multinomial": (COLOURS["Linear"], "x"),
    "one-vs-rest": (COLOURS["accent"], "v"),
    "straight lines": (COLOURS["bound"], "D"),
    "sources": (COLOURS["held out"], "s"),
    "joint": (COLOURS["ISGP"], "o"),
}


def draw_sources(model: LinkgisticClassifier, shown: Sequence[int]) -> Figure:
    """nu_k(x) - nu_k(0) - x over the range of the scores; three classes with their 95 % bands."""
    figure, axis = subplots(figsize=(5.6, 4.2))
    colours = (COLOURS["ISGP"], COLOURS["GP"], COLOURS["PAVA"])
    for k, link in enumerate(model.links_):
        x = np.linspace(link.low, link.high, 200)
        zero = link.source(0.0)
        if k not in shown:
            axis.plot(x, link.source(x) - zero - x, color=COLOURS["Linear"], linewidth=0.8)
            continue
        colour = colours[list(shown).index(k)]
        low, high = link.source_band(x)
        axis.fill_between(x, low - zero - x, high - zero - x, color=colour, alpha=0.15, lw=0)
        axis.plot(x, link.source(x) - zero - x, color=colour, linewidth=2.4, label=f"digit {k}")
    axis.axhline(0, color="black", linestyle="--", linewidth=1.4, label="one temperature for all")
    axis.set_xlabel("score of the class, at the common temperature (nats)")
    axis.set_ylabel("learned source less the line (nats)")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def draw_losses(rows: pd.DataFrame) -> Figure:
    """Log loss relative to the temperature's: a row a setting, a mark a method."""
    found = 100 * summary.differences(rows).div(summary.losses(rows)["temperature"], axis=0)
    figure, axis = subplots(figsize=(5.6, 0.8 + 0.36 * len(found)))
    for j, (method, of_method) in enumerate(STYLES.items()):
        places = np.arange(len(found)) + 0.13 * (j - 2)
        size = 7 if method == "joint" else 5
        look = style(*of_method, markersize=size, linewidth=1.0, label=method)
        axis.errorbar(found[method, "mean"], places, xerr=found[method, "error"], **look)
    axis.axvline(0, color="black", linewidth=1.0)
    names = [f"{d}{f', {n:,}' if n else ''}, C = {c:g}" for d, n, c in found.index]
    axis.set_yticks(range(len(found)), names)
    axis.invert_yaxis()
    axis.set_xscale("symlog", linthresh=10)
    means = found.xs("mean", axis=1, level=1)
    axis.set_xlim(1.6 * means.min(axis=None), 1.6 * means.max(axis=None))
    axis.set_xticks([-50, -20, -5, 0, 5, 20, 100])
    axis.xaxis.set_major_formatter("{x:g}")
    axis.minorticks_off()
    axis.set_xlabel("log loss above that of the temperature (%)")
    legend_above(figure, axis, ncols=3)
    return figure


def draw_curl(kinds: Sequence[str]) -> Figure:
    """The curl of the inverse link on the plane of three scores, a panel a kind of sources."""
    figure, axes = subplots(2, 2, figsize=(5.6, 5.4), sharex=True, sharey=True)
    grid = np.linspace(-4, 4, 161)
    x = grid[None, :, None] * PLANE[0] + grid[:, None, None] * PLANE[1]
    for axis, kind in zip(axes.flat, kinds, strict=True):
        values = curl(sources_like(kind), x)
        image = axis.pcolormesh(
            grid, grid, values, cmap="RdBu_r", vmin=-0.25, vmax=0.25, rasterized=True
        )
        axis.set(title=kind, aspect="equal")
        axis.grid(visible=False)
    figure.colorbar(image, ax=axes, shrink=0.7).set_label("curl of the probabilities")
    figure.supxlabel(r"$(x_1 - x_2)/\sqrt{2}$", fontsize="medium")
    figure.supylabel(r"$(x_1 + x_2 - 2 x_3)/\sqrt{6}$", fontsize="medium")
    return figure


def draw_rounds(evidence: Sequence[float], loss: Sequence[float], lines: float) -> Figure:
    """Held-out evidence and test loss, round by round."""
    figure, (top, bottom) = subplots(2, 1, figsize=(5.6, 4.8), sharex=True)
    rounds = np.arange(1, len(evidence) + 1)
    top.plot(rounds, evidence, "o-", color=COLOURS["ISGP"])
    top.set(ylabel="log evidence of\nheld-out labels (nats)")
    bottom.plot(rounds, loss, "o-", color=COLOURS["GP"], label="joint model")
    bottom.axhline(
        lines, color=COLOURS["bound"], linestyle="--", label="straight lines, after their rounds"
    )
    bottom.set(ylabel="test log loss (nats)", xlabel="round", xticks=rounds)
    bottom.legend()
    return figure
