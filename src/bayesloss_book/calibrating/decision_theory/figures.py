"""The figures of the page on decisions: LHG figure 1, and what becomes of it elsewhere."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from scipy.stats import norm

from bayesloss_book.drawing.figures import COLOURS, hatch
from bayesloss_book.problems.power_plant import PowerPlant, predictive_divergence

# Colour and dashes of each distribution; the dashes are those of the paper's figure.
STYLES = {
    "posterior": (COLOURS["ISGP"], "-"),
    "min KL(q‖p)": (COLOURS["GP"], ":"),
    "min KL(p‖q)": (COLOURS["PAVA"], "--"),
    "right tail": (COLOURS["accent"], "-."),
}
# The text calls the Gaussians q₁ to q₃.
LABELS = {name: f"q{'₁₂₃'[k - 1]}: {name}" if k else name for k, name in enumerate(STYLES)}


def draw_figure_1(plant: PowerPlant, fits: dict[str, tuple[float, float]]) -> Figure:
    """LHG figure 1: densities above, distribution functions below."""
    theta = np.linspace(220, 400, 721)
    figure, (top, bottom) = subplots(2, 1, figsize=(5.6, 6.0), sharex=True)
    for name, (colour, dashes) in STYLES.items():
        if name == "posterior":
            density = plant.density(theta)
            below = 1 - plant.tail(theta)
        else:
            density = norm.pdf(theta, *fits[name])
            below = norm.cdf(theta, *fits[name])
        top.plot(theta, density, dashes, color=colour, label=LABELS[name])
        bottom.plot(theta, below, dashes, color=colour)
    for axis in (top, bottom):
        axis.axvline(plant.critical, color="black", linewidth=0.8)
    bottom.axhline(1 - plant.shutdown / plant.meltdown, color="black", linewidth=0.8)
    bottom.text(222, 1 - plant.shutdown / plant.meltdown + 0.015, "above: stay on")
    bottom.text(plant.critical + 1.5, 0.05, "critical\ntemperature")
    top.set(ylabel="density")
    top.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    bottom.set(xlabel="temperature θ in °C", ylabel="probability below θ")
    return figure


def draw_thresholds(plant: PowerPlant, fits: dict[str, tuple[float, float]]) -> Figure:
    """Where q decides otherwise than p, against the critical temperature and the costs."""
    critical = np.linspace(250, 400, 601)
    figure, axes = subplots(2, 1, figsize=(5.6, 6.8), sharex=True, sharey=True)
    truth = plant.tail(critical)
    for axis, name in zip(axes, ("min KL(q‖p)", "min KL(p‖q)"), strict=True):
        colour, dashes = STYLES[name]
        tail = norm.sf(critical, *fits[name])
        axis.plot(critical, truth, color=STYLES["posterior"][0], label="posterior")
        axis.plot(critical, tail, dashes, color=colour, label=LABELS[name])
        axis.fill_between(critical, tail, truth, where=tail < truth, color=colour, alpha=0.25)
        hatch(axis, critical, tail, truth, edgecolor=colour, where=tail > truth)
        axis.plot(plant.critical, plant.shutdown / plant.meltdown, "o", color="black", markersize=5)
        axis.set(yscale="log", ylim=(1e-3, 1), ylabel="cost of shutdown / of meltdown")
        axis.legend(loc="lower left")
    axes[-1].set(xlabel="critical temperature in °C")
    return figure


def draw_decision_map(plant: PowerPlant, fits: dict[str, tuple[float, float]]) -> Figure:
    """The Gaussians that decide as the posterior does, and the three of figure 1."""
    deviations = np.linspace(5, 60, 2)
    border = plant.critical - deviations * norm.isf(plant.shutdown / plant.meltdown)
    figure, axis = subplots(figsize=(5.6, 4.8))
    axis.fill_betweenx(deviations, border, 380, color=COLOURS["ISGP"], alpha=0.25, linewidth=0)
    for (name, (mean, deviation)), marker in zip(fits.items(), "osD", strict=True):
        axis.plot(
            mean, deviation, marker, color=STYLES[name][0], label=LABELS[name], linestyle="none"
        )
    axis.text(345, 45, "shut down,\n$d_L = 0$", ha="center")
    axis.text(258, 9, "stay on", ha="center")
    axis.set(xlim=(240, 380), ylim=(5, 60))
    axis.set(xlabel="mean of q in °C", ylabel="standard deviation of q")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)  # off the border
    return figure


def draw_finer(counts: tuple[int, ...]) -> Figure:
    """d_L against the mean of q, for numbers of evenly spread inputs; the best means shaded."""
    means = np.linspace(-1, 1, 2001)
    p = (0.103, 0.5)
    figure, axes = subplots(len(counts), 1, figsize=(5.6, 6.4), sharex=True, sharey=True)
    for axis, n_inputs in zip(axes, counts, strict=True):
        inputs = (2 * np.arange(n_inputs) + 1) / n_inputs - 1
        values = predictive_divergence([(mean, p[1]) for mean in means], p, inputs, 0.5)
        best = means[values < values.min() + 1e-12]
        axis.axvspan(best.min(), best.max(), color=COLOURS["ISGP"], alpha=0.25, linewidth=0)
        axis.plot(means, values, color=COLOURS["ISGP"])
        axis.axvline(p[0], color="black", linewidth=0.8)
        axis.set(ylabel="excess cost $d_L$", title=f"{n_inputs} input{'s' if n_inputs > 1 else ''}")
    axes[-1].set(xlabel="mean of q")
    return figure
