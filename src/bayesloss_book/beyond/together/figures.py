"""The figures on decisions that are judged together, and the live example."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from numpy.typing import NDArray

from bayesloss import decide_together
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss_book.beyond.together import experiment
from bayesloss_book.drawing.figures import COLOURS, draw_yes, legend_above, style
from bayesloss_book.references.probit_references import TESTS, draw_data

_STYLES = {
    "laplace": ("Linear", "v"),
    "ep": ("GP", "o"),
    "ep_alone": ("GP", "x"),
    "exact": ("ISGP", "s"),
    "exact_alone": ("ISGP", "+"),
    "loss_em": ("PAVA", "^"),
}


@dataclass(frozen=True)
class Live:
    """A data set of Table 4, targets in order, and joint draws of their labels."""

    inputs: NDArray
    labels: NDArray
    x: NDArray
    together: NDArray  # draws of the labels, of shape (n, m)
    alone: NDArray  # the same columns, each in an order of its own


def live(n_sets: int, m: int, n_draws: int, seed: int) -> Live:
    """The first data set on which decisions by the F-measure differ most with the dependence."""
    prior, y, unit = draw_data(*experiment.KERNELS[0], n_sets, m, seed)
    x = (unit[0] + TESTS["u_05_15"]).sort().values
    ep = expectation_propagation(prior.features, y)
    z = experiment.weighted_draws(prior, y, ep, n_draws, seed)
    generator = torch.Generator().manual_seed(seed)
    chance = np.random.default_rng(seed)
    found = None
    most = -1
    for j in range(n_sets):
        one = experiment.data_set(prior, j)
        together = one.draw_labels(z[j], x, generator).numpy().astype(int)
        alone = chance.permuted(together, axis=0)
        both = [decide_together(draws).chosen for draws in (together, alone)]
        if (differ := int((both[0] != both[1]).sum())) > most:
            most = differ
            found = Live(prior.inputs[j].numpy(), y[j].numpy(), x.numpy(), together, alone)
    if found is None:
        raise ValueError(f"expected at least one data set, got n_sets={n_sets}")
    return found


def draw_example(here: Live) -> Figure:
    """The probability of +1, some joint draws, and what is chosen with and without them."""
    figure, (upper, lower) = subplots(2, 1, figsize=(5.8, 4.6), sharex=True, height_ratios=[2.2, 1])
    upper.plot(here.x, here.together.mean(axis=0), color="black", label="probability of +1")
    for label, marker in ((1, "^"), (-1, "v")):
        at = here.inputs[here.labels == label]
        upper.plot(at, np.full(len(at), 0.03), marker, color=COLOURS["data"], markersize=7)
    upper.set(ylabel="probability of +1", ylim=(0, 1))
    rows = {"one by one": (here.alone, "GP"), "together": (here.together, "ISGP")}
    for place, (draws, colour) in enumerate(rows.values()):
        draw_yes(lower, here.x, place, decide_together(draws).chosen, COLOURS[colour])
    lower.set_yticks([0.5, 1.5], list(rows))
    lower.set(xlabel="input $x$", title="chosen for the largest expected F-measure", ylim=(2, 0))
    lower.grid(visible=False)
    return figure


def draw_counts(here: Live) -> Figure:
    """How many of the targets are positive: by joint draws, and target by target."""
    figure, axis = subplots(figsize=(5.8, 3.0))
    m = here.together.shape[1]
    bins = np.linspace(0, m, 41)
    for name, draws, colour in (
        ("together", here.together, COLOURS["ISGP"]),
        ("one by one", here.alone, COLOURS["GP"]),
    ):
        how = {"histtype": "step", "linewidth": 2, "color": colour, "label": name}
        axis.hist(draws.sum(axis=1), bins=bins, density=True, **how)
    axis.set(xlabel=f"how many of {m} targets are positive", ylabel="density", xlim=(0, m))
    axis.legend()
    return figure


def draw_regrets(found: pd.DataFrame) -> Figure:
    """Mean regret by utility, number of targets and test, with standard errors over cells."""
    figure, panels = subplots(2, 1, figsize=(5.8, 7.6), sharex=True)
    for axis, test in zip(panels, experiment.INPUTS, strict=True):
        every = [(u, m) for u in experiment.UTILITIES for m in experiment.SIZES]
        rows = [(u, m) for u, m in every if (u, m, test, "ep") in found.index]
        for i, (method, of_method) in enumerate(_STYLES.items()):
            part = 1e3 * found.loc[[(u, m, test, method) for u, m in rows]]
            look = style(*of_method, markersize=6, label=experiment.METHODS[method])
            heights = np.arange(len(rows)) + 0.11 * (i - 2.5)
            axis.errorbar(part["mean"], heights, xerr=part["error"], **look)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_yticks(range(len(rows)), [f"{experiment.UTILITIES[u]}, {m:,}" for u, m in rows])
        axis.set(title=f"targets {experiment.INPUTS[test]}")
        axis.invert_yaxis()
    panels[-1].set(xlabel="utility lost, in thousandths of its range")
    legend_above(figure, panels[0], ncols=2)
    return figure
