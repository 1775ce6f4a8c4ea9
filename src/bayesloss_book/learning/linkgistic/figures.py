"""The figures of the page on linkgistic regression, and the learned link of the guide."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import expit

from bayesloss.learning.links.fitted_link import FittedLink
from bayesloss_book import Array
from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.learning.linkgistic.rounds import Round


def draw_link(link: FittedLink, scores: ArrayLike) -> Figure:
    """The learned source and inverse link with 95 % bands, and the training scores beneath."""
    x = np.linspace(link.low, link.high, 300)
    figure, axes = subplots(1, 2, figsize=(7.2, 3.0))
    parts = (
        (link.source(x), link.source_band(x), "log odds"),
        (link.inverse_link(x), link.inverse_link_band(x), "probability"),
    )
    for axis, (mean, band, name) in zip(axes, parts, strict=True):
        axis.fill_between(x, *band, color=COLOURS["ISGP"], alpha=0.25, lw=0, label="95 % band")
        axis.plot(x, mean, color=COLOURS["ISGP"], label="learned link")
        axis.set(xlabel="score", ylabel=name)
    below = axes[1].twinx()
    below.hist(np.asarray(scores), bins=40, color=COLOURS["data"], alpha=0.35)
    below.set(ylim=(0, 6 * below.get_ylim()[1]), yticks=[])
    below.spines["right"].set_visible(False)
    below.grid(visible=False)
    axes[0].legend(loc="upper left")
    return figure


def draw_fall(rounds: Sequence[Round], limits: Sequence[float]) -> Figure:
    """The log evidence round by round, its upper limits, and what each M-step gained."""
    figure, (left, right) = subplots(2, 1, figsize=(5.4, 6.2))
    values = [found.value for found in rounds]
    left.plot(values, "o-", color=COLOURS["ISGP"], ms=4, label="by Laplace")
    label = "upper limit, by the best increasing link"
    left.plot(limits, "v:", color=COLOURS["accent"], ms=5, label=label)
    left.set(xlabel="round", ylabel="nats", title="log evidence minus the penalty")
    left.legend(fontsize="small")
    gains = [found.rise for found in rounds[1:]]
    right.semilogy(range(1, len(rounds)), gains, "s-", color=COLOURS["GP"], ms=4)
    right.set(xlabel="round", ylabel="nats", title="rise of Q in the M-step before")
    return figure


def draw_creep(rounds: Sequence[Round], shown: Sequence[int]) -> Figure:
    """The length of the weights, the log evidence, and the link of some rounds on one axis."""
    figure, (left, middle, right) = subplots(3, 1, figsize=(5.4, 7.6))
    left.plot([float(found.beta.norm()) for found in rounds], color=COLOURS["ISGP"])
    left.set(xlabel="round", ylabel=r"$|\beta|$", ylim=(0, None), title="weights")
    middle.plot([found.value - rounds[0].value for found in rounds], color=COLOURS["ISGP"])
    middle.set(xlabel="round", ylabel="nats above round 0", title="log evidence")
    styles = ("-", "--", ":")
    for number, dashes, colour in zip(shown, styles, list(COLOURS.values())[:3], strict=False):
        found = rounds[number]
        x = found.scores.sort().values
        nu = found.posterior.mean(x)
        right.plot(x / x.std(), nu, dashes, color=colour, label=f"round {number}")
    right.set(xlabel="score / its deviation", ylabel="log odds", title=r"mean source $\nu$")
    right.legend(fontsize="small")
    return figure


def draw_outside(links: Mapping[str, FittedLink]) -> Figure:
    """Links of both priors over two periods and a half: the data, the period's edge, and beyond."""
    figure, axes = subplots(len(links), 1, figsize=(5.4, 2.9 * len(links)), squeeze=False)
    for axis, (name, link) in zip(axes[:, 0], links.items(), strict=True):
        edge = link.edge
        x = np.linspace(-2.5 * edge, 2.5 * edge, 600)
        axis.axvspan(link.low, link.high, color=COLOURS["data"], alpha=0.12, lw=0)
        axis.fill_between(x, *link.source_band(x), color=COLOURS[name], alpha=0.25, lw=0)
        axis.plot(x, link.source(x), color=COLOURS[name])
        for side in (-edge, edge):
            axis.axvline(side, color=COLOURS["data"], ls="--", lw=1)
        axis.set(xlabel="score", ylabel=r"$\nu$", title=name)
    return figure


def draw_short_cuts(tables: pd.DataFrame, grid: pd.DataFrame) -> Figure:
    """Errors of the interpolated tables and of the E-step on a grid, with their orders."""
    figure, (left, right) = subplots(2, 1, figsize=(5.4, 6.4))
    _loglog(left, tables.index, tables["value"], 4, "value", "ISGP", "o")
    _loglog(left, tables.index, tables["slope"], 3, "slope", "GP", "s")
    left.set(xlabel="nodes for half a period", ylabel="largest error", title="tables (M-step)")
    _loglog(right, grid.index, grid["mode"], 2, "mode, in posterior deviations", "ISGP", "o")
    right.set(xlabel="nodes", ylabel="error", title="grid (E-step)")
    for axis, table in ((left, tables), (right, grid)):
        axis.set_xticks(table.index, [str(nodes) for nodes in table.index])
        axis.minorticks_off()
        axis.legend(fontsize="small")
    return figure


def _loglog(
    axis: Axes, nodes: pd.Index, errors: pd.Series, order: int, name: str, colour: str, marker: str
) -> None:
    axis.loglog(nodes, errors, marker, color=COLOURS[colour], ms=5, label=name)
    last = float(errors.iloc[-1]) * (np.asarray(nodes, dtype=float) / nodes[-1]) ** -order
    axis.loglog(nodes, last, "--", color=COLOURS[colour], lw=1, label=f"order {order}")


def draw_sensitivity(tables: Mapping[str, pd.DataFrame], fixed: Mapping[str, float]) -> Figure:
    """Test log loss against the part of the half period that the scores fill; dashed: no link."""
    n = len(tables)
    figure, axes = subplots(n, 1, figsize=(5.4, 2.4 * n), sharex=True, squeeze=False)
    for axis, (name, table) in zip(axes[:, 0], tables.items(), strict=True):
        axis.plot(table.index, table["log loss"], "o-", color=COLOURS["ISGP"], label="learned link")
        axis.axhline(fixed[name], color=COLOURS["Linear"], ls="--", label="fixed link")
        axis.axvline(0.5, color=COLOURS["bound"], lw=1, label="the rule")
        axis.set(ylabel="test log loss", title=name)
    axes[-1, 0].set(xlabel="filled part")
    axes[0, 0].legend(fontsize="small")
    return figure


def mirrored(link: FittedLink) -> dict[str, Array]:
    """The learned inverse link on both sides of its middle, the left side turned by 180 degrees."""
    centre = brentq(lambda x: float(link.inverse_link([x])[0]) - 0.5, link.low, link.high)
    t = np.linspace(0, min(link.high - centre, centre - link.low), 200)
    return {
        "t": t,
        "right": link.inverse_link(centre + t),
        "left": 1 - link.inverse_link(centre - t),
        "right band": np.stack(link.inverse_link_band(centre + t)),
        "left band": 1 - np.stack(link.inverse_link_band(centre - t))[::-1],
    }


def draw_asymmetry(link: FittedLink) -> Figure:
    """Both halves of a learned link laid over each other, with the sigmoid's for comparison."""
    halves = mirrored(link)
    figure, axis = subplots(figsize=(5.2, 3.0))
    for side, colour in (("right", "ISGP"), ("left", "GP")):
        band = halves[f"{side} band"]
        axis.fill_between(halves["t"], *band, color=COLOURS[colour], alpha=0.25, lw=0)
        label = {"right": "above the middle", "left": "below it, turned"}[side]
        axis.plot(halves["t"], halves[side], color=COLOURS[colour], label=label)
    axis.plot(halves["t"], expit(halves["t"]), "--", color=COLOURS["Linear"], label="sigmoid, both")
    axis.set(xlabel="distance of the score from the middle", ylabel="probability")
    axis.legend()
    return figure
