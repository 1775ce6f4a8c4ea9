"""The figures of the toy regression: W&N's Figures 3, 5, 6 and 7, on data of our own."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.pyplot import setp, subplots
from matplotlib.ticker import LogLocator, NullFormatter

from bayesloss.learning.evidence.evidence import EvidenceMaximum
from bayesloss.learning.inference.likelihoods import Gaussian
from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.learning.toy_regression.fits import bands
from bayesloss_book.problems.toys import PERIOD, REACH, Problem, grid

_SYMBOLS = {"a": "$a - 1$", "b": "$b$", "mu": r"$\mu$", "alpha": r"$\alpha$", "gamma": r"$\gamma$"}


def draw_fits(fits: Mapping[str, EvidenceMaximum[Gaussian]], data: Problem) -> Figure:
    """Figure 3: one data set, one panel a prior, with the bands of nu and of a new target."""
    figure, axes = subplots(len(fits), 1, figsize=(5.6, 6.4), sharex=True, sharey=True)
    x = grid()
    for letter, axis, (name, found) in zip("abc", axes, fits.items(), strict=False):
        found_bands = bands(found.posterior, x)
        colour = COLOURS[name]
        _band(axis, found_bands, "nu", "noisy_sd", colour, 0.15, "± 2 sd, new target")
        _band(axis, found_bands, "nu", "nu_sd", colour, 0.35, r"± 2 sd, $\nu$")
        axis.plot(x, found_bands["nu"], color=colour, label="mean")
        axis.plot(x, data.source(x), "--", color="black", linewidth=1, label="truth")
        axis.plot(data.x, data.y, ".", color=COLOURS["data"], markersize=4, label="data")
        axis.set(title=f"{letter}) {name}", ylabel=r"$\nu(x)$")
        axis.legend(loc="upper left")
    axes[-1].set(xlabel="$x$")
    return figure


def draw_panels(found: EvidenceMaximum[Gaussian], data: Problem, reach: float = REACH) -> Figure:
    """Figures 5 and 6: nu with the data, f with both roots of the true slope, f^2 with it."""
    figure, axes = subplots(3, 1, figsize=(5.6, 8.0), sharex=True)
    x = grid(reach, 401)
    inner = grid()
    shown = bands(found.posterior, x)
    colour = COLOURS["ISGP"]
    truth = {"color": "black", "linestyle": "--", "linewidth": 1}
    upper, middle, lower = axes
    _band(upper, shown, "nu", "noisy_sd", colour, 0.15, "± 2 sd, new target")
    _band(upper, shown, "nu", "nu_sd", colour, 0.35, r"± 2 sd, $\nu$")
    upper.plot(x, shown["nu"], color=colour, label="mean")
    upper.plot(inner, data.source(inner), label="truth", **truth)
    upper.plot(data.x, data.y, ".", color=COLOURS["data"], markersize=4, label="data")
    _band(middle, shown, "f", "f_sd", colour, 0.35, "± 2 sd")
    middle.plot(x, shown["f"], color=colour, label="mean of $f$")
    root = data.slope(inner).sqrt()
    middle.plot(inner, root, label=r"$\pm\sqrt{\nu'}$, truth", **truth)
    middle.plot(inner, -root, **truth)
    lower.fill_between(
        x, shown["square_low"], shown["square_high"], color=colour, alpha=0.35, lw=0, label="95 %"
    )
    lower.plot(x, shown["square"], color=colour, label="mean of $f^2$")
    lower.plot(inner, data.slope(inner), label=r"$\nu'$, truth", **truth)
    upper.set(ylabel=r"$\nu(x)$")
    middle.set(ylabel="$f(x)$")
    lower.set(ylabel="$f(x)^2$", xlabel="$x$")
    for axis in axes:
        if reach > REACH:
            axis.axvspan(-PERIOD / 2, PERIOD / 2, color=COLOURS["bound"], alpha=0.08, lw=0)
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure


def draw_slices(
    tables: Mapping[str, pd.DataFrame], fits: Mapping[str, EvidenceMaximum[Gaussian]]
) -> Figure:
    """Figure 7: slices of each objective, less its value at the optimum, which the dot marks."""
    figure, axes = subplots(3, 2, figsize=(5.6, 7.6), sharey=True)
    styles = {"bound": ("-", "ISGP", "lower bound"), "laplace": ("--", "GP", "Laplace's evidence")}
    for name, axis in zip(_SYMBOLS, axes.flat, strict=False):
        for objective, table in tables.items():
            dashes, colour, label = styles[objective]
            kept = table[table["name"] == name]
            found = fits[objective]
            prior = found.posterior.prior
            optimum = {
                "a": float(prior.kernel.a) - 1,
                "b": float(prior.kernel.b),
                "mu": float(prior.mu),
                "alpha": float(found.likelihood.alpha),
                "gamma": float(prior.gamma),
            }[name]
            value = kept["value"] - 1 if name == "a" else kept["value"]
            below = kept["evidence"] - max(found.values)
            axis.plot(value, below, dashes, color=COLOURS[colour], label=label)
            axis.plot(optimum, 0, "o", color=COLOURS[colour], markersize=6)
        axis.set(xlabel=_SYMBOLS[name], xscale="linear" if name == "mu" else "log", ylim=(-12, 1))
        if name in ("a", "b", "alpha"):  # a decade or so
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_formatter(NullFormatter())
    setp(axes[:, 0], ylabel="nats below the optimum")
    axes[2, 1].axis("off")
    axes[2, 1].legend(*axes[0, 0].get_legend_handles_labels(), loc="center")
    return figure


def _band(
    axis: Axes, shown: pd.DataFrame, mean: str, sd: str, colour: str, alpha: float, label: str
) -> None:
    x = np.asarray(shown.index)
    low = shown[mean] - 2 * shown[sd]
    high = shown[mean] + 2 * shown[sd]
    axis.fill_between(x, low, high, color=colour, alpha=alpha, lw=0, label=label)
