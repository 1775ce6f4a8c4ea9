"""Where loss-EM ends: power plants in closed form and by Gaussians, random problems in bulk."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.pyplot import subplots
from torch import Tensor

from bayesloss.calibrating.utility import utility
from bayesloss_book.drawing.figures import COLOURS, hatch
from bayesloss_book.drawing.html import Axis, Canvas, Frame, curve, ribbon, stepped
from bayesloss_book.models.families import gaussians
from bayesloss_book.problems.power_plant import ACTIONS, PowerPlant
from bayesloss_book.references.decision_references import tilted_posterior
from paperledger.html import HTMLTable

ALGORITHMS = ("loss-EM", "linearised", "mixed")
STARTS = ("Bayes action", "least worst loss", "random", "worst action")
_CANVAS = Canvas(
    540,
    230,
    Axis("temperature in °C; upright: the critical one", 220, 400, range(240, 401, 40)),
    Axis("% per °C", 0, 2.6, [0, 1, 2]),
)
_FLOOR = -1e300  # stands for log 0, so that a mass of zero times it is zero


def plant_limits(
    algorithm: str, M: np.ndarray, shutdown: float | np.ndarray, meltdown: float
) -> tuple[np.ndarray, np.ndarray]:
    """Between which probabilities of a meltdown "off" and "on" are both fixed points."""
    share = shutdown / meltdown  # the Bayes decision changes here
    with np.errstate(divide="ignore"):  # M = meltdown makes a utility of zero
        log_on = np.log(M - meltdown)
        log_off = np.log(M - shutdown)
    log_utility = (np.log(M) - log_off) / (np.log(M) - log_on)
    threshold = log_utility if algorithm == "loss-EM" else np.full_like(M, share)
    shrink = np.exp(-meltdown / M) if algorithm == "linearised" else (M - meltdown) / M
    with np.errstate(divide="ignore", invalid="ignore"):
        on_until = threshold / (threshold + shrink * (1 - threshold))
    # At M = meltdown the states of a meltdown lose all mass: "on" is fixed, whatever happens.
    return threshold, np.where(shrink == 0, 1.0, on_until)


def gaussian_plants(
    plant: PowerPlant, criticals: Sequence[float], prices: Sequence[float], M: float
) -> pd.DataFrame:
    """The excess risk d_L of deciding by Gaussians: a row a critical temperature and price.

    A Gaussian inferred for "off" is that of variational inference, and one for "on" does not depend
    on the price: one search a temperature (whole quarters of a degree) does, as M-steps are
    thresholds on the tail, see :func:`plant_limits`, and one of them ends a run.
    """
    states = plant.states
    p = plant.posterior
    family = gaussians(states)
    price = np.asarray(prices, float)
    share = price / plant.meltdown
    off_from, _ = plant_limits("loss-EM", np.array([M]), price, plant.meltdown)
    variational = family.nearest(p.log()).q
    moments = family.moment_matching(p).q
    tables = []
    for critical in criticals:
        hot = states > critical
        losses = torch.where(hot, plant.meltdown, 0.0).double()[:, None]
        after_on = family.nearest(tilted_posterior(p, losses, 0, M).log()).q
        truth, of_off, of_on, of_moments = (
            float(q[hot].sum()) for q in (p, variational, after_on, moments)
        )
        shuts = {
            "variational inference": of_off > share,
            "loss-EM from off": of_off >= off_from,
            "loss-EM from on": of_on > off_from,
            "moments": of_moments > share,
        }
        excess = np.abs(plant.meltdown * truth - price)
        wrong = {name: excess * (off != (truth > share)) for name, off in shuts.items()}
        tables.append(pd.DataFrame({"critical": critical, "price": price, **wrong}))
    return pd.concat(tables).set_index(["critical", "price"])


def random_problems(
    n: int, n_states: int, n_actions: int, seed: int, *, disasters: bool
) -> tuple[Tensor, Tensor]:
    """Posteriors (n, K), and losses (n, K, A): uniform, or one in ten a disaster."""
    generator = torch.Generator().manual_seed(seed)
    p = -torch.rand(n, n_states, dtype=torch.float64, generator=generator).log()
    shape = (n, n_states, n_actions)
    losses = torch.rand(shape, dtype=torch.float64, generator=generator)
    if disasters:
        strikes = torch.rand(shape, dtype=torch.float64, generator=generator) < 0.1
        losses = torch.where(strikes, 1.0, 0.2 * losses)
    return p / p.sum(dim=1, keepdim=True), losses


def end_points(p: Tensor, losses: Tensor, multiple: float, algorithm: str) -> Tensor:
    """The last action for each first one (n, A); M is a multiple of each largest loss."""
    M = multiple * losses.amax(dim=(1, 2), keepdim=True)
    log_utility = (M - losses).log().clamp(min=_FLOOR)
    tilt = -losses / M if algorithm == "linearised" else log_utility
    score = log_utility if algorithm == "loss-EM" else -losses
    weights = torch.softmax(p.log()[..., None] + tilt, dim=1)
    scores = weights.transpose(1, 2) @ score  # of action [n, last, next]
    best = scores.argmax(dim=2, keepdim=True)
    stay = torch.arange(losses.shape[2]).expand(best.shape[:2])
    gain = scores.gather(2, best) > scores.gather(2, stay[..., None])
    step = torch.where(gain, best, stay[..., None])[..., 0]
    ends = step
    for _ in range(losses.shape[2]):  # an ascent visits no action twice
        ends = step.gather(1, ends)
    if not bool((step.gather(1, ends) == ends).all()):
        raise RuntimeError("expected every run to end in a fixed point")
    return ends


def shares(
    multiples: tuple[float, ...],
    *,
    n: int,
    n_states: int,
    n_actions: int,
    seed: int,
    disasters: bool,
) -> pd.DataFrame:
    """The share of random problems that end in no Bayes action, by algorithm, start and M."""
    p, losses = random_problems(n, n_states, n_actions, seed, disasters=disasters)
    risk = (p[..., None] * losses).sum(dim=1)
    best = risk.min(dim=1, keepdim=True).values
    random = torch.randint(n_actions, (n,), generator=torch.Generator().manual_seed(seed))
    starts = (risk.argmin(dim=1), losses.amax(dim=1).argmin(dim=1), random, risk.argmax(dim=1))
    rows = {}
    for multiple in multiples:
        for algorithm in ALGORITHMS:
            bad = risk.gather(1, end_points(p, losses, multiple, algorithm)) > best + 1e-12
            for name, start in zip(STARTS, starts, strict=True):
                share = bad.gather(1, start[:, None]).double().mean()
                rows[multiple, algorithm, name] = float(share)
    table = pd.Series(rows).unstack([1, 2])
    return table.rename_axis("M / max L").rename_axis(["algorithm", "start"], axis=1)


def tilt_slider(plant: PowerPlant, constants: Sequence[float], start: int) -> HTMLTable:
    """What the first E-step makes of the posterior after "on", and the M-step of that, by M."""
    p = plant.posterior
    losses = plant.losses
    hot = plant.states > plant.critical
    unit = plant.states[1] - plant.states[0]
    inside = slice(360, 1080, 4)  # one cell a degree, from 220 to 400

    def points(q: Tensor) -> list[str]:
        return _CANVAS.points(plant.states[inside], 100 * q[inside] / unit)

    ground = _CANVAS.points([220, 400], [0, 0])
    frames = []
    for M in constants:
        q = tilted_posterior(p, losses, 0, M)
        action = ACTIONS[int((q @ utility(losses, M).log()).argmax())]
        told = (
            f"The E-step leaves {100 * q[hot].sum():.1f} % above the critical temperature, where "
            f"the posterior has {100 * p[hot].sum():.1f} %. The M-step decides: {action}."
        )
        line = curve(points(q), f'stroke="{COLOURS["ISGP"]}" stroke-width="2.5"')
        frames.append(Frame(f"{M:,}", line, told))
    upright = _CANVAS.points([plant.critical, plant.critical], [0, 3])
    return stepped(
        "tilt-slider",
        f"constant M (above the largest loss, {plant.meltdown:.0f})",
        frames,
        start,
        ribbon(points(p), ground, COLOURS["Linear"]) + curve(upright, 'stroke="currentColor"'),
        _CANVAS,
        "The posterior of the temperature, shaded, and what the first E-step makes of it",
        [
            (f"8px solid {COLOURS['Linear']}", "posterior"),
            (f"3px solid {COLOURS['ISGP']}", "after the E-step for the decision on"),
        ],
    )


def draw_plant_traps(
    shutdown: float, meltdown: float, probability: float, algorithms: Sequence[str]
) -> Figure:
    """The probabilities of a meltdown at which the start decides, against M."""
    M = meltdown * np.geomspace(1, 30, 400)
    share = shutdown / meltdown
    n = len(algorithms)
    figure, axes = subplots(
        n, 1, figsize=(5.6, 2.6 * n + 0.6), sharex=True, sharey=True, squeeze=False
    )
    for axis, algorithm in zip(axes[:, 0], algorithms, strict=True):
        off_from, on_until = plant_limits(algorithm, M, shutdown, meltdown)
        axis.fill_between(M / meltdown, share, on_until, color=COLOURS["GP"], alpha=0.35)
        hatch(axis, M / meltdown, off_from, share, edgecolor=COLOURS["ISGP"])
        axis.axhline(share, color="black", linewidth=1)
        axis.axhline(probability, color="black", linewidth=1, linestyle=":")
        axis.set(xscale="log", yscale="log", ylim=(1e-3, 1), ylabel="P(meltdown)")
        axis.set_xticks([1, 2, 5, 10, 30], ["1", "2", "5", "10", "30"])
        axis.set_title(algorithm)
        axis.text(28, share * 0.62, "Bayes: on", ha="right")
        axis.text(28, 0.6, "Bayes: off", ha="right")
    axes[-1, 0].set(xlabel="M / cost of meltdown")
    return figure


def draw_gaussian_plants(table: pd.DataFrame) -> Figure:
    """Which plants of :func:`gaussian_plants` are decided wrongly, by whom."""
    wrong = (table > 0).unstack("critical")
    critical = table.index.unique("critical")
    price = table.index.unique("price")
    figure, axes = subplots(2, 1, figsize=(5.6, 7.2), sharex=True, sharey=True)
    listening = wrong["variational inference"] & ~wrong["loss-EM from off"]
    variational = wrong["variational inference"]
    moments = wrong["moments"]
    first = [(variational, "GP", 0.35, "variational inference decides wrongly")]
    first += [(listening, "ISGP", 0.9, "of these, loss-EM from off decides rightly")]
    second = [(moments, "PAVA", 0.35, "the Gaussian with the posterior's moments decides wrongly")]
    for axis, parts in zip(axes, (first, second), strict=True):
        handles = []
        for region, name, alpha, label in parts:
            how = {"levels": [0.5, 1.5], "colors": [COLOURS[name]], "alpha": alpha}
            axis.contourf(critical, price, region.astype(float), **how)
            handles.append(Patch(color=COLOURS[name], alpha=alpha, label=label))
        axis.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0))
        axis.plot(345, 5, "o", color="black", markersize=5)
        axis.set(yscale="log", ylabel="cost of shutdown")
        axis.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
    axes[-1].set(xlabel="critical temperature in °C")
    return figure


def draw_shares(tables: dict[str, pd.DataFrame]) -> Figure:
    """The shares of :func:`shares`, from a random start, against M."""
    figure, axes = subplots(len(tables), 1, figsize=(5.6, 6.8), sharex=True, sharey=True)
    colours = dict(zip(ALGORITHMS, ("ISGP", "GP", "PAVA"), strict=True))
    styles = zip(ALGORITHMS, ("o-", "s--", "D:"), (1 / 1.04, 1, 1.04), strict=True)
    for algorithm, style, apart in styles:
        for axis, (title, table) in zip(axes, tables.items(), strict=True):
            x = table.index * apart
            y = table[algorithm, "random"]
            colour = COLOURS[colours[algorithm]]
            faces = np.where(table.index <= 1, "none", colour)
            axis.plot(x, y, style[1:], color=colour)
            axis.scatter(x, y, 25, marker=style[0], fc=faces, ec=colour, clip_on=False)
            axis.plot([], [], style, markersize=5, color=colour, label=algorithm)
            axis.set(xscale="log", ylabel="share of bad ends", title=title, ylim=(0, 0.7))
            axis.set_xticks([1, 2, 5, 20, 100], ["1", "2", "5", "20", "100"])
    axes[-1].set(xlabel="M / largest loss")
    axes[0].legend()
    return figure
