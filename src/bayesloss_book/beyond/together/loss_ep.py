r"""Loss-calibrated EP where the utility is of the set: one site, whose moments are taken by draws.

Loss-EP (:mod:`bayesloss_book.beyond.loss_ep.loss_ep`) weighs the posterior with the utility, lets
EP's sites settle, takes the utility out again and decides under that cavity, the Gaussian of prior
and labels' sites. For a sum over targets the moments of cavity times utility have a closed form.
For a utility of the set the factor is still one function of the weights,

.. math:: U_h(z) = \mathrm E[u(t, k, P) \mid z],

and EP asks for no more than its first two moments under the cavity. Here they are means over draws
of the weights, each with one draw of all labels. The draws are shifted and scaled so that their own
moments are the cavity's: a constant utility then has no site, and what chance adds to the site goes
with how much the utility varies. The same normal numbers serve all rounds.
"""

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.calibrating.decide_together import JointDecision, Utility, decide_together
from bayesloss.calibrating.probit.expectation_propagation import (
    combine_sites,
    expectation_propagation,
    standard_normal,
)
from bayesloss.calibrating.probit.laplace import LogTerm, laplace_probit
from bayesloss.calibrating.probit.tilted_ep import tilted_ep
from bayesloss.calibrating.probit.whitened_gp import WhitenedGP
from bayesloss_book.beyond.together.experiment import (
    INPUTS,
    SIZES,
    UTILITIES,
    cases,
    cells,
    chains,
    utility_of,
)
from bayesloss_book.probit_references import TESTS, draw_data
from bayesloss_book.stores.results import runs

PAPER = {"n_sets": 8, "n_draws": 4096, "n_chain": 512, "n_labels": 4}
FEW = SIZES[:2]  # targets


class Calibrated(NamedTuple):
    """Choices by EP and by loss-EP, and whether EP with the utility's site settled throughout."""

    ep: JointDecision
    loss_ep: JointDecision
    settled: bool


class DrawnUtility:
    """A set's mean utility as a factor of one data set's weights, for :func:`tilted_ep`."""

    def __init__(self, gp: WhitenedGP, x: Tensor, utility: Utility, n: int, seed: int) -> None:
        self.gp, self.utility, self.targets = gp, utility, gp.project(x)[0]
        self.normal = standardised(n, gp.features.shape[-1], seed)
        chance = torch.Generator().manual_seed(seed + 1)
        self.rest = left_open(gp, x, (n,), chance)
        self.rest += torch.randn(self.rest.shape, dtype=x.dtype, generator=chance)  # probit noise
        self.chosen: NDArray[np.bool_] = np.zeros(len(x), dtype=bool)

    def labels(self, mean: Tensor, covariance: Tensor) -> NDArray[np.bool_]:
        """Joint draws of the labels under a Gaussian over the weights (1, r)."""
        z = mean + self.normal @ torch.linalg.cholesky(covariance[0]).T
        return np.asarray(z @ self.targets.T + self.rest > 0)

    def log_expectation(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """By Stein's identities: of draws e = R^-1 (z - mean), weighted by the utility."""
        value = torch.from_numpy(worth(self.utility, self.labels(mean, covariance), self.chosen))
        share = value / value.sum()
        centre = share @ self.normal
        apart = self.normal - centre
        spread = apart.T @ (apart * share[:, None]) - torch.eye(len(centre), dtype=centre.dtype)
        inverse = torch.linalg.inv(torch.linalg.cholesky(covariance[0]))
        return (
            value.mean().log()[None],
            (centre @ inverse)[None],
            (inverse.T @ spread @ inverse)[None],
        )

    def select(self, rows: Tensor) -> "DrawnUtility":
        """The same: there is one data set."""
        return self


def standardised(n: int, r: int, seed: int) -> Tensor:
    """Normal numbers whose means are 0 and whose covariance is the identity."""
    chance = torch.Generator().manual_seed(seed)
    normal = torch.randn((n, r), dtype=torch.float64, generator=chance)
    normal = normal - normal.mean(0)
    root = torch.linalg.cholesky(normal.T @ normal / n)
    return torch.linalg.solve_triangular(root, normal.T, upper=False).T


def left_open(gp: WhitenedGP, x: Tensor, shape: tuple[int, ...], chance: torch.Generator) -> Tensor:
    """Draws (*shape, m) of the latent function at x, less its mean given the weights."""
    features = gp.project(x)[0]
    values, vectors = torch.linalg.eigh(gp.kernel(x, x) - features @ features.T)
    normal = torch.randn((*shape, len(x)), dtype=x.dtype, generator=chance)
    return normal @ (vectors * values.clamp(min=0.0).sqrt()).T


def worth(utility: Utility, labels: NDArray[Any], chosen: NDArray[Any]) -> NDArray[np.float64]:
    """The utility of a choice, for each draw of the labels."""
    hits, positives = labels[:, chosen].sum(axis=1), labels.sum(axis=1)
    return np.asarray(utility(hits, chosen.sum(), positives), dtype=np.float64)


def choose(y: Tensor, term: DrawnUtility, k: int | None, max_iter: int = 10) -> Calibrated:
    """Choose under the cavity of the utility's site, while that makes the evidence rise."""
    features = term.gp.features[None]
    q = expectation_propagation(features, y[None])
    evidence, settled = -torch.inf, True
    found = [decide_together(term.labels(q.mean, q.covariance), term.utility, k=k)]
    for _ in range(max_iter):
        term.chosen = found[-1].chosen
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            q = tilted_ep(features, y[None], cast("LogTerm", term), max_iter=25)
        settled = settled and bool(q.converged)
        # As in loss_ep_probit: of two choices that lead to each other the one of more evidence.
        if not float(q.log_evidence) > evidence:
            return Calibrated(found[0], found[max(len(found) - 2, 0)], settled)
        evidence = float(q.log_evidence)
        mean, covariance, _ = combine_sites(features, *q.label_sites(), standard_normal(features))
        found.append(decide_together(term.labels(mean, covariance), term.utility, k=k))
        if (found[-1].chosen == found[-2].chosen).all():
            return Calibrated(found[0], found[-1], settled)
    return Calibrated(found[0], found[-2], False)


class Tried(NamedTuple):
    """A choice to compare with, those that are compared with it, and numbers beside, by suffix."""

    before: NDArray[np.bool_]
    choices: dict[str, NDArray[np.bool_]]
    numbers: dict[str, float]


def measure(*, n_draws: int, **cell: Any) -> dict[str, float]:
    """How much utility loss-EP gains over EP with the same normal numbers.

    With ``/changed``, how many choices differ, and ``/settled``.
    """

    def tried(
        gp: WhitenedGP, y: Tensor, x: Tensor, utility: Utility, k: int | None, seed: int
    ) -> Tried:
        found = choose(y, DrawnUtility(gp, x, utility, n_draws, seed), k)
        before, after = found.ep.chosen, found.loss_ep.chosen
        numbers = {"/changed": float((after != before).any()), "/settled": float(found.settled)}
        return Tried(before, {"": after}, numbers)

    return gains(tried, **cell)


def gains(
    choose: Callable[..., Tried],
    *,
    length_scale: float,
    amplitude: float,
    repetition: int,
    n_sets: int,
    n_chain: int,
    n_labels: int,
) -> dict[str, float]:
    """Utility gained, by four long chains: means over data sets, of keys ``utility/m/test``."""
    prior, y, unit = draw_data(length_scale, amplitude, n_sets, max(FEW), repetition)
    long = chains(prior, y, laplace_probit(prior.features, y), n_chain, repetition)
    generator = torch.Generator().manual_seed(repetition)
    rows: dict[str, list[float]] = {}
    for test in INPUTS:
        x = unit[list(TESTS).index(test)] + TESTS[test]
        for m, j in product(FEW, range(n_sets)):
            gp = WhitenedGP(prior.kernel, prior.inputs[j], prior.features[j], prior.basis[j])
            z = long[:, :, j].flatten(0, 1).repeat_interleave(n_labels, 0)
            judge = gp.draw_labels(z, x[:m], generator).numpy()
            for name in cases(m):
                utility, k = utility_of(name, m)
                found = choose(gp, y[j], x[:m], utility, k, 1000 * repetition + j)
                old = worth(utility, judge, found.before).mean()
                row = {s: worth(utility, judge, c).mean() - old for s, c in found.choices.items()}
                for suffix, value in (row | found.numbers).items():
                    rows.setdefault(f"{name}/{m}/{test}{suffix}", []).append(float(value))
    return {key: float(np.mean(values)) for key, values in rows.items()}


def per_cell(stored: pd.DataFrame, utility: str, suffix: str = "", test: str = "") -> pd.Series:
    """What a store has for a utility, or for one of its tests, averaged within each cell."""
    n_parts = 2 + suffix.count("/")
    those = [n for n in stored if n.startswith(f"{utility}/") and n.endswith(test + suffix)]
    return stored[[n for n in those if n.count("/") == n_parts]].mean(axis=1)


def summary(stored: pd.DataFrame) -> pd.DataFrame:
    """Mean gain over EP by utility, its standard error over cells, and shares of choices."""
    rows = {}
    for utility in UTILITIES:
        gain = per_cell(stored, utility)
        shares = {k: per_cell(stored, utility, f"/{k}").mean() for k in ("changed", "settled")}
        rows[utility] = {"gain": gain.mean(), "error": gain.sem()} | shares
    return pd.DataFrame(rows).T


# Each kernel once.
run = runs(measure, lambda: cells(n_repetitions=1), "together_loss_ep", **PAPER)
