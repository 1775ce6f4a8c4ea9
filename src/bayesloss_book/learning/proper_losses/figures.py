"""The figures of the page on proper losses (W&N section 2 and Figure 1)."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.pyplot import setp, subplots
from torch import Tensor

from bayesloss.composite_losses import CompositeLoss
from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.learning.proper_losses.examples import LOSSES, best_line, bumpy, skewed_truth

_STYLES = {"log": "-", "square": "--", "Matsushita": "-.", "skewed log": "-"}
_LINES = dict(zip(_STYLES, ("ISGP", "PAVA", "data", "GP"), strict=True))


def draw_losses() -> Figure:
    """The four losses through four windows: the charge, the link, the weight and the Bayes risk."""
    figure, axes = subplots(2, 2, figsize=(5.6, 6.4), sharex=True)
    u = torch.linspace(0.004, 0.996, 249, dtype=torch.float64)
    panels = {
        "charge if $y = 1$": (lambda loss: loss.loss(1, u), (0, 4)),
        "canonical link": (lambda loss: loss.canonical_link(u), (-6, 6)),
        "weight": (lambda loss: loss.weight(u), (0, 20)),
        "Bayes risk": (lambda loss: loss.bayes_risk(u), (0, 1.05)),
    }
    for axis, (title, (values, limits)) in zip(axes.flat, panels.items(), strict=True):
        for name, loss in LOSSES.items():
            style = {"linestyle": _STYLES[name], "color": COLOURS[_LINES[name]]}
            axis.plot(u, values(loss), label=name, **style)
        axis.set(title=title, ylim=limits, xlim=(0, 1), xticks=[0, 0.5, 1])
    setp(axes[1], xlabel="probability $u$")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def draw_skew() -> Figure:
    """Two losses on probabilities that are skewed, and the source that the log loss would need."""
    figure, (upper, lower) = subplots(2, 1, figsize=(5.8, 6.4), sharex=True)
    x, truth = skewed_truth()
    log = LOSSES["log"]
    skewed = LOSSES["skewed log"]
    curves = {
        "truth: a line under the skewed link": (truth, "-", "GP", 2.4),
        "best line under the logit": (best_line(log, log), "-", "ISGP", 1.8),
        "the same, errors charged by the skewed loss": (best_line(skewed, log), ":", "data", 2.2),
    }
    for label, (u, dashes, colour, width) in curves.items():
        style = {"color": COLOURS[colour], "linewidth": width, "linestyle": dashes}
        upper.plot(x, u, label=label, **style)
        lower.plot(x, torch.logit(u), **style)
    upper.set(ylabel="probability of $y = 1$", ylim=(-0.02, 1.4), yticks=[0, 0.5, 1])
    upper.legend(loc="upper left")
    lower.set(xlabel="score", ylabel="log odds")
    return figure


def draw_bounded_link() -> Figure:
    """The square loss of a score, within the range of its canonical link and three ways beyond."""
    figure, axes = subplots(1, 2, figsize=(8.0, 3.4), sharey=True)
    a = torch.linspace(-2.5, 2.5, 251, dtype=torch.float64)
    loss = LOSSES["square"]
    for axis, y in zip(axes, (1, -1), strict=True):
        axis.axvspan(-1, 1, color="0.93", zorder=0)
        straight = loss.canonical_loss(y, a)
        capped = loss.loss(y, loss.inverse_canonical_link(a))
        axis.plot(a, ((y - a) / 2) ** 2, ":", color=COLOURS["GP"], label="parabola")
        axis.plot(a, straight, color=COLOURS["ISGP"], label="conjugate over [0, 1]")
        axis.plot(a, capped, "--", color=COLOURS["PAVA"], label="probability cut off at 0 and 1")
        axis.set(xlabel="canonical score $a$", title=f"label ${y}$", ylim=(-0.1, 3.1))
    axes[0].set(ylabel="square loss")
    axes[0].legend(fontsize="small")
    return figure


def draw_stationary_points(pi: float) -> Figure:
    """Conditional risks of four margin losses; dots where equation (2) puts the probability pi."""
    figure, axes = subplots(2, 2, figsize=(5.6, 5.2), sharex=True)
    x = np.linspace(-3, 3, 241)
    ratio = math.log(pi / (1 - pi))
    panels = {
        "exponential": (lambda z: np.exp(-z), ratio / 2),
        "minus exponential": (lambda z: -np.exp(-z), ratio / 2),
        "Savage, not convex": (lambda z: 1 / (1 + np.exp(z)) ** 2, ratio),
        "hinge": (lambda z: np.maximum(0, 1 - z), None),
    }
    for axis, (name, (margin, point)) in zip(axes.flat, panels.items(), strict=True):
        axis.plot(x, pi * margin(x) + (1 - pi) * margin(-x), color=COLOURS["ISGP"])
        if point is not None:
            at = pi * margin(point) + (1 - pi) * margin(-point)
            axis.plot([point], [at], "o", color=COLOURS["GP"], markersize=7)
        axis.set(title=name, xticks=[-2, 0, 2])
    setp(axes[1], xlabel="score $x$")
    setp(axes[:, 0], ylabel=rf"risk at $\pi = {pi:g}$")
    return figure


def draw_diagram(composite: CompositeLoss, probabilities: Sequence[float]) -> Figure:
    """Figure 1 of W&N, with the values that travel along its arrows."""
    u = torch.tensor(probabilities, dtype=torch.float64)
    x = composite.link(u)
    by_source = composite.source(x)
    direct = composite.canonical.canonical_link(u)
    figure, axis = subplots(figsize=(5.6, 3.9))
    axis.set(xlim=(0, 10), ylim=(0, 6))
    axis.axis("off")
    _node(axis, (1.7, 1.0), "probability $u$", u)
    _node(axis, (5.0, 5.0), "score $x$", x)
    _node(axis, (8.3, 1.0), "canonical score $a$", by_source, direct)
    if not torch.allclose(by_source, direct, atol=1e-9):
        raise ValueError("expected a source whose inverse is found: the diagram does not commute")
    _arrow(axis, (2.2, 1.7), (4.2, 4.3), r"composite link $\chi$", (2.0, 3.2), "ISGP")
    _arrow(axis, (5.8, 4.3), (7.8, 1.7), r"source $\nu$", (7.8, 3.2), "GP")
    name = r"canonical link $-\underline{L}^{\prime}$"
    _arrow(axis, (3.0, 1.0), (5.8, 1.0), name, (4.3, 0.4), "PAVA")
    return figure


def draw_margin_losses(composite: CompositeLoss) -> Figure:
    """Equation (6) and Theorem 2 (ii) for the logistic loss and two sources, one of them odd."""
    figure, axes = subplots(1, 2, figsize=(8.0, 3.4), sharey=True)
    z = torch.linspace(-4, 4, 161, dtype=torch.float64)
    loss = composite.canonical
    odd = CompositeLoss(loss, lambda x: bumpy(x, start=0.0))
    sources = {"odd source": odd, "a source that is not odd": composite}
    for axis, (title, one) in zip(axes, sources.items(), strict=True):
        plus, minus = (loss.conjugate(-sign * one.inverse_source(sign * z)) for sign in (1, -1))
        axis.plot(z, plus, color=COLOURS["ISGP"], label="Theorem 2 (ii); W&N's (6) for $y = 1$")
        axis.plot(z, minus, "--", color=COLOURS["GP"], label="W&N's (6) for $y = -1$")
        axis.plot(z, loss.conjugate(-z), ":", color=COLOURS["data"], label="$G$ itself")
        axis.set(title=title, xlabel="margin $z$")
    axes[0].set(ylabel="margin loss")
    axes[0].legend(fontsize="small")
    return figure


def _node(axis: Axes, place: tuple[float, float], name: str, *values: Tensor) -> None:
    # 0 is added so that no rounding error shows as -0.00
    lines = [",  ".join(f"{round(number, 2) + 0:.2f}" for number in one.tolist()) for one in values]
    if len(lines) == 2:
        lines = [f"by way of $x$:  {lines[0]}", f"directly:  {lines[1]}"]
    box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": "0.4"}
    axis.text(*place, "\n".join([name, *lines]), ha="center", va="center", bbox=box)


def _arrow(
    axis: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    name: str,
    place: tuple[float, float],
    colour: str,
) -> None:
    style = {"arrowstyle": "-|>", "color": COLOURS[colour], "linewidth": 1.8}
    axis.annotate("", xy=end, xytext=start, arrowprops=style)
    axis.text(*place, name, ha="center", va="center", color=COLOURS[colour])
