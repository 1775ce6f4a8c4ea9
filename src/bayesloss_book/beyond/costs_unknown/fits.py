r"""Sigmoids, links and logistic regressions fitted by the loss of a distribution of costs.

A missed case costs 1 and a false yes r, with log r ~ N(m, s^2): yes is right where the log odds are
above log r. So the expected bill of announcing log odds z is a proper loss with two partial losses,

    label 1:  Pr[log r > z] = Phi((m - z) / s),
    label 0:  E[r; log r < z] = exp(m + s^2 / 2) Phi((z - m - s^2) / s).
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.special import ndtr

from bayesloss.learning.calibration.score_transform import ScoreTransform
from bayesloss.learning.data.rows import Rows
from bayesloss.learning.inference.likelihoods import Bernoulli, Observations
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode
from bayesloss.learning.sources.priors import CentredISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.optimise import minimise
from bayesloss_book.data import score_sets as scores
from bayesloss_book.data import score_tables as tables
from paperledger.stores.results import runs

SIZES = (50, 100, 200, 500, 1_000, 2_000, 5_000)
N_DRAWS = 12
# 95 % of the ratios, missed case to false alarm, lie between 5 : 1 and 50 : 1
CENTRE = -math.log(250) / 2
SPREAD = math.log(10) / (2 * 1.96)
FAMILIES = {
    "sigmoid": "a sigmoid of the score",
    "link": "a learned link",
    "inputs": "logistic regression",
}
# The first ten real tables in their order; of the seven classifiers one after the other.
REAL = dict(zip([*tables.TABLES, *tables.LARGER][:10], [*scores.MODELS] * 2, strict=False))
_FEWEST = 2  # of either class among the cases to learn from
_load = lru_cache(maxsize=1)(tables.load)


class CostLikelihood(Bernoulli):
    """exp(-rate x bill) in place of the probability of a label, eq. (19); or times it.

    At rate 1 a label counts as in the log loss where costs are likeliest, and less elsewhere. With
    ``share`` 1 the log loss is added: then it counts 1 + rate times as much there as far away.
    """

    def __init__(self, rate: float = 1.0, share: float = 0.0) -> None:
        super().__init__()
        peak = 1 / (SPREAD * math.sqrt(2 * math.pi))
        self.scale = rate / ((1 + math.exp(CENTRE)) * peak)
        self.share = share

    def log_density(self, nu: Tensor, data: Observations) -> Tensor:
        """Minus the bill of all labels in units of the scale, and a share of the log loss."""
        by_log = self.share * super().log_density(nu, data)
        return by_log - self.scale * (bill(nu, data.targets) @ data.weights)

    def derivatives(self, nu: Tensor, data: Observations) -> tuple[Tensor, Tensor]:
        """First and second derivative by each nu."""
        by_log = super().derivatives(nu, data)
        nu = nu.clamp(-50, 50)  # beyond, nothing turns
        u = (nu - CENTRE) / SPREAD
        turns = torch.exp(-(u**2) / 2) / (SPREAD * math.sqrt(2 * math.pi))
        false = (1 - data.targets) * nu.exp()
        first = data.targets - false
        second = -first * u / SPREAD - false
        scale = self.scale * data.weights * turns
        return self.share * by_log[0] + scale * first, self.share * by_log[1] + scale * second


def bill(log_odds: Tensor, truth: Tensor) -> Tensor:
    """The expected cost of deciding by these log odds; the truth is a label or its probability."""
    missed = ndtr((CENTRE - log_odds) / SPREAD)
    false_yes = math.exp(CENTRE + SPREAD**2 / 2) * ndtr((log_odds - CENTRE - SPREAD**2) / SPREAD)
    return truth * missed + (1 - truth) * false_yes


LOSSES = {"log": Bernoulli(), "cost": CostLikelihood(), "mixed": CostLikelihood(4.0, 1.0)}


def linear(Z: Tensor, y: Tensor, loss: Bernoulli, centre: Tensor, precision: Tensor) -> Tensor:
    """Coefficients: those of the log loss, or the matching loss's nearest optimum to them."""

    def climb(loss: Bernoulli, start: Tensor) -> Tensor:
        data = Observations(Z, y, torch.ones_like(y))

        def objective(b: Tensor) -> tuple[float, Tensor]:
            nu = Z @ b
            away = b - centre
            value = -loss.log_density(nu, data) + 0.5 * (precision * away**2).sum()
            return float(value), precision * away - Z.T @ loss.derivatives(nu, data)[0]

        return torch.from_numpy(minimise(objective, start, options={}).x)

    best = climb(LOSSES["log"], centre)
    return best if loss is LOSSES["log"] else climb(loss, best)


def link(x: Tensor, y: Tensor, loss: Bernoulli, targets: Tensor) -> Tensor:
    """Log odds at targets by the likeliest link around the line of slope 1."""
    low = float(x.min())
    high = float(x.max())
    centre = (low + high) / 2
    half = max((high - low) / 2, 0.5)
    kernel = TrigonometricKernel(a=2.0, c=0.8 / half, n_basis=32).scaled(0.15)
    prior = CentredISGP(kernel, mu=centre, gamma=0.25)
    nodes = torch.linspace(-half, half, 200, dtype=torch.float64)
    shares = Bernoulli.shares(x - centre, y, torch.ones_like(x), nodes)
    data = Bernoulli.on_grid(prior.features, nodes, shares)
    mode = find_mode(LogJoint(prior, LOSSES["log"], data), prior.location).Gamma
    if loss is not LOSSES["log"]:
        mode = find_mode(LogJoint(prior, loss, data), mode).Gamma
    return prior.source((targets - centre).clamp(-half, half), mode)


def measure(*, data: str, model: str, family: str, n: int, n_draws: int) -> dict[str, float]:
    """Mean bills in thousandths of a missed case; gains on the log loss's, with their errors."""
    bills = []
    for x, y, targets, truth in draws(data, model, family, n, n_draws):
        row = []
        for loss in LOSSES.values():
            if family == "link":
                z = link(x[:, 1], y, loss, targets[:, 1])
            else:
                centre = torch.zeros(x.shape[1], dtype=torch.float64)
                precision = torch.ones_like(centre)
                if family == "inputs":
                    precision[0] = 1e-3  # the level is free
                else:
                    centre[1] = 1.0  # Platt's own sigmoid
                z = targets @ linear(x, y, loss, centre, precision)
            row.append(1e3 * float(bill(z, truth).mean()))
        bills.append(row)
    return gains(bills)


def gains(bills: list[list[float]]) -> dict[str, float]:
    """Means of bills, a row a draw and a column a loss; gains on the log loss, and their errors."""
    table = pd.DataFrame(bills, columns=list(LOSSES))
    saved = -table.drop(columns="log").sub(table["log"], axis=0).add_suffix("_gain")
    return {**table.mean(), **saved.mean(), **saved.sem().add_suffix("/error")}


def draws(data: str, model: str, family: str, n: int, n_draws: int) -> Iterator[Sequence[Tensor]]:
    """Columns of 1 and of inputs, or of Platt's log odds; labels; the same of test cases."""
    whole = _load((tables.TABLES | tables.LARGER)[data]) if family == "inputs" else None
    for number in range(n_draws):
        if whole is not None:
            sizes = (tables.TABLES | tables.LARGER)[data].sizes
            X, y, *_, X_test, truth = tables.split(*whole, sizes, number)
            rng = np.random.default_rng([n, number])
            kept = rng.choice(len(y), n, replace=False)
            while not _FEWEST <= y[kept].sum() <= n - _FEWEST:
                kept = rng.choice(len(y), n, replace=False)
            x = X[kept]
            x_test = X_test
            y = y[kept]
        else:
            drawn = scores.draw(data, "curve" if model == "curve" else "real", model, n, number)
            rows = Rows(drawn.scores, drawn.y, np.ones(n))
            turn = ScoreTransform.fit(rows, drawn.probability)
            x = turn(drawn.scores)[:, None]
            x_test = turn(drawn.test_scores)[:, None]
            y = drawn.y
            truth = drawn.truth
        x, x_test = (np.column_stack([np.ones(len(part)), part]) for part in (x, x_test))
        yield [torch.from_numpy(np.asarray(part, dtype=float)) for part in (x, y, x_test, truth)]


def cells() -> list[dict[str, Any]]:
    """The curves and ten real tables at the sizes at which the rarer class is expected to occur."""
    sets = [(name, "curve") for name in scores.CURVES] + list(REAL.items())
    return [
        {"data": data, "model": model, "family": family, "n": n}
        for data, model in sets
        for n in SIZES
        if scores.enough(data, n)
        for family in FAMILIES
        if family != "inputs" or model != "curve"
    ]


def summary(*parts: pd.DataFrame) -> pd.DataFrame:
    """What a loss saves in per cent: means and errors over sets, and sets ahead and behind."""
    stored = pd.concat(parts)
    rows = []
    for name in ("cost", "mixed"):
        gain = stored[f"{name}_gain"]
        error = stored[f"{name}_gain/error"]
        part = stored[["family", "n", "data"]].assign(loss=name, gain=100 * gain / stored["log"])
        rows.append(part.assign(ahead=gain > 2 * error, behind=gain < -2 * error))
    by = pd.concat(rows).groupby(["family", "loss", "n"])
    counts = by[["ahead", "behind"]].sum().assign(sets=by.size())
    return by["gain"].agg(mean="mean", error="sem").join(counts)


run = runs(measure, cells, "costs_fits", n_draws=N_DRAWS)
