"""The figures on loss-calibrated EP, and the live example behind the first of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from torch import Tensor

from bayesloss.calibrating.loss_em_probit import loss_em_probit
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.whitened_gp import GaussianWeights, WhitenedGP, decide, predictive
from bayesloss_book.beyond.loss_ep.loss_ep import loss_ep_probit
from bayesloss_book.beyond.loss_ep.rules import table_3_by_draws
from bayesloss_book.beyond.loss_ep.table import KERNEL, METHODS
from bayesloss_book.drawing.figures import COLOURS, draw_yes, legend_above, style
from bayesloss_book.references import probit_references as probit

TEST_NAMES = {"u_00_10": "U(0, 1)", "u_02_12": "U(0.2, 1.2)", "u_05_15": "U(0.5, 1.5)"}
_STYLES = {
    "laplace": ("Linear", "v", ":"),
    "loss_em": ("Linear", "^", "--"),
    "table_3_ep": ("GP", "s", "-"),
    "table_3_exact": ("bound", "D", "--"),
    "ep": ("black", "o", "-"),
    "loss_ep": ("ISGP", "P", "-"),
    "one_label": ("PAVA", "*", "-"),
}


@dataclass(frozen=True)
class Live:
    """Data sets of Table 4, computed here and now, with weighted draws for the truth."""

    prior: WhitenedGP
    y: Tensor
    ep: GaussianWeights
    x: Tensor  # targets, ascending, of shape (s,)
    features: Tensor
    noise: Tensor
    z: Tensor
    share: Tensor
    exact: Tensor  # probabilities of +1, of shape (m, s)


def live(n_sets: int, n_test: int, test: str, n_points: int, seed: int) -> Live:
    """Draw data sets and targets, and the posterior's probabilities."""
    prior, y, test_unit = probit.draw_data(**KERNEL, n_sets=n_sets, n_test=n_test, seed=seed)
    x = (test_unit[list(probit.TESTS).index(test)] + probit.TESTS[test]).sort().values
    ep = expectation_propagation(prior.features, y)
    z, share = probit.importance_points(prior, y, ep, n_draws=n_points, seed=seed)
    features, noise = prior.project(x.expand(n_sets, -1))
    exact = torch.stack([share[i] @ _by_draws(z[i], features[i], noise[i]) for i in range(n_sets)])
    return Live(prior, y, ep, x, features, noise, z, share, exact)


def _by_draws(z: Tensor, features: Tensor, noise: Tensor) -> Tensor:
    return torch.special.ndtr((z @ features.mT) / noise)


def draw_belief(here: Live, threshold: float) -> tuple[Figure, dict[str, float]]:
    """The data set on which Table 3 without approximations loses most: beliefs and decisions."""
    costs = probit.costs_at(threshold)
    parts = zip(here.z, here.features, here.noise, here.share, strict=True)
    found = [table_3_by_draws(_by_draws(*given), share, costs) for *given, share in parts]
    lost = probit.excess_risk(torch.stack([h for h, _, _ in found]), here.exact, costs)
    i = int(lost.argmax())
    loss_ep = loss_ep_probit(here.prior.features, here.y, here.features, here.noise, costs)
    by_loss_ep = predictive(loss_ep.q, here.features, here.noise)[i]
    belief = {  # the probability of +1, whether +1 is decided, colour and line
        "the posterior": (here.exact[i], here.exact[i] > threshold, "black", "-"),
        "Table 3, exact": (found[i][1], found[i][0] > 0, COLOURS["bound"], "-"),
        "loss-EP": (by_loss_ep, loss_ep.decisions[i] > 0, COLOURS["ISGP"], "--"),
    }
    figure, (upper, lower) = subplots(2, 1, figsize=(5.6, 5.4), sharex=True, height_ratios=[3.2, 1])
    for place, (name, (p, yes, colour, line)) in enumerate(belief.items()):
        upper.plot(here.x, p, line, color=colour, label=name, linewidth=2)
        draw_yes(lower, here.x, place, yes.numpy(), colour)
    upper.axhline(threshold, color="black", linewidth=0.8, linestyle=":")
    where = (float(here.x.mean()), threshold + 0.015)
    upper.annotate("above this line: decide +1", where, fontsize=10, ha="center")
    inside = here.prior.inputs[i]
    for label, marker in ((1, "^"), (-1, "v")):
        at = inside[(here.y[i] == label) & (inside >= float(here.x[0]))]
        upper.plot(at, torch.full_like(at, 0.02), marker, color=COLOURS["data"], markersize=7)
    upper.set(ylabel="probability of +1", ylim=(0, 1))
    upper.legend(loc="upper right")
    lower.set_yticks([0.5, 1.5, 2.5], list(belief))
    lower.set(xlabel="input $x$", title="where +1 is decided", ylim=(3, 0))
    lower.grid(visible=False)
    ep = decide(here.ep, here.features, here.noise, costs.probit_threshold)
    others = {"ep": ep, "loss_ep": loss_ep.decisions}
    measured = {n: float(probit.excess_risk(h, here.exact, costs)[i]) for n, h in others.items()}
    return figure, {"exact": float(lost[i])} | measured


def draw_regrets(summary: pd.DataFrame) -> Figure:
    """Mean regrets by cost, a panel a test; bars are standard errors over repetitions."""
    figure, panels = subplots(3, 1, figsize=(5.6, 9.4), sharex=True, sharey=True)
    places = np.arange(len(probit.THRESHOLDS))
    for axis, test in zip(panels, probit.TESTS, strict=True):
        part = summary.xs(test, level="test").reindex(list(probit.THRESHOLDS))
        for j, (name, of_method) in enumerate(_STYLES.items()):
            look = style(*of_method, markersize=6, label=METHODS[name])
            means = part["mean"][name]
            errors = part["error"][name]
            axis.errorbar(places + 0.03 * (j - 3), means, errors, **look)
        axis.set(
            yscale="log", title=f"decisions on {TEST_NAMES[test]}", ylabel="regret, LHG's (28)"
        )
    panels[-1].set_xticks(places, [f"{t:g}" for t in probit.THRESHOLDS.values()])
    panels[-1].set(xlabel="decide +1 above this probability")
    legend_above(figure, panels[0], ncols=3)
    return figure


def draw_saved(summary: pd.DataFrame) -> Figure:
    """What part of EP's regret two methods save, with standard errors over repetitions."""
    figure, axis = subplots(figsize=(5.6, 6.2))
    cells = [(row, test) for test in probit.TESTS for row in probit.THRESHOLDS]
    places = {cell: i + i // len(probit.THRESHOLDS) for i, cell in enumerate(cells)}
    for name, shift in (("loss_ep", -0.15), ("one_label", 0.15)):
        saved = -100 * summary["over"][name] / summary["mean"]["ep"]
        error = 100 * summary["over_error"][name] / summary["mean"]["ep"]
        look = style(*_STYLES[name][:2], markersize=8, label=METHODS[name])
        heights = [places[cell] + shift for cell in cells]
        axis.errorbar(saved.loc[cells], heights, xerr=error.loc[cells], **look)
    axis.axvline(0, color="black", linewidth=1)
    names = [f"{TEST_NAMES[test]}, {probit.THRESHOLDS[row]:g}" for row, test in cells]
    axis.set_yticks([places[cell] for cell in cells], names)
    axis.set(xlabel="% of EP's regret saved", ylabel="test inputs, threshold", xlim=(-70, 105))
    axis.invert_yaxis()
    legend_above(figure, axis, ncols=2)
    return figure


def draw_kernels(regrets: pd.DataFrame) -> Figure:
    """Mean regret over tests and costs at each kernel of the map."""
    by_kernel = regrets.groupby(["length_scale", "amplitude"]).mean()
    figure, axis = subplots(figsize=(5.6, 9.0))
    for name, (colour, marker, _) in _STYLES.items():
        look = style(colour, marker, markersize=8, label=METHODS[name])
        axis.plot(by_kernel[name], range(len(by_kernel)), **look)
    names = [f"{length:g}, {height:g}" for length, height in by_kernel.index]
    axis.set_yticks(range(len(by_kernel)), names)
    axis.set(xscale="log", xlabel="regret, mean of 15 cells", ylabel="length scale, amplitude")
    axis.invert_yaxis()
    legend_above(figure, axis, ncols=3)
    return figure


def by_max_loss(here: Live, threshold: float, multiples: Sequence[float]) -> pd.DataFrame:
    """Mean (28) of loss-EP and of Table 3 by EP with M a multiple of the larger cost."""
    costs = probit.costs_at(threshold)
    data = (here.prior.features, here.y, here.features, here.noise, costs)
    rows = {}
    for multiple in multiples:
        M = multiple * max(costs.c_plus, costs.c_minus)
        found = {
            "loss_ep": loss_ep_probit(*data, max_loss=M),
            "table_3_ep": loss_em_probit(*data, inference="ep", max_loss=M),
        }
        rows[multiple] = {
            name: float(probit.excess_risk(end.decisions, here.exact, costs).mean())
            for name, end in found.items()
        }
    out = pd.DataFrame(rows).T.rename_axis("M")
    ep = decide(here.ep, here.features, here.noise, costs.probit_threshold)
    return out.assign(ep=float(probit.excess_risk(ep, here.exact, costs).mean()))


def draw_bumps(amplitude: float, multiples: Sequence[float]) -> Figure:
    """One label +1 and a decision -1 at one input: prior, likelihood and utility as one density."""
    f = torch.linspace(-2 * amplitude, 2 * amplitude, 4001, dtype=torch.float64)
    figure, axis = subplots(figsize=(5.6, 3.6))
    colours = (COLOURS["ISGP"], COLOURS["GP"], COLOURS["PAVA"])
    for M, colour, line in zip(multiples, colours, ("-", "-", "--"), strict=True):
        prior = torch.exp(-0.5 * (f / amplitude) ** 2)
        utility = M - torch.special.ndtr(f)  # the decision -1 costs 1 where the label is +1
        density = prior * torch.special.ndtr(f) * utility
        density = density / torch.trapezoid(density, f)
        axis.plot(f, density, line, color=colour, label=f"$M$ = {M:g}", linewidth=2)
    axis.set(yscale="log", ylim=(1e-4, 1), xlim=(-6, 2 * amplitude))
    axis.set(xlabel="$f$", ylabel="density")
    axis.legend()
    return figure
