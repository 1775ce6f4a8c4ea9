"""What a learned link costs and saves: round by round, and with few rows a column."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.pyplot import setp, subplots
from numpy import ndarray

from bayesloss import LinkCalibrator
from bayesloss.learning.inference.laplace import Posterior
from bayesloss_book.drawing.figures import COLOURS, style

_LOOKS = {
    "paper's EM": ("GP", "o"),
    "held out": ("ISGP", "s"),
    "logistic regression": ("Linear", "^"),
}


@dataclass(frozen=True)
class Curve:
    """A learned link with a 95 % band, and what came to pass at such scores of test data."""

    scores: Float[ndarray, " m"]
    mean: Float[ndarray, " m"]
    low: Float[ndarray, " m"]
    high: Float[ndarray, " m"]
    shares: pd.DataFrame

    @classmethod
    def of_posterior(
        cls, posterior: Posterior, training: Float[ndarray, " n"], shares: pd.DataFrame
    ) -> "Curve":
        """By draws of the paper's posterior."""
        scores = torch.linspace(0, _end(training, shares), 200, dtype=torch.float64)
        draws = posterior.sample(200, torch.Generator().manual_seed(0))
        u = torch.sigmoid(posterior.prior.source(scores, draws)).numpy()
        low, high = np.quantile(u, [0.025, 0.975], axis=0)
        return cls(scores.numpy(), u.mean(axis=0), low, high, shares)

    @classmethod
    def of_calibrator(
        cls, curve: LinkCalibrator, training: Float[ndarray, " n"], shares: pd.DataFrame
    ) -> "Curve":
        """By the calibrator's interval."""
        scores = np.linspace(0, _end(training, shares), 200)
        low, high = curve.predict_interval(scores)
        return cls(scores, curve.predict_proba(scores)[:, 1], low, high, shares)


def _end(training: Float[ndarray, " n"], shares: pd.DataFrame) -> float:
    return max(float(training.max()), float(shares["score"].max()))


def draw_rounds(paper: pd.DataFrame, held_out: pd.DataFrame) -> Figure:
    """Log losses by round: of the test data, and of the scores that links are fitted to."""
    figure, axis = subplots(figsize=(5.4, 3.6))
    runs = (("paper's EM", paper, "training"), ("held out", held_out, "held-out"))
    for name, table, fitted in runs:
        colour, marker = _LOOKS[name]
        for which, dashes in (("test", "-"), (fitted, "--")):
            look = style(colour, marker, dashes, label=f"{name}: {which} data")
            axis.plot(table[f"{which} log loss"], **look)
    axis.set(xlabel="round", ylabel="log loss, nats a datum", ylim=(0, None))
    axis.legend(fontsize="small")
    return figure


def draw_columns(results: pd.DataFrame, n: int) -> Figure:
    """The excess over the truth's log loss against rows a column, with two standard errors."""
    figure, axes = subplots(2, 1, figsize=(5.4, 5.6), sharex=True)
    for axis, (truth, of_truth) in zip(axes, results.groupby("truth", sort=False), strict=True):
        grouped = of_truth.groupby("columns")
        means = grouped[list(_LOOKS)].mean()
        errors = grouped[list(_LOOKS)].sem()
        for method, (colour, marker) in _LOOKS.items():
            look = style(colour, marker, "-", label=method)
            axis.errorbar(n / means.index, means[method], 2 * errors[method], **look)
        axis.set(ylabel="nats above the truth", title=f"the true link is {truth}")
        axis.set(xscale="log", yscale="log", ylim=(2e-3, None))
    axes[1].set_xticks(n / means.index, [f"{n / d:.0f}" for d in means.index])
    axes[1].minorticks_off()
    axes[1].set(xlabel="rows a column")
    axes[0].legend(fontsize="small")
    return figure


def draw_links(
    scores: Float[ndarray, " n"],
    held_out: Float[ndarray, " n"],
    y: Int[ndarray, " n"],
    curves: Mapping[str, Curve],
) -> Figure:
    """By how much scores fall back when held out, and links against what came to pass."""
    figure, axes = subplots(1 + len(curves), 1, figsize=(5.4, 7.4))
    for label, marker, colour in ((0, "o", "Linear"), (1, "^", "accent")):
        of = y == label
        shift = held_out[of] - scores[of]
        axes[0].plot(scores[of], shift, marker, color=COLOURS[colour], ms=3, label=f"label {label}")
    axes[0].set(xlabel="training score", ylabel="change when held out", title="scores")
    axes[0].legend(fontsize="small")
    for axis, (name, curve) in zip(axes[1:], curves.items(), strict=True):
        _draw_curve(axis, curve, _LOOKS[name][0])
        axis.set(xlabel="score", title=name, ylim=(-0.03, 1.03))
    setp(axes[1:], ylabel="probability of label 1")
    axes[-1].legend(fontsize="small", loc="lower right")
    return figure


def _draw_curve(axis: Axes, curve: Curve, colour: str) -> None:
    axis.fill_between(curve.scores, curve.low, curve.high, color=COLOURS[colour], alpha=0.25, lw=0)
    axis.plot(curve.scores, curve.mean, color=COLOURS[colour], label="learned link")
    shares = curve.shares
    reach = np.stack([shares["share"] - shares["low"], shares["high"] - shares["share"]])
    look = style("data", "s", ms=3, lw=1, label="test data")
    axis.errorbar(shares["score"], shares["share"], reach.clip(0), **look)
