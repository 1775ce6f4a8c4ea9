"""Where loss-EM ends: the power plant in closed form, and random problems in bulk."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from torch import Tensor

from bayesloss_book.figures import COLOURS

__all__ = [
    "ALGORITHMS",
    "draw_plant_traps",
    "draw_shares",
    "draw_tilts",
    "end_points",
    "plant_limits",
    "random_problems",
    "shares",
]

ALGORITHMS = ("loss-EM", "linearised", "mixed")
STARTS = ("Bayes action", "least worst loss", "random", "worst action")
_FLOOR = -1e300  # stands for log 0, so that a mass of zero times it is zero


def plant_limits(
    algorithm: str, M: np.ndarray, shutdown: float, meltdown: float
) -> tuple[np.ndarray, np.ndarray]:
    """Between which probabilities of a meltdown "off" and "on" are both fixed points.

    Parameters
    ----------
    algorithm : {"loss-EM", "linearised", "mixed"}
    M : ndarray
        At least `meltdown`.
    shutdown, meltdown : float
        The costs, 0 < shutdown < meltdown.

    Returns
    -------
    off_from, on_until : ndarray
        With the E-step exact, "off" is fixed from the first, "on" until the second probability.
    """
    share = shutdown / meltdown  # the Bayes decision changes here
    with np.errstate(divide="ignore"):  # M = meltdown makes a utility of zero
        log_on, log_off = np.log(M - meltdown), np.log(M - shutdown)
    log_utility = (np.log(M) - log_off) / (np.log(M) - log_on)
    threshold = log_utility if algorithm == "loss-EM" else np.full_like(M, share)
    shrink = np.exp(-meltdown / M) if algorithm == "linearised" else (M - meltdown) / M
    with np.errstate(divide="ignore", invalid="ignore"):
        on_until = threshold / (threshold + shrink * (1 - threshold))
    # At M = meltdown the states of a meltdown lose all mass: "on" is fixed, whatever happens.
    return threshold, np.where(shrink == 0, 1.0, on_until)


def random_problems(
    n: int, n_states: int, n_actions: int, seed: int, *, disasters: bool
) -> tuple[Tensor, Tensor]:
    """Posteriors of shape (n, K), uniform on the simplex, and losses of shape (n, K, A) in [0, 1].

    With `disasters` one loss in ten is 1 and the others are at most 0.2; without, they are uniform.
    """
    generator = torch.Generator().manual_seed(seed)
    p = -torch.rand(n, n_states, dtype=torch.float64, generator=generator).log()
    shape = (n, n_states, n_actions)
    losses = torch.rand(shape, dtype=torch.float64, generator=generator)
    if disasters:
        strikes = torch.rand(shape, dtype=torch.float64, generator=generator) < 0.1
        losses = torch.where(strikes, 1.0, 0.2 * losses)
    return p / p.sum(dim=1, keepdim=True), losses


def end_points(p: Tensor, losses: Tensor, multiple: float, algorithm: str) -> Tensor:
    """Where each start ends, with an exact E-step, for many problems at once.

    Parameters
    ----------
    p : Tensor of shape (n, K)
    losses : Tensor of shape (n, K, A)
        Not negative.
    multiple : float
        M as a multiple of each problem's largest loss.
    algorithm : {"loss-EM", "linearised", "mixed"}

    Returns
    -------
    Tensor of integers, of shape (n, A)
        The last action for each first one.
    """
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
    """The share of random problems that end in no Bayes action, by algorithm, start and M.

    The arguments are those of :func:`random_problems` and :func:`end_points`. Starts: the Bayes
    action, the action whose worst loss is least, a random one, and the one of the highest risk.
    """
    p, losses = random_problems(n, n_states, n_actions, seed, disasters=disasters)
    risk = (p[..., None] * losses).sum(dim=1)
    best = risk.min(dim=1, keepdim=True).values
    random = torch.randint(n_actions, (n,), generator=torch.Generator().manual_seed(seed))
    starts = (risk.argmin(dim=1), losses.amax(dim=1).argmin(dim=1), random, risk.argmax(dim=1))
    rows = {}
    for multiple in multiples:
        for algorithm in ALGORITHMS:
            ends = end_points(p, losses, multiple, algorithm)
            bad = risk.gather(1, ends) > best + 1e-12
            for name, start in zip(STARTS, starts, strict=True):
                share = bad.gather(1, start[:, None]).double().mean()
                rows[multiple, algorithm, name] = float(share)
    table = pd.Series(rows).unstack([1, 2])
    return table.rename_axis("M / max L").rename_axis(["algorithm", "start"], axis=1)


def draw_tilts(
    states: Tensor, p: Tensor, critical: float, tilted: Mapping[float, Tensor]
) -> Figure:
    """The posterior, and the tilted ones after the decision "on" by M.

    All are masses of the same cells, of shape (K,); a cell's mass over its width is drawn.
    """
    figure, axis = subplots(figsize=(5.6, 4.0))
    width = float(states[1] - states[0])
    axis.fill_between(states, p / width, color=COLOURS["Linear"], alpha=0.25, label="posterior")
    lines = zip(tilted.items(), (":", "--", "-"), ("PAVA", "ISGP", "GP"), strict=True)
    for (M, q), dashes, colour in lines:
        axis.plot(states, q / width, dashes, color=COLOURS[colour], label=f"M = {M:,}")
    axis.axvline(critical, color="black", linewidth=0.8)
    axis.text(critical - 3, 0.009, "critical\ntemperature", ha="right")
    axis.set(xlim=(220, 400), ylim=(0, None), xlabel="temperature in °C", ylabel="density")
    axis.legend(loc="upper right")
    return figure


def draw_plant_traps(shutdown: float, meltdown: float, probability: float) -> Figure:
    """The probabilities of a meltdown at which the start decides, against M."""
    M = meltdown * np.geomspace(1, 30, 400)
    share = shutdown / meltdown
    figure, axes = subplots(3, 1, figsize=(5.6, 8.4), sharex=True, sharey=True)
    for axis, algorithm in zip(axes, ALGORITHMS, strict=True):
        off_from, on_until = plant_limits(algorithm, M, shutdown, meltdown)
        axis.fill_between(M / meltdown, share, on_until, color=COLOURS["GP"], alpha=0.35)
        axis.fill_between(
            M / meltdown,
            off_from,
            share,
            facecolor="none",
            edgecolor=COLOURS["ISGP"],
            hatch="///",
            linewidth=0,
        )
        axis.axhline(share, color="black", linewidth=1)
        axis.axhline(probability, color="black", linewidth=1, linestyle=":")
        axis.set(xscale="log", yscale="log", ylim=(1e-3, 1), ylabel="P(meltdown)")
        axis.set_xticks([1, 2, 5, 10, 30], ["1", "2", "5", "10", "30"])
        axis.set_title(algorithm)
        axis.text(28, share * 0.62, "Bayes: on", ha="right")
        axis.text(28, 0.6, "Bayes: off", ha="right")
    axes[-1].set(xlabel="M / cost of meltdown")
    return figure


def draw_shares(tables: dict[str, pd.DataFrame]) -> Figure:
    """The shares of :func:`shares`, from a random start and from the worst, against M."""
    figure, axes = subplots(len(tables), 1, figsize=(5.6, 6.8), sharex=True, sharey=True)
    colours = dict(zip(ALGORITHMS, ("ISGP", "GP", "PAVA"), strict=True))
    for axis, (title, table) in zip(axes, tables.items(), strict=True):
        for algorithm, marker in zip(ALGORITHMS, "osD", strict=True):
            for start, dashes in (("random", "-"), ("worst action", ":")):
                axis.plot(
                    table.index,
                    table[algorithm, start],
                    dashes,
                    marker=marker,
                    markersize=4,
                    color=COLOURS[colours[algorithm]],
                    label=algorithm if start == "random" else None,
                )
        axis.set(xscale="log", ylabel="share of bad ends", title=title, ylim=(0, 1))
        axis.set_xticks([1, 2, 5, 20, 100], ["1", "2", "5", "20", "100"])
    axes[-1].set(xlabel="M / largest loss")
    axes[0].legend()
    return figure
