"""The figures on learned links against calibration."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.pyplot import setp, subplots
from scipy.special import expit

from bayesloss_book.drawing.figures import COLOURS, legend_above, style
from bayesloss_book.guide.calibration_methods import problems
from bayesloss_book.guide.calibration_methods.methods import predict
from bayesloss_book.guide.calibration_methods.summary import differences, label
from bayesloss_book.rivals.baselines import HELD_OUT

STYLES = {  # colour, marker, line
    "logistic": (COLOURS["Linear"], "s", ":"),
    "sigmoid": (COLOURS["accent"], "v", "--"),
    "isotonic": (COLOURS["PAVA"], "^", "-."),
    "beta": (COLOURS["bound"], "D", "--"),
    "our calibrator": ("black", "*", "--"),
    "GP": (COLOURS["GP"], "X", "-"),
    "ISGP": (COLOURS["ISGP"], "o", "-"),
    HELD_OUT: (COLOURS["held out"], "P", "-."),
    "true link": ("black", "", "-"),
}
NAMES = {m: m for m in STYLES} | {HELD_OUT: "learned link", "ISGP": "W&N's EM", "GP": "GP as link"}


def draw_divergence(results: pd.DataFrame) -> Figure:
    """Divergence from the true probabilities against training size, a panel a link and input."""
    figure, axes = subplots(len(problems.LINKS), 2, figsize=(5.8, 9.6), sharex=True, sharey=True)
    simulated = results[results["data"].map(problems.KINDS) == "simulated"]
    stats = simulated.groupby(["data", "task", "method", "size"])["divergence"].agg(["mean", "sem"])
    for column, kind in zip(axes.T, problems.INPUTS, strict=True):
        for axis, link in zip(column, problems.LINKS, strict=True):
            for method, of_method in STYLES.items():
                curve = stats.loc[(link, kind, method)]
                look = style(*of_method, markersize=4, linewidth=1.2, label=NAMES[method])
                axis.errorbar(curve.index, curve["mean"], curve["sem"], **look)
            axis.set(xscale="log", yscale="log", title=f"{link}, {kind}")
            axis.minorticks_off()
        column[-1].set(xlabel="training size")
    setp(axes[:, 0], ylabel="divergence (nats)")
    legend_above(figure, axes[0, 0], ncols=3)
    return figure


def draw_real(results: pd.DataFrame) -> Figure:
    """Log loss less that of logistic regression on embedded sets and images, and 2 errors."""
    real = results[results["data"].map(problems.KINDS) != "simulated"]
    table = differences(real[real["method"] != "base rate"])
    order = list(table.index.droplevel("method").unique())
    figure, axis = subplots(figsize=(5.6, 9.0))
    for j, (method, (colour, marker, _)) in enumerate(list(STYLES.items())[1:-1]):
        rows = [(i, p) for i, p in enumerate(order) if (*p, method) in table.index]
        found = table.loc[[(*p, method) for _, p in rows]]
        heights = [-i + 0.36 - 0.12 * j for i, _ in rows]
        look = style(colour, marker, markersize=4.5, linewidth=1.0, label=NAMES[method])
        axis.errorbar(1e3 * found["mean"], heights, xerr=2e3 * found["error"], **look)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_xscale("symlog", linthresh=10)
    axis.xaxis.set_major_formatter("{x:.0f}")
    axis.set_yticks([-i for i in range(len(order))], [label(p) for p in order])
    axis.set(xlabel="log loss less that of logistic\nregression (millinats)")
    axis.set_ylim(-len(order) + 0.5, 0.5)
    for i in range(len(order) - 1):
        axis.axhline(-i - 0.5, color=COLOURS["data"], linewidth=0.3, alpha=0.5)
    axis.grid(visible=False, axis="y")
    legend_above(figure, axis, ncols=3)
    return figure


def draw_clouds(link: str, size: int, seed: int, n_points: int = 500) -> Figure:
    """Predicted probability of test inputs against their true score, a panel a method."""
    found = problems.problem(link, "skewed", size, seed)
    if found.weights is None:
        raise ValueError(f"expected a link of {problems.LINKS}, got {link!r}")
    score = found.X_test[:n_points] @ found.weights
    low, high = np.quantile(score, [0.005, 0.995])  # the tails would fill the panel
    inside = (score > low) & (score < high)
    grid = np.linspace(low, high, 200)
    truth = expit(problems.log_odds(link, grid)[0])
    figure, axes = subplots(3, 1, figsize=(5.6, 8.0), sharex=True, sharey=True)
    for axis, method in zip(axes, ("logistic", "isotonic", HELD_OUT), strict=True):
        p, _, _ = predict(method, found, link=link, seed=seed)
        look = style(STYLES[method][0], ".", markersize=3, alpha=0.6)
        axis.plot(score[inside], p[:n_points][inside], **look)
        axis.plot(grid, truth, color="black", linewidth=1.4)
        axis.set(title=NAMES[method], ylabel="probability", xlim=(low - 0.1, high + 0.1))
    axes[-1].set(xlabel="true score")
    return figure
