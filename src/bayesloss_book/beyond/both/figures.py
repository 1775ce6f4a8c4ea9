"""The figures on decisions with a learned link, and the live example behind two of them."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from torch import Tensor

from bayesloss.learning.inference.laplace import approximate
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import Mode, find_mode
from bayesloss.learning.sources.priors import ISGP
from bayesloss.proper_losses import LogLoss, MatsushitaLoss, SquareLoss
from bayesloss_book.beyond.both.mixture import excess_risks, turning_scores
from bayesloss_book.beyond.both.regrets import METHODS, RATIOS, chains, probabilities
from bayesloss_book.beyond.both.tilted import best_cut, cut_of, labels_joint, tilted_evidence
from bayesloss_book.data.labelled_scores import DATA, Problem, make_prior, problem
from bayesloss_book.drawing.figures import COLOURS, legend_above, style
from bayesloss_book.references.probit_references import costs_at

STYLES = {
    "chains": ("black", "", "-"),
    "mode": (COLOURS["Linear"], "v", ":"),
    "laplace": (COLOURS["GP"], "s", "--"),
    "table_3": (COLOURS["bound"], "D", ":"),
    "tilted": (COLOURS["ISGP"], "P", "-"),
    "one_label": (COLOURS["PAVA"], "*", "-"),
    "variational": (COLOURS["data"], "o", "-"),
    "tilted_variational": (COLOURS["data"], "x", ":"),
    "weighted": (COLOURS["ISGP"], "^", "--"),
}


@dataclass(frozen=True)
class Live:
    """One problem, and what is known about its links."""

    given: Problem
    prior: ISGP
    joint: LogJoint
    mode: Mode
    targets: Tensor  # features, of shape (S, F)
    p: dict[str, Tensor]  # probabilities of yes at the targets, by method
    r_hat: float


def live(data: str, n: int, seed: int, n_chains: int, n_draws: int) -> Live:
    """Draw a problem, and compute its links by every method and by chains."""
    prior = make_prior()
    given = problem(data, n, seed)
    joint = labels_joint(prior, given.x, given.y)
    mode = find_mode(joint, prior.start(given.x))
    targets = prior.features(given.targets)
    by_chain, r_hat, _ = chains(joint, targets, n_chains=n_chains, n_draws=n_draws, seed=seed)
    p, _ = probabilities(given, joint, mode)
    p = {"chains": by_chain.mean(0)} | p
    return Live(given, prior, joint, mode, targets, p, r_hat)


def draw_links(here: Live, threshold: float) -> Figure:
    """The probability of yes by five methods, and where these and one more begin to say yes."""
    figure, axis = subplots(figsize=(5.6, 4.8))
    x = here.given.targets
    costs = costs_at(threshold)
    for name in ("chains", "laplace", "one_label", "variational", "weighted"):
        p = here.p[name]
        colour, marker, line = STYLES[name]
        label = METHODS.get(name, "long chains")
        axis.plot(x, p, line, color=colour, label=label, linewidth=2.2)
        cut = cut_of(p, costs)
        if cut < len(x):
            axis.plot(x[cut], threshold, marker or "o", color=colour, markersize=10)
    colour, marker, line = STYLES["tilted"]
    if (cut := best_cut(here.joint, here.mode, here.targets, costs)) < len(x):
        pin = axis.plot(x[[cut, cut]], [threshold, threshold + 0.09], line, color=colour)
        pin[0].set(marker=marker, markevery=[1], markersize=10, label=METHODS["tilted"])
    axis.axhline(threshold, color="black", linewidth=0.8, linestyle=":")
    place = float(x[-1]), threshold + 0.015
    axis.annotate("say yes above this line", place, fontsize=10, ha="right")
    for y in (0.0, 1.0):
        at = here.given.x[here.given.y == y]
        axis.plot(at, torch.full_like(at, y), "|", color=COLOURS["data"], markersize=12)
    axis.set(xlabel="score $x$", ylabel="probability of yes", ylim=(-0.04, 1.04))
    legend_above(figure, axis, ncols=2)
    return figure


def draw_one_divergence(p: Tensor, q: Tensor) -> Figure:
    """The excess risk of deciding with q by threshold, and what each proper loss weighs it with."""
    figure, axes = subplots(2, 1, figsize=(5.6, 5.6), sharex=True, height_ratios=(3, 2))
    log_odds = np.linspace(-6, 6, 1201)
    t = 1 / (1 + np.exp(-log_odds))
    excess = 1000 * excess_risks(p, q, t)
    axes[0].fill_between(log_odds, excess, color=COLOURS["ISGP"], alpha=0.3, linewidth=0)
    axes[0].plot(log_odds, excess, color=COLOURS["ISGP"])
    axes[0].set(ylabel="excess risk of deciding\nwith $q$, thousandths", ylim=(0, None))
    losses = {"log loss": LogLoss(), "Matsushita's": MatsushitaLoss(), "square loss": SquareLoss()}
    for (name, loss), line in zip(losses.items(), ("-", "--", ":"), strict=True):
        axes[1].plot(log_odds, loss.weight(t) * t * (1 - t), line, color="black", label=name)
    axes[1].set(xlabel="costs, a false yes : a missed one", ylabel="weight a unit\nof log odds")
    ticks = {"1:99": -4.6, "1:19": -2.94, "1:4": -1.39, "1:1": 0.0, "4:1": 1.39, "19:1": 2.94}
    axes[1].set_xticks([*ticks.values(), 4.6], [*ticks, "99:1"])
    legend_above(figure, axes[1], ncols=3)
    return figure


def risks(here: Live, threshold: float, n_cuts: int) -> pd.DataFrame:
    """The posterior risk, by three methods, of saying yes from the score in the index on."""
    costs = costs_at(threshold)
    size = len(here.given.targets)
    cuts = np.unique(np.linspace(0, size - 1, n_cuts).astype(int))
    base = float(here.joint.log_evidence(here.mode.Gamma))
    M = max(costs.c_plus, costs.c_minus)
    no_yes = {name: costs.risk(here.p[name]) for name in ("chains", "laplace")}
    rows = {}
    for cut in cuts.tolist():
        row = {name: (r[:cut, 0].sum() + r[cut:, 1].sum()) / size for name, r in no_yes.items()}
        log_z = tilted_evidence(here.joint, here.mode, here.targets, cut, costs)
        row["tilted"] = M - math.exp(log_z - base)
        rows[float(here.given.targets[cut])] = row
    return pd.DataFrame(rows).T.rename_axis("score")


def draw_risk(found: pd.DataFrame) -> Figure:
    """The risk curves, with the lowest point of each."""
    figure, axis = subplots(figsize=(5.6, 4.0))
    for name in found:
        colour, marker, line = STYLES[name]
        label = METHODS.get(name, "long chains")
        axis.plot(found.index, found[name], line, color=colour, label=label, linewidth=2.2)
        low = found[name].idxmin()
        axis.plot(low, found.loc[low, name], marker or "o", color=colour, markersize=10)
    low = float(found.min().min())
    high = float(found["chains"].min())
    axis.set(xlabel="say yes from this score on", ylabel="risk", ylim=(0.9 * low, 3 * high))
    axis.legend()
    return figure


def draw_regrets(stored: pd.DataFrame) -> Figure:
    """Mean regrets by cost ratio for few and for many labels, with standard errors over draws."""
    sizes = sorted(stored["n"].unique())
    figure, panels = subplots(len(sizes), 1, figsize=(5.6, 4.0 * len(sizes)), sharex=True)
    places = np.arange(len(RATIOS))
    # Table 3 lies on Laplace, and the tilted bound nearly on the bound.
    shown = [name for name in METHODS if name not in ("table_3", "tilted_variational")]
    for axis, n in zip(np.atleast_1d(panels), sizes, strict=True):
        part = stored[stored["n"] == n]
        for j, name in enumerate(shown):
            by_data = (1e4 * part[[f"{name}_{ratio}" for ratio in RATIOS]]).groupby(part["data"])
            # Each kind of data counts alike.
            error = (by_data.var() / by_data.size().to_numpy()[:, None]).sum() ** 0.5 / len(by_data)
            look = style(*STYLES[name], markersize=8, label=METHODS[name])
            axis.errorbar(places + 0.06 * (j - 2.5), by_data.mean().mean(), error, **look)
        axis.set(yscale="log", ylim=(0.01, 3000), ylabel="regret (1/10,000)", title=f"{n} labels")
    panels[-1].set_xticks(places, [f"{ratio} : 1" for ratio in RATIOS])
    panels[-1].set(xlabel="cost of a missed case : cost of a false alarm")
    legend_above(figure, panels[0], ncols=3)
    return figure


def draw_mixture(here: Live, thresholds: tuple[float, ...], n_draws: int) -> Figure:
    """A fitted link: where decisions change, and how many of them change at a score."""
    q = approximate(here.joint, here.mode, with_bound=False)
    Gamma = q.sample(n_draws, torch.Generator().manual_seed(0))
    grid = torch.linspace(-50, 50, 401, dtype=torch.float64)
    levels = torch.tensor([0.025, 0.5, 0.975], dtype=torch.float64)
    low, middle, high = torch.sigmoid(here.prior.source(grid, Gamma)).quantile(levels, dim=0)
    scores = turning_scores(here.prior, Gamma, np.array(thresholds), grid)
    turning = np.quantile(scores, levels, axis=0)
    slopes = here.prior.derivative(grid, Gamma).quantile(levels, dim=0)
    figure, (upper, lower) = subplots(2, 1, figsize=(5.6, 7.0), sharex=True, height_ratios=[1.4, 1])
    colour = COLOURS["ISGP"]
    upper.fill_between(grid, low, high, color=colour, alpha=0.2, linewidth=0)
    upper.plot(grid, middle, color=colour, linewidth=2)
    for i, t in enumerate(thresholds):
        upper.plot(turning[[0, 2], i], [t, t], color=COLOURS["GP"], linewidth=5, alpha=0.5)
        upper.plot(turning[1, i], t, "o", color=COLOURS["GP"], markersize=7)
        place = (51, t if t > 0.03 else t - 0.02)  # below its neighbour
        upper.annotate(f"$t$ = {t:g}", place, fontsize=10, va="center", annotation_clip=False)
    upper.set(ylabel="probability of yes", ylim=(0, 1), xlim=(-50, 50))
    lower.fill_between(grid, slopes[0], slopes[2], color=colour, alpha=0.2, linewidth=0)
    lower.plot(grid, slopes[1], color=colour, linewidth=2)
    lower.set(xlabel="score $x$", ylabel="decisions that change at $x$: $f(x)^2$", ylim=(0, None))
    return figure


def by_kind(stored: pd.DataFrame) -> pd.DataFrame:
    """Mean regrets in ten thousandths, by data and method, a column a cost ratio."""
    rows = {
        (DATA[data], label): {
            f"{ratio} : 1": f"{1e4 * part[f'{name}_{ratio}'].mean():.1f}"
            + "\u00a0±\u00a0"
            + f"{1e4 * part[f'{name}_{ratio}'].std() / math.sqrt(len(part)):.1f}"
            for ratio in RATIOS
        }
        for data, part in stored.groupby("data", sort=False)
        for name, label in METHODS.items()
    }
    return pd.DataFrame(rows).T.rename_axis(["data", "method"])
