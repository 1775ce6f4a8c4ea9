"""The figures that set Laplace's approximation against long runs."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots

from bayesloss.companion.figures import COLOURS
from bayesloss.experiments.laplace_mcmc import (
    TASKS,
    data_set,
    diagnose,
    grid,
    long_run,
    prior_and_likelihood,
    source_of_chains,
)
from bayesloss.learning.laplace import LogJoint, laplace

__all__ = ["draw_against_chains", "draw_bands"]


def draw_bands(n: int, n_basis: int, seed: int, n_draws: int) -> tuple[Figure, pd.DataFrame]:
    """Mean and 95 % band of nu, by Laplace and by a long run; and the run's diagnostics."""
    figure, axes = subplots(1, 2, figsize=(8.0, 3.6))
    rows = {}
    for axis, task in zip(axes, TASKS, strict=True):
        prior, likelihood = prior_and_likelihood(task, n_basis)
        x, y = data_set(task, n, seed)
        posterior = laplace(prior, likelihood, x, y)
        joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))
        chains = long_run(
            joint,
            posterior,
            n_draws=n_draws,
            n_burn_in=200,
            n_annealed=64,
            n_temperatures=100,
            seed=seed,
        )
        nu = source_of_chains(prior, grid(), chains.Gamma)
        rows[task] = diagnose(nu)
        low, high = np.quantile(nu, (0.025, 0.975), axis=(0, 1))
        axis.fill_between(
            grid(), low, high, color=COLOURS["data"], alpha=0.25, label="long run, 95 %"
        )
        axis.plot(grid(), nu.mean(axis=(0, 1)), color=COLOURS["data"], label="long run, mean")
        mean, variance = (part.numpy() for part in posterior.moments(grid()))
        axis.plot(grid(), mean, "--", color=COLOURS["GP"], label="Laplace, mean and 95 %")
        for sign in (-1, 1):
            axis.plot(
                grid(), mean + sign * 1.96 * np.sqrt(variance), ":", color=COLOURS["GP"], lw=1.3
            )
        if task == "regression":
            axis.plot(x, y, ".", color="black", markersize=3)
        else:
            for label, height in ((0, 0.02), (1, 0.98)):
                at = x[y == label]
                axis.plot(
                    at,
                    np.full(len(at), height),
                    "|",
                    color="black",
                    transform=axis.get_xaxis_transform(),
                )
        axis.set(title=task, xlabel="x", ylabel=r"$\nu(x)$")
    axes[0].legend(fontsize=8)
    return figure, pd.DataFrame(rows).T


def draw_against_chains(results: pd.DataFrame) -> Figure:
    """Against n: errors of mean, spread and evidence. A dot is a data set, a line their mean."""
    figure, axes = subplots(1, 3, figsize=(9.0, 3.3))
    evidence = results.assign(
        error=results["laplace"] - results["annealed"],
        error_bound=results["bound"] - results["annealed"],
    )
    for task, colour, marker in (
        ("regression", COLOURS["ISGP"], "o"),
        ("classification", COLOURS["GP"], "s"),
    ):
        rows = evidence[evidence["task"] == task]
        for axis, column, dashes in (
            (axes[0], "shift", "-"),
            (axes[0], "shift_max", ":"),
            (axes[1], "sd_ratio", "-"),
            (axes[1], "sd_high", ":"),
            (axes[2], "error", "-"),
        ):
            centre = rows.groupby("n")[column].mean()
            solid = dashes == "-"
            axis.plot(
                centre.index,
                centre,
                dashes,
                color=colour,
                label=task if solid else f"{task}, worst x",
            )
            axis.plot(rows["n"], rows[column], marker, color=colour, ms=4, alpha=0.6)
    axes[0].set(ylabel="error of the mean, in exact sd", ylim=(0, None))
    axes[1].set(ylabel="Laplace's sd / exact sd")
    axes[1].axhline(1, color="black", linewidth=0.8)
    axes[2].set(ylabel="error of the log evidence, nats")
    axes[2].axhline(0, color="black", linewidth=0.8)
    for axis in axes:
        axis.set(xscale="log", xlabel="number of data n")
    axes[0].legend(fontsize=7)
    return figure
