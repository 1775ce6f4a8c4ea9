"""The figures on sparse means that are good for decisions."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from scipy.stats import norm

from bayesloss_book.beyond.sparse_means.problems import Problem
from bayesloss_book.beyond.sparse_means.rivals import fit
from bayesloss_book.drawing.figures import COLOURS, legend_above, style
from bayesloss_book.models.sparse_means import spread_support
from bayesloss_book.problems.shifted_regression import DEVIATION

_STYLES = {
    "least KL": (COLOURS["GP"], "--"),
    "least KL at the targets": (COLOURS["GP"], "--"),
    "FITC at the targets": (COLOURS["held out"], "-."),
    "targeted": (COLOURS["ISGP"], "-"),
}
_MARKERS = "osD^v"


def draw_places(problem: Problem, shift: float, labels: Mapping[str, str]) -> Figure:
    """The data, the posterior mean, and means of few functions by their names in `rivals`."""
    model = problem.model
    k = len(problem.support)
    x = torch.linspace(-3.6, 4.0, 381, dtype=torch.float64)
    floor = -2.8
    figure, axis = subplots(figsize=(5.6, 4.4))
    hill = norm.pdf(x.numpy(), shift, DEVIATION)
    axis.fill_between(x, floor, floor + hill, color=COLOURS["bound"], alpha=0.4, linewidth=0)
    axis.plot(model.x, model.y, ".", color=COLOURS["data"], alpha=0.45, markersize=5)
    exact = f"exact: {len(model.x)} bumps"
    axis.plot(x, model.action(x, model.mean), color="black", label=exact)
    for row, (name, label) in enumerate(labels.items()):
        inputs, mean = fit(name, problem, k)
        loss = float(model.divergence(mean, problem.fresh, problem.weights, inputs))
        error = np.format_float_positional(loss, precision=2, fractional=False)
        colour, dashes = _STYLES[name]
        values = model.action(x, mean, inputs)
        axis.plot(x, values, dashes, color=colour, label=f"{label}; error {error}", linewidth=2)
        height = torch.full_like(inputs, floor + 0.2 + 0.3 * row)
        axis.plot(inputs, height, "|", color=colour, markersize=11, markeredgewidth=2)
    axis.set(ylim=(floor, 2.2), xlabel="input x", ylabel="prediction")
    legend_above(figure, axis)
    return figure


def draw_discount(problem: Problem, shift: float, k: int) -> Figure:
    """How far FITC believes each datum, with functions where it will be asked."""
    model = problem.model
    places = problem.points[spread_support(model, problem.points, k)]
    cross = model.kernel(model.x, places)
    inverse = torch.linalg.pinv(model.kernel(places, places), hermitian=True, rtol=1e-10)
    unexplained = (model.kernel.b - ((cross @ inverse) * cross).sum(dim=1)).clamp(min=0)
    belief = 1 / (1 + unexplained / model.noise_variance)
    figure, axis = subplots(figsize=(5.6, 3.6))
    grid = np.linspace(-3.6, 4.0, 300)
    hill = norm.pdf(grid, shift, DEVIATION)
    axis.fill_between(grid, 0, hill, color=COLOURS["bound"], alpha=0.4, linewidth=0)
    axis.plot(model.x, belief, "o", color=COLOURS["ISGP"], markersize=6, label="a training datum")
    axis.plot(places, torch.zeros_like(places), "|", color="black", markersize=16)
    axis.text(shift, 0.06, "test inputs", ha="center")
    axis.set(xlabel="input x", ylabel="weight of a datum", ylim=(-0.03, 1.05))
    axis.legend(loc="upper left")
    return figure


def draw_benchmark(
    ratios: pd.DataFrame, labels: Mapping[str, str], settings: Sequence[tuple[str, float, int]]
) -> Figure:
    """d_L as a part of the least KL's: a row a method, by its label, a marker a problem."""
    methods = list(labels)
    figure, axis = subplots(figsize=(5.6, 1.2 + 0.5 * len(methods)))
    colours = [COLOURS[name] for name in ("ISGP", "GP", "PAVA", "accent", "data")]
    for j, (setting, colour, marker) in enumerate(zip(settings, colours, _MARKERS, strict=False)):
        part = ratios.loc[setting]
        heights = [-i + 0.14 * (len(settings) / 2 - j) for i in range(len(methods))]
        values = part.loc[methods]
        errors = [values["ratio"] - values["low"], values["high"] - values["ratio"]]
        name = f"{setting[0]}, k = {setting[2]}"
        look = style(colour, marker, markersize=6, linewidth=1.2, label=name)
        axis.errorbar(values["ratio"], heights, xerr=errors, **look)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_yticks([-i for i in range(len(methods))], list(labels.values()))
    axis.set(xscale="log", xlabel="$d_L$, as a part of the least KL's")
    axis.grid(axis="y", visible=False)
    legend_above(figure, axis, ncols=2)
    return figure


def draw_sizes(losses: pd.DataFrame) -> Figure:
    """Geometric mean of d_L against k: an index of k, a column a method."""
    figure, axis = subplots(figsize=(5.6, 4.4))
    colours = [COLOURS[name] for name in ("GP", "PAVA", "accent", "held out", "ISGP")]
    for name, colour, marker in zip(losses, colours, _MARKERS, strict=False):
        axis.plot(losses.index, losses[name], marker=marker, color=colour, markersize=8, label=name)
    axis.set(xscale="log", yscale="log", xlabel="functions kept, k", ylabel="$d_L$")
    axis.set_xticks(losses.index, [str(k) for k in losses.index])
    axis.minorticks_off()
    legend_above(figure, axis)
    return figure


def draw_cost(counted: pd.DataFrame, stored: pd.DataFrame) -> Figure:
    """Multiplications counted, and stored seconds, the fastest of each: against N."""
    figure, (above, below) = subplots(2, 1, figsize=(5.6, 6.8))
    styles = {
        "posterior mean": ("PAVA", "o"),
        "targeted": ("ISGP", "s"),
        "teacher alone": ("held out", "D"),
        "FITC at the targets": ("held out", "D"),
        "least KL": ("GP", "^"),
    }
    seconds = stored.groupby(["n", "method"])["seconds"].min().unstack("method")
    for axis, wide in ((above, counted), (below, seconds)):
        for name, (colour, marker) in styles.items():
            if name in wide:
                one = wide[name].dropna()
                axis.plot(one.index, one, marker=marker, color=COLOURS[colour], label=name)
        axis.set(xscale="log", yscale="log", xlabel="number of data N")
        axis.legend()
    above.set(ylabel="multiplications, counted")
    below.set(ylabel="seconds, stored")
    return figure
