"""What the page on proper losses measures and draws (W&N section 2 and figure 1)."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from torch import Tensor

from bayesloss.composite_losses import CompositeLoss
from bayesloss.proper_losses import (
    LogLoss,
    MatsushitaLoss,
    ProperLoss,
    SkewedLogLoss,
    SquareLoss,
)
from bayesloss_book.figures import COLOURS

__all__ = [
    "LOSSES",
    "bumpy",
    "draw_bounded_link",
    "draw_diagram",
    "draw_losses",
    "draw_margin_losses",
    "draw_stationary_points",
    "tightest",
]

LOSSES: dict[str, ProperLoss] = {
    "log": LogLoss(),
    "square": SquareLoss(),
    "Matsushita": MatsushitaLoss(),
    "skewed log": SkewedLogLoss(power=3),
}


def bumpy(x: Tensor, start: float = 0.5, slope: float = 1.0, bump: float = 0.8) -> Tensor:
    """A source for examples, start + slope x + bump sin x: increasing while bump < slope."""
    return start + slope * x + bump * torch.sin(x)


def tightest(n_random: int, seed: int) -> pd.DataFrame:
    """How near random instances come to violating what a Bayes risk promises.

    Three inequalities, each divided by the square that it is compared with. Taylor's theorem says
    that the quotients are at least half the least weight.

    Parameters
    ----------
    n_random : int
        Random instances for each loss and inequality.
    seed : int

    Returns
    -------
    DataFrame
        A row for each loss. ``regret``: the least of D(pi || u) / (pi - u)^2, for properness.
        ``concavity``: of the gap between the Bayes risk and its chord, over t (1 - t) (p - q)^2.
        ``Fenchel-Young``: of conjugate(a) - L(u) - a u, over (u - probability of a)^2.
        ``half the least weight``: what none should undercut.
    """
    generator = np.random.default_rng(seed)
    rows = {}
    for name, loss in LOSSES.items():
        p, q, t = torch.from_numpy(generator.uniform(size=(3, n_random)))
        far = (p - q).abs() > 1e-3  # nearer, rounding decides
        p, q, t = p[far], q[far], t[far].clamp(1e-3, 1 - 1e-3)
        chord = t * loss.bayes_risk(p) + (1 - t) * loss.bayes_risk(q)
        gap = loss.bayes_risk(t * p + (1 - t) * q) - chord
        a = loss.canonical_link(q)
        young = loss.conjugate(a) - loss.bayes_risk(p) - a * p
        grid = torch.linspace(1e-3, 1 - 1e-3, 9999, dtype=torch.float64)
        rows[name] = {
            "regret": float((loss.divergence(p, q) / (p - q) ** 2).min()),
            "concavity": float((gap / (t * (1 - t) * (p - q) ** 2)).min()),
            "Fenchel-Young": float((young / (p - q) ** 2).min()),
            "half the least weight": float(loss.weight(grid).min()) / 2,
        }
    return pd.DataFrame(rows).T


def draw_losses() -> Figure:
    """Each loss in a row: what it charges, its links, its weight and its Bayes risk."""
    figure, axes = subplots(4, 4, figsize=(8.6, 8.0), sharex=True)
    u = torch.linspace(0.004, 0.996, 249, dtype=torch.float64)
    limits = {0: (0, 4), 1: (-6, 6), 2: (0, 20), 3: (0, 1.05)}
    for row, (name, loss) in zip(axes, LOSSES.items(), strict=True):
        row[0].plot(u, loss.loss(1, u), color=COLOURS["ISGP"], label=r"$y=1$")
        row[0].plot(u, loss.loss(-1, u), "--", color=COLOURS["GP"], label=r"$y=-1$")
        row[1].plot(u, loss.canonical_link(u), color=COLOURS["data"], label="canonical")
        if name == "Matsushita":
            other = torch.logit(u) / 2
            row[1].plot(u, other, ":", color=COLOURS["accent"], label="exponential")
            row[1].legend(fontsize="x-small", loc="upper left")
        row[2].plot(u, loss.weight(u), color=COLOURS["PAVA"])
        row[3].plot(u, loss.bayes_risk(u), color=COLOURS["data"])
        for column, axis in enumerate(row):
            axis.set(ylim=limits[column], xlim=(0, 1), xticks=[0, 0.5, 1])
        row[0].set(ylabel=name)
    titles = ("loss", "link", "weight", "Bayes risk")
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set(title=title)
    for axis in axes[3]:
        axis.set(xlabel="probability $u$")
    axes[0, 0].legend(fontsize="x-small", loc="upper center")
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
    figure, axes = subplots(1, 4, figsize=(8.6, 2.8))
    x = np.linspace(-3, 3, 241)
    ratio = math.log(pi / (1 - pi))
    panels = {
        "exponential": (lambda z: np.exp(-z), ratio / 2),
        "minus exponential": (lambda z: -np.exp(-z), ratio / 2),
        "Savage, not convex": (lambda z: 1 / (1 + np.exp(z)) ** 2, ratio),
        "hinge": (lambda z: np.maximum(0, 1 - z), None),
    }
    for axis, (name, (margin, point)) in zip(axes, panels.items(), strict=True):
        risk = pi * margin(x) + (1 - pi) * margin(-x)
        axis.plot(x, risk, color=COLOURS["ISGP"])
        if point is not None:
            at = pi * margin(point) + (1 - pi) * margin(-point)
            axis.plot([point], [at], "o", color=COLOURS["GP"], markersize=7)
        axis.set(title=name, xlabel="score $x$", xticks=[-2, 0, 2])
        axis.title.set_fontsize("small")
    axes[0].set(ylabel=rf"risk at $\pi = {pi:g}$")
    return figure


def draw_diagram(composite: CompositeLoss, probabilities: Sequence[float]) -> Figure:
    """Figure 1 of W&N, with the values that travel along its arrows."""
    u = torch.tensor(probabilities, dtype=torch.float64)
    x = composite.link(u)
    by_source = composite.source(x)
    direct = composite.canonical.canonical_link(u)
    figure, axis = subplots(figsize=(7.6, 4.2))
    axis.set(xlim=(0, 10), ylim=(0, 6))
    axis.axis("off")
    _node(axis, (1.7, 1.0), "probability $u$", u)
    _node(axis, (5.0, 5.0), "prediction $x$", x)
    _node(axis, (8.3, 1.0), "canonical prediction $a$", by_source, direct)
    if not torch.allclose(by_source, direct, atol=1e-9):
        raise ValueError("expected a source whose inverse is found: the diagram does not commute")
    _arrow(axis, (2.2, 1.7), (4.2, 4.3), r"composite link $\chi$", (2.0, 3.2), "ISGP")
    _arrow(axis, (5.8, 4.3), (7.8, 1.7), r"source $\nu$", (7.8, 3.2), "GP")
    _arrow(
        axis,
        (3.4, 1.0),
        (6.4, 1.0),
        r"canonical link $-\underline{L}^{\prime}$",
        (4.9, 0.4),
        "PAVA",
    )
    return figure


def draw_margin_losses(composite: CompositeLoss) -> Figure:
    """Equation (6) and Theorem 2 (ii) for the logistic loss and two sources, one of them odd."""
    figure, axes = subplots(1, 2, figsize=(8.0, 3.4), sharey=True)
    z = torch.linspace(-4, 4, 161, dtype=torch.float64)
    loss = composite.canonical
    odd = CompositeLoss(loss, lambda x: bumpy(x, start=0.0))
    for axis, title, one in zip(
        axes, ("odd source", "a source that is not odd"), (odd, composite), strict=True
    ):
        plus, minus = one.inverse_source(z), -one.inverse_source(-z)
        axis.plot(
            z, loss.conjugate(-plus), color=COLOURS["ISGP"], label="Theorem 2 (ii); (6) for $y = 1$"
        )
        axis.plot(z, loss.conjugate(-minus), "--", color=COLOURS["GP"], label="(6) for $y = -1$")
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
