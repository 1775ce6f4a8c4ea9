"""Tables and figure of the calibration of Laplace's bands."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from scipy import stats

from bayesloss.companion.figures import COLOURS
from bayesloss.experiments.laplace_calibration import LEVELS, N_DRAWS, PLACES
from bayesloss.experiments.laplace_mcmc import TASKS

__all__ = ["coverage", "draw_ranks", "rank_tests"]


def coverage(results: pd.DataFrame) -> pd.DataFrame:
    """Per cent covered, by task and method; ``error``: standard error of the 95 % column."""
    groups = results.groupby(["task", "method"], sort=False)
    columns = [f"covered_{level}" for level in LEVELS]
    table = 100 * groups[[*columns, "covered_new"]].mean()
    table.columns = [*(f"{level} %" for level in LEVELS), "new data, 95 %"]
    table["error"] = 100 * groups["covered_95"].std() / np.sqrt(groups.size())
    table["mean sd"] = groups["width"].mean()
    table["data sets"] = groups.size()
    return table


def rank_tests(results: pd.DataFrame) -> pd.DataFrame:
    """Chi-squared tests of uniform ranks, and what their shape says, by place.

    ``p``: of the test, with as many bins as :func:`draw_ranks` shows. ``p_ten``: with ten bins
    however few the data sets. ``low`` and ``high``: the
    part of the truths below the first and above the last tenth of the draws; 0.1 each if
    calibrated.
    """
    rows = {}
    for (task, method), group in results.groupby(["task", "method"], sort=False):
        for place in PLACES:
            counts, ranks = _histogram(group[f"rank_{place}"]), group[f"rank_{place}"]
            rows[(task, method, place)] = {
                "p": float(stats.chisquare(counts).pvalue),
                "p_ten": float(stats.chisquare(np.bincount(ranks // 10, minlength=10)).pvalue),
                "low": float((ranks < 10).mean()),
                "high": float((ranks >= 90).mean()),
                "data sets": len(group),
            }
    return pd.DataFrame(rows).T.rename_axis(["task", "method", "x"])


def draw_ranks(results: pd.DataFrame) -> Figure:
    """Histograms of ranks: bars are Laplace's, the line the control; the band is binomial."""
    figure, axes = subplots(2, 3, figsize=(8.0, 4.6), sharex=True, sharey=True)
    for row, task in zip(axes, TASKS, strict=True):
        for axis, (place, at) in zip(row, PLACES.items(), strict=True):
            of_task = results[results["task"] == task].groupby("method")[f"rank_{place}"]
            ranks = {method: of_task.get_group(method) for method in ("laplace", "chains")}
            counts = _histogram(ranks["laplace"])
            expected = counts.sum() / len(counts)
            edges = np.linspace(0, 1, len(counts) + 1)
            low, high = stats.binom(counts.sum(), 1 / len(counts)).ppf([0.005, 0.995]) / expected
            axis.axhspan(low, high, color=COLOURS["data"], alpha=0.2, lw=0)
            axis.bar(
                edges[:-1],
                counts / expected,
                width=1 / len(counts),
                align="edge",
                color=COLOURS["GP"],
                alpha=0.7,
                edgecolor="white",
                label="Laplace",
            )
            control = _histogram(ranks["chains"])
            axis.stairs(
                control * len(control) / control.sum(),
                np.linspace(0, 1, len(control) + 1),
                baseline=None,
                color=COLOURS["ISGP"],
                lw=1.8,
                label="long run (control)",
            )
            axis.set(title=f"{task}, x = {at:.0f}", xlim=(0, 1))
    for axis in axes[:, 0]:
        axis.set(ylabel="frequency / expected")
    for axis in axes[1]:
        axis.set(xlabel="rank of the truth")
    axes[0, 0].legend(fontsize=8, loc="upper left")
    return figure


def _histogram(ranks: pd.Series) -> np.ndarray:
    """Counts of ranks in bins of equal width: ten, or five where there are few data sets.

    Ten are to be expected in each bin, so that the statistic is chi-squared.
    """
    n_bins = 10 if len(ranks) >= 100 else 5
    return np.bincount(ranks.to_numpy(int) * n_bins // (N_DRAWS + 1), minlength=n_bins)
