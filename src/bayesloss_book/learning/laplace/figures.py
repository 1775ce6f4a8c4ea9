"""Figures and tables: Theorem 8, Laplace's approximation against long runs, and calibration."""

import numpy as np
import pandas as pd
import torch
from arviz_stats.base.array import array_stats
from matplotlib.figure import Figure
from matplotlib.pyplot import setp, subplots
from scipy import stats

from bayesloss.learning.inference.laplace import laplace
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss_book.drawing.figures import COLOURS, legend_above, style
from bayesloss_book.learning.laplace.calibration import LEVELS, N_DRAWS, PLACES
from bayesloss_book.learning.laplace.chains import long_run
from bayesloss_book.learning.laplace.toys import classification, small_prior
from bayesloss_book.problems import source_problems
from bayesloss_book.references.samplers import elliptical_slice_sampling


def draw_averaging(comparison: pd.DataFrame, seed: int) -> Figure:
    """Jensen's inequality for two sources, and under posteriors of many data sets."""
    figure, (upper, lower) = subplots(2, 1, figsize=(5.4, 7.2), height_ratios=(1.2, 1))
    x, y, likelihood = classification(10, seed)
    draws = laplace(prior := small_prior(), likelihood, x, y).sample(
        4000, torch.Generator().manual_seed(seed)
    )
    nu = prior.source(torch.tensor([-0.5], dtype=torch.float64), draws)[:, 0]
    ends = np.quantile(nu, [0.025, 0.975])
    costs = np.logaddexp(0, -ends)
    centre = ends.mean()
    line = np.linspace(ends[0] - 0.8, ends[1] + 0.8, 200)
    upper.plot(line, np.logaddexp(0, -line), color=COLOURS["data"], label="log loss")
    upper.plot(ends, costs, "--", marker="o", color=COLOURS["accent"], lw=1, label="two sources")
    pair = [np.logaddexp(0, -centre), costs.mean()]
    upper.plot([centre, centre], pair, color="black", lw=1, zorder=1)
    styles = {
        "averaged over sources": ("s", "GP", "average of the losses"),
        "of the mean source": ("D", "ISGP", "loss of the average source"),
    }
    reference = comparison["of the averaged probability"]
    sizes = comparison.index.unique("n")
    heights = np.arange(len(sizes))[::-1]
    for step, place, (name, (marker, colour, label)) in zip(
        (0.15, -0.15), (pair[1], pair[0]), styles.items(), strict=True
    ):
        look = {"marker": marker, "color": COLOURS[colour], "ms": 8, "ls": "none", "label": label}
        upper.plot(centre, place, **look)
        more = 1000 * (comparison[name] - reference)
        beyond = more.groupby("n", sort=False)
        lower.errorbar(beyond.mean(), heights + step, xerr=beyond.sem(), capsize=3, **look)
    upper.set(xlabel=r"$\nu(x)$ at an input with the label 1", ylabel="loss in nats")
    upper.legend()
    lower.axvline(0, color=COLOURS["PAVA"], label="loss of the averaged probability")
    lower.set_yticks(heights, [f"{n} labels" for n in sizes])
    for height in heights[:-1]:
        lower.axhline(height - 0.5, color=COLOURS["data"], lw=0.6)
    lower.grid(axis="y", visible=False)
    label = "loss minus that of the averaged probability,\nthousandths of a nat per label"
    lower.set(xlabel=label, ylim=(-0.5, len(sizes) - 0.5))
    lower.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def draw_bands(n: int, n_basis: int, seed: int, n_draws: int) -> tuple[Figure, pd.DataFrame]:
    """Mean and 95 % band of nu, by Laplace and by a long run; and how far Laplace is off."""
    figure, axes = subplots(2, 1, figsize=(5.4, 7.0))
    points = source_problems.grid()
    rows = {}
    for axis, task in zip(axes, source_problems.TASKS, strict=True):
        prior, likelihood = source_problems.prior_and_likelihood(task, n_basis)
        x, y = source_problems.data_set(task, n, seed)
        posterior = laplace(prior, likelihood, x, y)
        joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))
        how = {"n_burn_in": 50, "n_annealed": 64, "n_temperatures": 100, "seed": seed}
        chains = long_run(joint, posterior, n_draws=n_draws, **how)
        nu = source_problems.source_of_chains(prior, points, chains.Gamma)
        exact = nu.mean(axis=(0, 1))
        spread = nu.std(axis=(0, 1))
        mean, variance = (part.numpy() for part in posterior.moments(points))
        half = 1.96 * np.sqrt(variance)
        at_mode = prior.source(points, posterior.mode).numpy()
        rows[task] = {
            "Laplace's mean": float(np.sqrt((((mean - exact) / spread) ** 2).mean())),
            "source at the mode": float(np.sqrt((((at_mode - exact) / spread) ** 2).mean())),
            **source_problems.diagnose(nu),
        }
        low, high = np.quantile(nu, (0.025, 0.975), axis=(0, 1))
        look = {"color": COLOURS["data"], "alpha": 0.25, "label": "long run, 95 %"}
        axis.fill_between(points, low, high, **look)
        axis.plot(points, exact, color=COLOURS["data"], label="long run, mean")
        axis.plot(points, mean, "--", color=COLOURS["GP"], label="Laplace, mean and 95 %")
        for end in (mean - half, mean + half):
            axis.plot(points, end, ":", color=COLOURS["GP"], lw=1.3)
        axis.plot(points, at_mode, "-.", color=COLOURS["ISGP"], label="at Laplace's mode")
        if task == "regression":
            axis.plot(x, y, ".", color="black", markersize=3)
        else:
            edge = style("black", "|", transform=axis.get_xaxis_transform())
            for label, height in ((0, 0.02), (1, 0.98)):
                at = x[y == label]
                axis.plot(at, np.full(len(at), height), **edge)
        axis.set(title=task, xlabel="x", ylabel=r"$\nu(x)$")
    axes[0].legend()
    return figure, pd.DataFrame(rows).T


def draw_against_chains(results: pd.DataFrame) -> Figure:
    """Against n: errors of mean, spread and evidence. A dot is a data set, a line their mean."""
    figure, axes = subplots(3, 1, figsize=(5.4, 8.4), sharex=True)
    evidence = results.assign(
        error=results["laplace"] - results["annealed"],
        error_all=results["all_modes"] - results["annealed"],
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
            (axes[2], "error_all", "--"),
        ):
            centre = rows.groupby("n")[column].mean()
            label = task if axis is axes[0] and dashes == "-" else None
            axis.plot(centre.index, centre, dashes, color=colour, label=label)
            axis.plot(rows["n"], rows[column], marker, color=colour, ms=4, alpha=0.6)
    axes[0].set(ylabel="error of the mean, in exact sd", ylim=(0, None))
    axes[1].set(ylabel="Laplace's sd / exact sd")
    axes[1].axhline(1, color="black", linewidth=0.8)
    axes[2].set(ylabel="error of the log evidence, nats")
    axes[2].axhline(0, color="black", linewidth=0.8)
    where = "solid: over all inputs; dotted: at the worst one"
    titles = (f"mean: {where}", f"spread: {where}", "solid: one mode; dashed: all modes found")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, fontsize="medium")
    axes[2].set(xscale="log", xlabel="number of data n")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def by_size(results: pd.DataFrame) -> pd.DataFrame:
    """Means over the data sets, by toy and n, under readable names."""
    table = results.assign(
        one=results["laplace"] - results["annealed"],
        all=results["all_modes"] - results["annealed"],
        lost=1000 * (results["loss_laplace"] - results["loss_exact"]),
    )
    names = {
        "n_modes": "modes",
        "share_best": "starts at the best",
        "one": "evidence, one mode",
        "all": "evidence, all modes",
        "shift": "mean off by (sd)",
        "sd_ratio": "sd ratio",
        "lost": "lost (thousandths)",
        "r_hat": "R-hat",
        "ess": "effective size",
    }
    groups = table.groupby(["task", "n"], sort=False)
    means = groups[list(names)].mean()
    means["r_hat"], means["ess"] = groups["r_hat"].max(), groups["ess"].min().round(-1)
    return means.rename(columns=names)


def compare_samplers(n: int, n_basis: int, seed: int, n_draws: int) -> dict[str, float]:
    """Differences of two samplers, the largest over the grid in its own standard error."""
    prior, likelihood = source_problems.prior_and_likelihood("classification", n_basis)
    x, y = source_problems.data_set("classification", n, seed)
    posterior = laplace(prior, likelihood, x, y)
    joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))
    whitened = source_problems.whitened_log_likelihood(joint)
    sizes = {"n_chains": 16, "n_draws": n_draws, "n_burn_in": 200}
    z = elliptical_slice_sampling(whitened, n_basis + 1, seed=seed, **sizes)
    sizes = {"n_draws": n_draws // 2, "n_burn_in": 50, "n_annealed": 64, "n_temperatures": 60}
    chains = long_run(joint, posterior, seed=seed, **sizes)
    points = source_problems.grid()
    sliced = prior.location + prior.precision.rsqrt() * z
    first, second = (
        source_problems.source_of_chains(prior, points, Gamma) for Gamma in (sliced, chains.Gamma)
    )
    moments = [{"mean": nu.mean(axis=(0, 1)), "sd": nu.std(axis=(0, 1))} for nu in (first, second)]
    found = {"r_hat": source_problems.diagnose(first)["r_hat"]}
    for name in ("mean", "sd"):
        error = [
            np.hypot(*(array_stats.mcse(nu[:, :, at], method=name) for nu in (first, second)))
            for at in range(len(points))
        ]
        gap = moments[0][name] - moments[1][name]
        found[f"z_{name}"] = float(np.abs(gap / error).max())
    return found


def coverage(results: pd.DataFrame) -> pd.DataFrame:
    """Per cent covered, by task and method; ``error``: standard error of the 95 % column."""
    groups = results.groupby(["task", "method"], sort=False)
    table = 100 * groups[[*[f"covered_{level}" for level in LEVELS], "covered_new"]].mean()
    table.columns = [*(f"{level} %" for level in LEVELS), "new data, 95 %"]
    table["error"] = 100 * groups["covered_95"].std() / np.sqrt(groups.size())
    table["mean sd"] = groups["width"].mean()
    table["data sets"] = groups.size()
    return table


def rank_tests(results: pd.DataFrame) -> pd.DataFrame:
    """Chi-squared tests of uniform ranks by place, and the shares of truths at both ends."""
    rows = {}
    for (task, method), group in results.groupby(["task", "method"], sort=False):
        for place in PLACES:
            ranks = group[f"rank_{place}"]
            rows[(task, method, place)] = {
                "p": float(stats.chisquare(_histogram(ranks)).pvalue),
                "p_ten": float(stats.chisquare(np.bincount(ranks // 10, minlength=10)).pvalue),
                "low": float((ranks < 10).mean()),
                "high": float((ranks >= 90).mean()),
                "data sets": len(group),
            }
    return pd.DataFrame(rows).T.rename_axis(["task", "method", "x"])


def draw_ranks(results: pd.DataFrame) -> Figure:
    """Histograms of ranks: bars are Laplace's, the line the control; the band is binomial."""
    figure, axes = subplots(3, 2, figsize=(5.4, 7.0), sharex=True, sharey=True)
    for row, task in zip(axes.T, source_problems.TASKS, strict=True):
        for axis, (place, at) in zip(row, PLACES.items(), strict=True):
            of_task = results[results["task"] == task].groupby("method")[f"rank_{place}"]
            ranks = {method: of_task.get_group(method) for method in ("laplace", "chains")}
            counts = _histogram(ranks["laplace"])
            expected = counts.sum() / len(counts)
            edges = np.linspace(0, 1, len(counts) + 1)
            low, high = stats.binom(counts.sum(), 1 / len(counts)).ppf([0.005, 0.995]) / expected
            axis.axhspan(low, high, color=COLOURS["data"], alpha=0.2, lw=0)
            bars = {"align": "edge", "color": COLOURS["GP"], "alpha": 0.7, "edgecolor": "white"}
            axis.bar(edges[:-1], counts / expected, 1 / len(counts), label="Laplace", **bars)
            control = _histogram(ranks["chains"])
            share = control * len(control) / control.sum()
            line = {"baseline": None, "color": COLOURS["ISGP"], "lw": 1.8}
            bins = np.linspace(0, 1, len(control) + 1)
            axis.stairs(share, bins, label="long run (control)", **line)
            axis.set(title=f"{task}, x = {at:.0f}", xlim=(0, 1))
    setp(axes[:, 0], ylabel="frequency / expected")
    setp(axes[-1], xlabel="rank of the truth")
    legend_above(figure, axes[0, 0], ncols=2)
    return figure


def _histogram(ranks: pd.Series) -> np.ndarray:
    """Counts of ranks in bins of equal width: ten, or five where there are few data sets."""
    n_bins = 10 if len(ranks) >= 100 else 5
    return np.bincount(ranks.to_numpy(int) * n_bins // (N_DRAWS + 1), minlength=n_bins)
