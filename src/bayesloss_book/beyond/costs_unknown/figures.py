"""The figures on costs of which only the distribution is known, and the live example."""

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from scipy.special import logit

from bayesloss_book.beyond.costs_unknown import fits, labels
from bayesloss_book.drawing.figures import COLOURS, legend_above, style

_STYLES = {
    "random": ("data", "o"),
    "threshold": ("PAVA", "s"),
    "variance": ("GP", "^"),
    "log": ("accent", "v"),
    "regret": ("ISGP", "D"),
}
_LOSSES = {"cost": ("the matching loss", "ISGP", "o"), "mixed": ("both losses", "bound", "s")}


def live(pool: labels.Pool, n: int, seed: int) -> labels.Paths:
    """The posterior over links after the pool's first n labels."""
    paths = labels.Paths(1_024, seed)
    for node, label in zip(pool.nodes[:n], pool.labels[:n], strict=True):
        paths.add(int(node), float(label))
    return paths


def draw_value(pool: labels.Pool, paths: labels.Paths, n: int) -> Figure:
    """A learned link, and what a label at each score is expected to save at three cost ratios."""
    figure, (upper, lower) = subplots(2, 1, figsize=(5.8, 4.8), sharex=True, height_ratios=[1, 1.1])
    x = labels.NODES
    kept = np.random.default_rng(0).choice(len(paths.p), 200, p=paths.weight)
    low, high = np.quantile(paths.p[kept], [0.025, 0.975], axis=0)
    upper.fill_between(x, low, high, color=COLOURS["ISGP"], alpha=0.2, linewidth=0)
    upper.plot(x, paths.mean, color=COLOURS["ISGP"])
    for label, marker, place in ((1.0, "^", 1.08), (0.0, "v", -0.08)):
        at = x[pool.nodes[:n][pool.labels[:n] == label]]
        upper.plot(at, np.full(len(at), place), marker, color=COLOURS["data"], markersize=5)
    upper.set(ylabel="probability", ylim=(-0.16, 1.16))
    for (ratio, t), colour, line in zip(
        labels.RATIOS.items(), ("ISGP", "PAVA", "GP"), ("-", "--", "-."), strict=True
    ):
        upper.axhline(t, color=COLOURS[colour], linewidth=0.8, linestyle=line)
        now = pool.mass @ np.minimum(t * (1 - paths.mean), (1 - t) * paths.mean)
        saved = now - labels.expected_after(paths.p, paths.weight, pool.mass, t)
        lower.plot(x, saved / saved.max(), line, color=COLOURS[colour], label=f"{ratio} : 1")
    variance = -labels.choose("variance", paths, pool.mass, 0.5)
    lower.plot(x, variance / variance.max(), ":", color="black", label="variance of the log odds")
    lower.set(xlabel="score", ylabel="worth of a label", ylim=(-0.02, 1.05))
    figure.legend(*lower.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def draw_bill() -> Figure:
    """What the matching loss does to a line whose truth is bent, and how it weighs labels."""
    figure, (lines, counts) = subplots(1, 2, figsize=(5.8, 3.0))
    z = np.linspace(-6, 3, 200)
    turns = np.exp(-(((z - fits.CENTRE) / fits.SPREAD) ** 2) / 2)
    turns *= (1 + np.exp(z)) / (1 + np.exp(fits.CENTRE))  # a missed case costs 1, and not 1 - t
    counts.plot(z, np.ones_like(z), "--", color=COLOURS["Linear"], label="fitted by the log loss")
    counts.plot(z, turns, color=COLOURS["ISGP"], label="fitted to the costs")
    counts.set(xlabel="log odds of the case", ylabel="weight of its label", ylim=(0, 1.25))
    x = torch.linspace(-6, 6, 601, dtype=torch.float64)
    truth = torch.where(x < 0, 0.7 * x, 4 * x)
    Z = torch.stack([torch.ones_like(x), x], dim=1)
    ridge = torch.full((2,), 1e-3).double()
    start = torch.tensor([0.0, 1.0], dtype=torch.float64)
    lines.plot(x, truth, color="black", label="truth")
    for loss, line, colour in (("log", "--", "Linear"), ("cost", "-", "ISGP")):
        found = Z @ fits.linear(Z, torch.sigmoid(truth), fits.LOSSES[loss], start, ridge)
        lines.plot(x, found, line, color=COLOURS[colour])
    for ratio in (5, 50):
        lines.axhline(logit(1 / (1 + ratio)), color=COLOURS["data"], linewidth=0.7)
    lines.set(xlabel="score", ylabel="log odds", ylim=(-7, 4))
    handles = [*counts.lines, lines.lines[0]]
    names = [str(line.get_label()) for line in handles]
    figure.legend(handles, names, loc="outside upper center", ncols=3)
    return figure


def draw_gains(found: pd.DataFrame) -> Figure:
    """What fitting by the matching loss saves, by number of cases; errors over sets."""
    figure, panels = subplots(4, 1, figsize=(5.8, 8.2), sharex=True)
    shown = fits.FAMILIES | {"three": "a sparse mean of three functions"}
    for axis, (family, name) in zip(panels, shown.items(), strict=True):
        axis.axhline(0, color="black", linewidth=0.8)
        for loss, (label, colour, marker) in _LOSSES.items():
            part = found.loc[(family, loss)]
            look = style(colour, marker, "-", label=label)
            axis.errorbar(part.index, part["mean"], part["error"], **look)
        axis.set(title=name, xscale="log", ylabel="saved, %")
        axis.set_xticks([50, 200, 1_000, 5_000], ["50", "200", "1,000", "5,000"])
        axis.minorticks_off()
    panels[-1].set(xlabel="cases to learn from")
    legend_above(figure, panels[0], ncols=2)
    return figure


def draw_labels(found: pd.DataFrame) -> Figure:
    """Avoidable cost in per cent of random labels', by number of labels and cost ratio."""
    figure, panels = subplots(3, 1, figsize=(5.8, 7.2), sharex=True)
    for axis, ratio in zip(panels, labels.RATIOS, strict=True):
        axis.axhline(100, color="black", linewidth=0.8)
        for k, (method, (colour, marker)) in enumerate(_STYLES.items()):
            if method != "random":
                part = found.xs((ratio, method), level=("ratio", "method")).loc[6:]
                look = style(colour, marker, "-", markersize=5, label=labels.METHODS[method])
                axis.errorbar(part.index * 1.02 ** (k - 2), part["mean"], part["error"], **look)
        axis.set(title=f"costs {ratio} : 1", xscale="log", yscale="log", ylabel="avoidable cost, %")
        axis.set_yticks([50, 100, 200], ["50", "100", "200"])
        axis.set_xticks([8, 16, 32, 64], ["8", "16", "32", "64"])
        axis.minorticks_off()
    panels[-1].set(xlabel="labels")
    legend_above(figure, panels[0], ncols=2)
    return figure
