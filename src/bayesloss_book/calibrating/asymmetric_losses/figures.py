"""The figures of the page on Table 4, and the summaries that they show."""

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.pyplot import subplots
from torch import Tensor

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.loss_em_probit import loss_em_probit
from bayesloss.calibrating.probit.whitened_gp import decide, predictive
from bayesloss_book.calibrating.asymmetric_losses.maximum_entropy import med_probit
from bayesloss_book.calibrating.asymmetric_losses.table_4 import (
    LENGTHS,
    PAPER,
    Trial,
    by_cell,
    printed,
    table,
)
from bayesloss_book.drawing.figures import COLOURS, legend_above
from bayesloss_book.references.probit_references import (
    GRID,
    TESTS,
    THRESHOLDS,
    Reference,
    by_importance_sampling,
    costs_at,
    excess_risk,
)

TEST_NAMES = {"u_00_10": "U(0, 1)", "u_02_12": "U(0.2, 1.2)", "u_05_15": "U(0.5, 1.5)"}
_NAMES = {"laplace": "Laplace", "loss_em": "loss-EM", "ep": "EP"}
_STYLES = {"laplace": ("o", "GP"), "loss_em": ("^", "PAVA"), "ep": ("s", "ISGP")}


def over_ep(values: pd.Series) -> pd.DataFrame:
    """Laplace and loss-EM less EP, of a series indexed by row, test and method."""
    wide = values.unstack("method")
    return pd.DataFrame({name: wide[name] - wide["ep"] for name in ("laplace", "loss_em")})


def distances(mapped: pd.DataFrame) -> pd.DataFrame:
    """For every kernel, how far its table is from the printed one.

    ``factor``, the typical one between our and the printed differences to EP of at least 0.003;
    ``corner``, Laplace in the last row on U(0, 1); ``ep``, EP's largest value.
    """
    used = over_ep(printed()).stack()[lambda values: values >= 0.003]
    columns = by_cell("{2}_{0}_{1}".format)
    rows = {}
    for _, cell in mapped.iterrows():
        values = columns.map(cell)
        ours = over_ep(values).stack()[used.index].clip(lower=1e-6)
        rows[cell["length_scale"], cell["amplitude"]] = {
            "factor": float(np.exp((np.log(ours / used) ** 2).mean() ** 0.5)),
            "corner": values["0.05", "u_00_10", "laplace"],
            "ep": float(values.xs("ep", level="method").max()),
        }
    return pd.DataFrame(rows).T.rename_axis(["length_scale", "amplitude"])


def draw_map(mapped: pd.DataFrame, chosen: tuple[float, float]) -> Figure:
    """The distance to the printed table over kernels."""
    factor = distances(mapped)["factor"].unstack("amplitude")
    figure, axis = subplots(figsize=(5.6, 4.6))
    shown = np.log(factor.to_numpy()).clip(max=np.log(8))
    image = axis.imshow(shown, origin="lower", cmap="viridis_r", aspect="auto")
    axis.grid(visible=False)
    axis.set_xticks(range(factor.shape[1]), [f"{a:g}" for a in factor.columns])
    axis.set_yticks(range(factor.shape[0]), [f"{a:g}" for a in factor.index])
    for i, row in enumerate(factor.to_numpy()):
        for j, value in enumerate(row):
            text = f"{value:.1f}" if value < 8 else ">8"
            light = shown[i, j] > np.log(3)
            axis.text(j, i, text, ha="center", va="center", color="white" if light else "black")
    i = list(factor.index).index(chosen[0])
    j = list(factor.columns).index(chosen[1])
    frame = Rectangle((j - 0.48, i - 0.48), 0.96, 0.96, fill=False, color=COLOURS["GP"], lw=2)
    axis.add_patch(frame)
    axis.set(xlabel="amplitude", ylabel="length scale")
    bar = figure.colorbar(image, ax=axis, ticks=np.log([1.5, 2, 3, 4, 6, 8]))
    bar.ax.set_yticklabels(["1.5", "2", "3", "4", "6", "8"])
    bar.set_label("typical factor off the print")
    return figure


def draw_reference(results: pd.DataFrame) -> Figure:
    """EP's criterion against the length of the reference, with the printed values."""
    full = PAPER["n_chains"] * PAPER["n_draws"]
    lengths = [*LENGTHS, full]
    figure, panels = subplots(3, 1, figsize=(5.6, 9.0), sharex=True, sharey=True)
    target = printed()
    colours = dict(zip(THRESHOLDS, ("ISGP", "GP", "PAVA", "accent", "data"), strict=True))
    tables = [table(results, f"_{n}")["mean"] for n in LENGTHS] + [table(results)["mean"]]
    exact = table(results, "_importance")["mean"]
    for axis, test in zip(panels, TESTS, strict=True):
        for row, colour in colours.items():
            key = (row, test, "ep")
            axis.plot(lengths, [t[key] for t in tables], "-o", markersize=3, color=COLOURS[colour])
            axis.plot(lengths[0] / 2, target[key], ">", color=COLOURS[colour], label=f"{row}")
            axis.plot(full * 2, exact[key], "<", color=COLOURS[colour], markerfacecolor="none")
        axis.set(xscale="log", yscale="log", title=TEST_NAMES[test], ylabel=r"$\tilde R$ of EP")
    panels[-1].set_xlabel("draws of the reference")
    legend_above(figure, panels[0], title="$c_+$", ncols=5)
    return figure


def draw_table(results: pd.DataFrame) -> Figure:
    """Table 4 as printed and as found here, a panel for each test distribution."""
    ours = table(results)["mean"]
    target = printed()
    figure, panels = subplots(3, 1, figsize=(5.6, 8.4), sharex=True, sharey=True)
    for axis, test in zip(panels, TESTS, strict=True):
        for method, (marker, colour) in _STYLES.items():
            style = {"marker": marker, "color": COLOURS[colour]}
            for values, label, look in (
                (target, "printed", {"linestyle": ":", "markerfacecolor": "none"}),
                (ours, "ours", {"linestyle": "-"}),
            ):
                cells = [values[row, test, method] for row in THRESHOLDS]
                axis.plot(cells, label=f"{_NAMES[method]}, {label}", **style, **look)
        axis.set(yscale="log", title=TEST_NAMES[test], ylabel=r"$\tilde R$")
    panels[-1].set_xticks(range(len(THRESHOLDS)), list(THRESHOLDS))
    panels[-1].set_xlabel("cost of a false positive, $c_+$")
    legend_above(figure, panels[0], ncols=3)
    return figure


def draw_gain(results: pd.DataFrame) -> Figure:
    """What loss-EM gains over Laplace, printed and here with two standard errors."""
    target = printed().unstack("method")
    gain = (results["laplace"] - results["loss_em"]).groupby(
        [results["test"], results["threshold"]]
    )
    mean = 1e4 * gain.mean()
    error = 1e4 * gain.sem()
    figure, panels = subplots(3, 1, figsize=(5.6, 7.8), sharex=True)
    across = np.arange(len(THRESHOLDS))
    for axis, test in zip(panels, TESTS, strict=True):
        in_print = [1e4 * (target["laplace"] - target["loss_em"])[row, test] for row in THRESHOLDS]
        ours = [mean[test, threshold] for threshold in THRESHOLDS.values()]
        errors = [2 * error[test, threshold] for threshold in THRESHOLDS.values()]
        axis.bar(across - 0.2, in_print, 0.36, color=COLOURS["Linear"], label="printed")
        axis.bar(across + 0.2, ours, 0.36, yerr=errors, color=COLOURS["PAVA"], label="ours")
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set(title=TEST_NAMES[test], ylabel="gain, in $10^{-4}$")
    panels[-1].set_xticks(across, list(THRESHOLDS))
    panels[-1].set_xlabel("cost of a false positive, $c_+$")
    legend_above(figure, panels[0], ncols=2)
    return figure


def draw_difference(results: pd.DataFrame) -> Figure:
    """Ours against print, as it stands and less the EP column."""
    ours = table(results)["mean"]
    target = printed()
    pairs = pd.DataFrame({"print": target, "ours": ours})  # aligned by row, test and method
    over = {"print": over_ep(target), "ours": over_ep(ours)}
    figure, (left, right) = subplots(2, 1, figsize=(5.6, 9.4))
    for method, (marker, colour) in _STYLES.items():
        here = pairs.xs(method, level="method")
        style = {"color": COLOURS[colour], "alpha": 0.8, "label": _NAMES[method]}
        left.plot(here["print"], here["ours"], marker, **style)
        if method != "ep":
            x, y = (over[name][method].clip(lower=1e-5) for name in ("print", "ours"))
            right.plot(x, y.reindex(x.index), marker, **style | {"label": f"{_NAMES[method]} − EP"})
    left.legend()
    right.legend()
    for axis in (left, right):
        axis.plot([1e-5, 0.3], [1e-5, 0.3], color="black", linewidth=0.8)
        axis.set(xscale="log", yscale="log", xlim=(7e-6, 0.4), ylim=(7e-6, 0.4))
        axis.set(xlabel="printed", aspect="equal")
    left.set(ylabel="ours", title="as printed")
    right.set(title="less the EP column")
    return figure


def misses(here: Trial, test: str, threshold: float, reference: Reference) -> pd.DataFrame:
    """Laplace's criterion and EP's by data set, with what might explain it."""
    x = here.test_inputs(test)
    costs = costs_at(threshold)
    features, noise = here.prior.project(x.expand(len(here.y), -1))
    p = reference.predictive(x)
    criterion = {
        name: excess_risk(decide(q, features, noise, costs.probit_threshold), p, costs).numpy()
        for name, q in (("laplace", here.laplace), ("ep", here.ep))
    }
    return pd.DataFrame(
        {
            **criterion,
            "positives": (here.y > 0).sum(-1).numpy(),
            "lowest": predictive(here.laplace, features, noise).amin(-1).numpy(),
            "lowest_exact": p.amin(-1).numpy(),
        }
    )


def draw_worst(here: Trial, reference: Reference, misses: pd.DataFrame, threshold: float) -> Figure:
    """The data sets on which Laplace loses most: its probabilities and the exact ones."""
    worst = misses["laplace"].sort_values(ascending=False).index[:3]
    features, noise = here.prior.project(GRID.expand(len(here.y), -1))
    by_laplace = predictive(here.laplace, features, noise)
    figure, panels = subplots(3, 1, figsize=(5.6, 8.4), sharex=True, sharey=True)
    seen = GRID <= 1
    for axis, i in zip(panels, worst, strict=True):
        x = GRID[seen].numpy()
        exact = reference.predictive.on_grid[i][seen].numpy()
        laplace = by_laplace[i][seen].numpy()
        axis.plot(x, exact, color=COLOURS["data"], label="exact")
        axis.plot(x, laplace, "--", color=COLOURS["GP"], label="Laplace")
        axis.axhline(threshold, color="black", linewidth=0.8)
        inputs = here.prior.inputs[i]
        labels = here.y[i]
        for sign, marker in ((1, "^"), (-1, "v")):
            where = inputs[labels == sign].numpy()
            axis.plot(where, np.full(len(where), 0.0025), marker, color=COLOURS["data"])
        axis.set(yscale="log", ylim=(0.002, 1), ylabel="probability of $+1$")
        axis.set_title(rf"$\tilde R$ = {misses['laplace'][i]:.2f}")
    panels[-1].set_xlabel("input $x$")
    panels[0].legend(loc="upper left")
    return figure


def med_comparison(here: Trial, prices: tuple[float, ...], rows: tuple[str, ...]) -> pd.DataFrame:
    """The criterion of MED beside the others on U(0, 1), averaged over all data sets."""
    reference = by_importance_sampling(here.prior, here.y, here.ep, n_draws=1024, seed=0)
    x = here.test_inputs("u_00_10")
    features, noise = here.prior.project(x.expand(len(here.y), -1))
    p = reference.predictive(x)
    out = {}
    for row in rows:
        costs = costs_at(THRESHOLDS[row])
        edge = costs.probit_threshold

        def score(h: Tensor, costs: CostMatrix = costs) -> float:
            return float(excess_risk(h, p, costs).mean())

        found = loss_em_probit(here.prior.features, here.y, features, noise, costs)
        out[row] = {
            "EP": score(decide(here.ep, features, noise, edge)),
            "Laplace": score(decide(here.laplace, features, noise, edge)),
            "loss-EM": score(found.decisions),
            "all +1": score(torch.ones_like(noise)),
        }
        for C in prices:
            q = med_probit(here.prior.features, here.y, costs, C=C)
            out[row][f"MED, C = {C:g}"] = score(decide(q, features, noise, edge))
    return pd.DataFrame(out).T.rename_axis("c_plus")
