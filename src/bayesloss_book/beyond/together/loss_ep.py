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
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.calibrating.decide_together import Utility, decide_together
from bayesloss.calibrating.probit.expectation_propagation import (
    combine_sites,
    expectation_propagation,
    standard_normal,
)
from bayesloss.calibrating.probit.laplace import LogTerm, laplace_probit
from bayesloss.calibrating.probit.tilted_ep import tilted_ep
from bayesloss.calibrating.probit.whitened_gp import WhitenedGP
from bayesloss_book.beyond.together import experiment
from bayesloss_book.references.probit_references import draw_data
from paperledger.stores.results import runs

PAPER = {"n_sets": 8, "n_draws": 4096, "n_chain": 512, "n_labels": 4}
FEW = experiment.SIZES[:2]  # targets


class Tried(NamedTuple):
    """A choice to compare with, those that are compared with it, and numbers beside, by suffix."""

    before: NDArray[np.bool_]
    choices: dict[str, NDArray[np.bool_]]
    numbers: dict[str, float]


class Draws:
    """Of one data set's weights, in normal numbers; and of what they leave open of targets x."""

    def __init__(self, gp: WhitenedGP, x: Tensor, shape: tuple[int, ...], seed: int) -> None:
        self.features, self.targets = gp.features, gp.project(x)[0]
        chance = torch.Generator().manual_seed(seed)
        normal = torch.randn((shape[0], self.features.shape[1]), dtype=x.dtype, generator=chance)
        normal = normal - normal.mean(0)
        root = torch.linalg.cholesky(normal.T @ normal / len(normal))
        # Of mean 0, and their covariance is the identity.
        self.normal = torch.linalg.solve_triangular(root, normal.T, upper=False).T
        self.chance = torch.Generator().manual_seed(seed + 1)
        values, vectors = torch.linalg.eigh(gp.kernel(x, x) - self.targets @ self.targets.T)
        normal = torch.randn((*shape, len(x)), dtype=x.dtype, generator=self.chance)
        # Of the latent function, less its mean given the weights.
        self.left = normal @ (vectors * values.clamp(min=0.0).sqrt()).T


class DrawnUtility(Draws):
    """A set's mean utility as a factor of one data set's weights, for :func:`tilted_ep`."""

    def __init__(self, gp: WhitenedGP, x: Tensor, utility: Utility, n: int, seed: int) -> None:
        super().__init__(gp, x, (n,), seed)
        noise = torch.randn(self.left.shape, dtype=x.dtype, generator=self.chance)
        self.utility = utility
        self.rest = self.left + noise
        self.chosen: NDArray[np.bool_] = np.zeros(len(x), dtype=bool)

    def labels(self, mean: Tensor, covariance: Tensor) -> NDArray[np.bool_]:
        """Joint draws of the labels under a Gaussian over the weights (1, r)."""
        z = mean + self.normal @ torch.linalg.cholesky(covariance[0]).T
        return np.asarray(z @ self.targets.T + self.rest > 0)

    def log_expectation(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """By Stein's identities: of draws e = R^-1 (z - mean), weighted by the utility."""
        labels = self.labels(mean, covariance)
        value = torch.from_numpy(experiment.worth(self.utility, labels, self.chosen))
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


def choose(y: Tensor, term: DrawnUtility, k: int | None, max_iter: int = 10) -> Tried:
    """Choose under the cavity of the utility's site, while that makes the evidence rise.

    Beside EP's choice and loss-EP's, whether they differ, and whether EP with the utility's site
    settled throughout.
    """
    features = term.features[None]
    q = expectation_propagation(features, y[None])
    evidence = -torch.inf
    settled = True
    before = proposed = decide_together(term.labels(q.mean, q.covariance), term.utility, k=k).chosen
    after = before
    for _ in range(max_iter):
        term.chosen = proposed
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            q = tilted_ep(features, y[None], cast("LogTerm", term), max_iter=25)
        settled = settled and bool(q.converged)
        # As in loss_ep_probit: of two choices that lead to each other the one of more evidence.
        if not float(q.log_evidence) > evidence:
            break
        evidence = float(q.log_evidence)
        after = proposed
        mean, covariance, _ = combine_sites(features, *q.label_sites(), standard_normal(features))
        proposed = decide_together(term.labels(mean, covariance), term.utility, k=k).chosen
        if (proposed == after).all():
            break
    else:
        settled = False
    numbers = {"/changed": float((after != before).any()), "/settled": float(settled)}
    return Tried(before, {"": after}, numbers)


def measure(*, n_draws: int, **cell: Any) -> dict[str, float]:
    """How much utility loss-EP gains over EP with the same normal numbers.

    With ``/changed``, how many choices differ, and ``/settled``.
    """
    return gains(
        lambda gp, y, x, utility, k, seed: choose(
            y, DrawnUtility(gp, x, utility, n_draws, seed), k
        ),
        **cell,
    )


def gains(
    choose: Callable[..., Tried],
    *,
    repetition: int,
    n_sets: int,
    n_chain: int,
    n_labels: int,
    **kernel: float,
) -> dict[str, float]:
    """Utility gained, by four long chains: means over data sets, of keys ``utility/m/test``."""
    prior, y, unit = draw_data(**kernel, n_sets=n_sets, n_test=max(FEW), seed=repetition)
    laplace = laplace_probit(prior.features, y)
    long = experiment.chains(prior, y, laplace, n_chain, repetition).flatten(0, 1)
    generator = torch.Generator().manual_seed(repetition)
    rows: dict[str, list[float]] = {}
    for test, m, j, gp, x in experiment.problems(prior, unit, FEW):
        judge = gp.draw_labels(long[:, j].repeat_interleave(n_labels, 0), x, generator).numpy()
        for name in experiment.cases(m):
            utility, k = experiment.utility_of(name, m)
            found = choose(gp, y[j], x, utility, k, 1000 * repetition + j)
            old = experiment.worth(utility, judge, found.before).mean()
            row = {
                suffix: experiment.worth(utility, judge, chosen).mean() - old
                for suffix, chosen in found.choices.items()
            }
            for suffix, value in (row | found.numbers).items():
                rows.setdefault(f"{name}/{m}/{test}{suffix}", []).append(float(value))
    return {key: float(np.mean(values)) for key, values in rows.items()}


def per_cell(stored: pd.DataFrame, utility: str, suffix: str = "") -> pd.Series:
    """What a store has for a utility, averaged within each cell over targets and tests."""
    return stored.filter(regex=rf"^{utility}/[^/]+/[^/]+{suffix}$").mean(axis=1)


def summary(stored: pd.DataFrame) -> pd.DataFrame:
    """Mean gain over EP by utility, its standard error over cells, and shares of choices."""
    rows = {}
    for utility in experiment.UTILITIES:
        gain = per_cell(stored, utility)
        shares = {k: per_cell(stored, utility, f"/{k}").mean() for k in ("changed", "settled")}
        rows[utility] = {"gain": gain.mean(), "error": gain.sem()} | shares
    return pd.DataFrame(rows).T


# Each kernel once.
run = runs(measure, lambda: experiment.cells(n_repetitions=1), "together_loss_ep", **PAPER)
