"""The figures of the page on losses drawn from the prior."""

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots

from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.learning.drawn_losses import losses
from bayesloss_book.problems.random_sources import LOSSES, MARGINS, inverse_source, make_prior


def draw_construction(name: str, *, n_paths: int, seed: int) -> Figure:
    """Theorem 2 (i) for one G: paths, the canonical links built from them, and the link chi."""
    margin = MARGINS[name]
    prior = make_prior(a=2.0, c=0.25, n_basis=16)
    u = np.linspace(0.02, 0.98, 97)
    chi = losses.represented_link(margin, u)
    x = torch.linspace(-4, 4, 401, dtype=torch.float64)
    figure, (left, middle, right) = subplots(3, 1, figsize=(5.8, 8.0))
    for Gamma in prior.sample(n_paths, torch.Generator().manual_seed(seed)):
        left.plot(x, prior.source(x, Gamma), linewidth=1.2)
        link = prior.source(torch.from_numpy(chi), Gamma).numpy()
        middle.plot(u, link, linewidth=1.2)
        right.plot(u, inverse_source(prior, Gamma, link), linewidth=2)
    right.plot(u, chi, ":", color="black", linewidth=2)
    left.set(xlabel="$x$", ylabel="$\\nu(x)$")
    middle.set(xlabel="$u$", ylabel="$g(u) = \\nu(\\chi(u))$")
    right.set(xlabel="$u$", ylabel="$\\chi(u) = \\nu^{-1}(g(u))$")
    return figure


def draw_failure(*, turn: float, n_paths: int, seed: int) -> Figure:
    """How often G o nu^-1 is not calibrated, as the prior of the intercept gets narrower."""
    figure, axis = subplots(figsize=(5.6, 4.0))
    gammas = np.geomspace(1e-3, 1e2, 31)
    for a, colour, dashes in ((1.2, "ISGP", "-"), (8.0, "GP", "--")):
        exact = [losses.failure_probability(make_prior(a=a, gamma=gamma), turn) for gamma in gammas]
        axis.plot(gammas, exact, dashes, color=COLOURS[colour], label=f"exact, $a$ = {a:g}")
        for number, gamma in enumerate(gammas[::6]):
            prior = make_prior(a=a, gamma=gamma)
            share, _ = losses.failure_frequency(prior, turn, n_paths, seed + number)
            axis.plot(gamma, share, "o", color=COLOURS[colour], markersize=5, clip_on=False)
    axis.axvline(0.01, color="black", linewidth=0.8, linestyle=":")
    axis.set(xscale="log", ylim=(0, 0.5), ylabel="probability of failure")
    axis.set(xlabel="precision $\\gamma$ of the intercept (dotted: W&N's)")
    axis.legend()
    return figure


def draw_slack(table: pd.DataFrame) -> Figure:
    """Both sides of theorem 4 on the breast-cancer data, for each loss and each gamma."""
    names = list(LOSSES)
    figure, axes = subplots(1, len(names), figsize=(5.6, 3.4))
    for axis, name in zip(axes, names, strict=True):
        rows = table.loc[name]
        place = np.arange(len(rows))
        axis.bar(place, rows["average over sources"], color=COLOURS["ISGP"], width=0.6)
        axis.axhline(rows["canonical loss"].iloc[0], color=COLOURS["GP"], linestyle="--")
        axis.set_xticks(place, [f"{gamma:g}" for gamma in rows.index])
        axis.set(title=name)
        axis.set(xlabel="$\\gamma$")
    axes[0].set(ylabel="average loss")
    return figure
