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

_N_BINS = 10


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
    """Chi-squared tests of uniform ranks, ten bins, and what their shape says, by place.

    ``p``: of the test. ``low`` and ``high``: the part of the truths below the first and above the
    last tenth of the draws; 0.1 each if calibrated.
    """
    rows = {}
    for (task, method), group in results.groupby(["task", "method"], sort=False):
        for place in PLACES:
            counts = _histogram(group[f"rank_{place}"])
            rows[(task, method, place)] = {
                "p": float(stats.chisquare(counts).pvalue),
                "low": counts[0] / counts.sum(),
                "high": counts[-1] / counts.sum(),
                "data sets": len(group),
            }
    return pd.DataFrame(rows).T.rename_axis(["task", "method", "x"])


def draw_ranks(results: pd.DataFrame) -> Figure:
    """Histograms of ranks: bars are Laplace's, the line the control; the band is binomial."""
    figure, axes = subplots(2, 3, figsize=(8.0, 4.6), sharex=True, sharey=True)
    edges = np.linspace(0, 1, _N_BINS + 1)
    for row, task in zip(axes, TASKS, strict=True):
        for axis, (place, at) in zip(row, PLACES.items(), strict=True):
            for method in ("laplace", "chains"):
                group = results[(results["task"] == task) & (results["method"] == method)]
                heights = _histogram(group[f"rank_{place}"]) * _N_BINS / len(group)
                if method == "laplace":
                    band = stats.binom(len(group), 1 / _N_BINS).ppf([0.005, 0.995])
                    low, high = band * _N_BINS / len(group)
                    axis.axhspan(low, high, color=COLOURS["data"], alpha=0.2, lw=0)
                    axis.bar(
                        edges[:-1],
                        heights,
                        width=1 / _N_BINS,
                        align="edge",
                        color=COLOURS["GP"],
                        alpha=0.7,
                        edgecolor="white",
                        label="Laplace",
                    )
                else:
                    axis.stairs(
                        heights, edges, color=COLOURS["ISGP"], lw=1.6, label="long run (control)"
                    )
            axis.set(title=f"{task}, x = {at:.0f}", xlim=(0, 1))
    for axis in axes[:, 0]:
        axis.set(ylabel="frequency / expected")
    for axis in axes[1]:
        axis.set(xlabel="rank of the truth")
    axes[0, 0].legend(fontsize=7)
    return figure


def _histogram(ranks: pd.Series) -> np.ndarray:
    """Counts of ranks 0 to 99 in ten bins of ten."""
    return np.bincount(ranks.to_numpy(int) * _N_BINS // (N_DRAWS + 1), minlength=_N_BINS)
