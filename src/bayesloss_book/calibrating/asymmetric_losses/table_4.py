"""LHG section 5: Laplace, loss-EM and EP on 100 small data sets, under five costs (Table 4).

A cell is a repetition, a test distribution and a cost. Within a repetition data sets, test inputs
and the reference are shared. Readings of ours, where the paper is silent: the kernel is squared
exponential; a repetition draws data sets and test inputs anew; a repetition's data sets share its
test inputs; loss-EM starts at decisions by fair coins.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import wilcoxon
from torch import Tensor

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.loss_em_probit import loss_em_probit
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.laplace import laplace_probit
from bayesloss.calibrating.probit.whitened_gp import GaussianWeights, WhitenedGP, decide
from bayesloss_book.ledger.quoted import quoted
from bayesloss_book.references.probit_references import (
    TESTS,
    THRESHOLDS,
    Reference,
    by_hamiltonian_monte_carlo,
    by_importance_sampling,
    costs_at,
    draw_data,
    excess_risk,
)
from paperledger.stores.results import crossed, runs

METHODS = ("laplace", "loss_em", "ep")
LENGTHS = (10, 30, 100, 1000)  # of shorter references, in draws of one chain


@dataclass(frozen=True)
class Trial:
    """The data sets of one repetition, and what two methods make of them."""

    prior: WhitenedGP
    y: Tensor
    laplace: GaussianWeights
    ep: GaussianWeights
    test_unit: Tensor  # test inputs of shape (s,), before the shift

    def test_inputs(self, test: str) -> Tensor:
        """Of shape (s,)."""
        return self.test_unit[list(TESTS).index(test)] + TESTS[test]


def trial(length_scale: float, amplitude: float, n_sets: int, n_test: int, seed: int) -> Trial:
    """Draw data sets, and approximate their posteriors by Laplace's method and EP."""
    prior, y, test_unit = draw_data(length_scale, amplitude, n_sets, n_test, seed)
    laplace = laplace_probit(prior.features, y)
    return Trial(prior, y, laplace, expectation_propagation(prior.features, y), test_unit)


@lru_cache(maxsize=2)
def _with_references(
    length_scale: float,
    amplitude: float,
    n_sets: int,
    n_test: int,
    n_chains: int,
    n_draws: int,
    n_points: int,
    seed: int,
) -> tuple[Trial, Reference, Reference]:
    """Shared by the cells of a repetition; a worker computes it once."""
    here = trial(length_scale, amplitude, n_sets, n_test, seed)
    how: dict[str, Any] = {"n_chains": n_chains, "n_draws": n_draws, "lengths": LENGTHS}
    hmc = by_hamiltonian_monte_carlo(here.prior, here.y, here.laplace, seed=seed, **how)
    importance = by_importance_sampling(here.prior, here.y, here.ep, n_draws=n_points, seed=seed)
    return here, hmc, importance


def measure(
    *,
    repetition: int,
    test: str,
    threshold: float,
    length_scale: float,
    amplitude: float,
    n_sets: int,
    n_test: int,
    n_chains: int,
    n_draws: int,
    n_points: int,
) -> dict[str, float]:
    """Table 4's cell in one repetition.

    ``laplace``, ``loss_em``, ``ep``: (28) averaged over the data sets that are not easy, under the
    HMC reference; ``*_error``: the Monte Carlo standard error that the reference leaves, by chains;
    ``*_importance``: under importance sampling; ``*_10`` to ``*_1000``: under so many draws of one
    chain; ``hard*``: how many data sets are not easy under each. ``warm``, ``double``: loss-EM
    started at Laplace's decisions, and with M doubled. ``ep_all``, ``laplace_all``: under
    importance sampling, over all data sets. ``rounds``: mean rounds of loss-EM; ``soon``: the part
    of the data sets with less than 5; ``settled``: that ended. ``differ``: the part of the
    decisions in which loss-EM differs from Laplace. ``r_hat``, ``effective_size``,
    ``importance_size``: the worst over data sets and weights.
    """
    here, hmc, importance = _with_references(
        length_scale, amplitude, n_sets, n_test, n_chains, n_draws, n_points, repetition
    )
    costs = costs_at(threshold)
    x = here.test_inputs(test)
    h, rounds, settled = _decisions(here, costs, x, repetition)
    p = hmc.predictive(x)
    risks = {name: excess_risk(h[name], p, costs) for name in h}
    hard = torch.stack([risks[name] for name in METHODS]).amax(0) > 0
    out = {name: _mean(risks[name], hard) for name in h}
    out["hard"] = int(hard.sum())
    assert hmc.per_chain is not None
    alone = hmc.per_chain(x)
    for name in METHODS:
        out[f"{name}_error"] = _reference_error(h[name], p, alone, costs, hard)
    others = {"importance": importance.predictive} | {str(n): hmc.shorter[n] for n in LENGTHS}
    for label, predictive in others.items():
        again = {name: excess_risk(h[name], predictive(x), costs) for name in METHODS}
        hard_there = torch.stack(list(again.values())).amax(0) > 0
        out |= {f"{name}_{label}": _mean(again[name], hard_there) for name in METHODS}
        out[f"hard_{label}"] = int(hard_there.sum())
        if label == "importance":
            out |= {f"{name}_all": float(again[name].mean()) for name in ("laplace", "ep")}
    out |= {
        "rounds": float(rounds.to(torch.float64).mean()),
        "soon": float((rounds < 5).to(torch.float64).mean()),
        "settled": float(settled.to(torch.float64).mean()),
        "differ": float((h["loss_em"] != h["laplace"]).to(torch.float64).mean()),
        "r_hat": hmc.r_hat,
        "effective_size": hmc.effective_size,
        "importance_size": importance.effective_size,
    }
    return out


def measure_map(
    *, length_scale: float, amplitude: float, n_sets: int, n_test: int, n_points: int
) -> dict[str, float]:
    """All of Table 4 for one kernel, with importance sampling: ``method_row_test``."""
    here = trial(length_scale, amplitude, n_sets, n_test, seed=0)
    reference = by_importance_sampling(here.prior, here.y, here.ep, n_draws=n_points, seed=0)
    out: dict[str, float] = {"importance_size": reference.effective_size}
    for test in TESTS:
        x = here.test_inputs(test)
        p = reference.predictive(x)
        for row, threshold in THRESHOLDS.items():
            costs = costs_at(threshold)
            h, _, _ = _decisions(here, costs, x, 0, methods=METHODS)
            risks = {name: excess_risk(h[name], p, costs) for name in METHODS}
            hard = torch.stack(list(risks.values())).amax(0) > 0
            out |= {f"{name}_{row}_{test}": _mean(risks[name], hard) for name in METHODS}
    return out


def _decisions(
    here: Trial,
    costs: CostMatrix,
    x: Tensor,
    seed: int,
    methods: tuple[str, ...] = (*METHODS, "warm", "double"),
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Every method's decisions (m, s), and loss-EM's rounds and whether it ended."""
    features, noise = here.prior.project(x.expand(len(here.y), -1))
    threshold = costs.probit_threshold
    h = {
        "laplace": decide(here.laplace, features, noise, threshold),
        "ep": decide(here.ep, features, noise, threshold),
    }
    generator = torch.Generator().manual_seed(seed)
    coin = torch.rand(noise.shape, dtype=torch.float64, generator=generator)
    start = torch.where(coin < 0.5, 1.0, -1.0).to(torch.float64)  # Table 3: a random function
    data = (here.prior.features, here.y, features, noise, costs)
    found = loss_em_probit(*data, start=start)
    h["loss_em"] = found.decisions
    if "warm" in methods:
        h["warm"] = loss_em_probit(*data).decisions
        largest = max(costs.c_plus, costs.c_minus)
        h["double"] = loss_em_probit(*data, start=start, max_loss=2 * largest).decisions
    return h, found.n_rounds, found.converged


def _mean(risks: Tensor, hard: Tensor) -> float:
    return float(risks[hard].mean()) if bool(hard.any()) else 0.0


def _reference_error(h: Tensor, p: Tensor, alone: Tensor, costs: CostMatrix, hard: Tensor) -> float:
    """The standard error of the mean of (28), from the spread over chains (chains, m, s)."""

    def advantage(probabilities: Tensor) -> Tensor:
        return costs.c_minus * probabilities - costs.c_plus * (1 - probabilities)

    best = torch.where(advantage(p) > 0, 1.0, -1.0)
    by_chain = best * advantage(alone)  # what the best decision is worth to each chain
    ratio = ((h != best) * by_chain).sum(-1) / by_chain.sum(-1)
    means = ratio[:, hard].mean(-1) if bool(hard.any()) else torch.zeros(len(alone))
    return float(means.std() / len(alone) ** 0.5)


KERNEL = {"length_scale": 0.3, "amplitude": 3.0}
PAPER = {"n_sets": 100, "n_test": 1000, "n_chains": 4, "n_draws": 2000, "n_points": 4096}
MAP = {"n_sets": 200, "n_test": 300, "n_points": 1024}


def cells(n_repetitions: int = 10, thresholds: Mapping[str, float] = THRESHOLDS) -> list[dict]:
    """Repetitions, tests and costs."""
    return crossed(repetition=range(n_repetitions), test=TESTS, threshold=thresholds.values())


def map_cells() -> list[dict[str, float]]:
    """Kernels: length scales and amplitudes."""
    return crossed(length_scale=(0.15, 0.2, 0.3, 0.4, 0.5), amplitude=(1.5, 2.0, 3.0, 4.0, 6.0))


# At the paper's scale.
run = runs(measure, cells, "asymmetric_losses", **KERNEL, **PAPER)
# The last row of two repetitions with the cost as printed, 0.05: a threshold of 1 / 21.
run_rounded = runs(
    measure, lambda: cells(2, {"0.05": 0.05 / 1.05}), "asymmetric_losses_rounded", **KERNEL, **PAPER
)
run_map = runs(measure_map, map_cells, "asymmetric_losses_map", **MAP)


def by_cell(value: Callable[[str, str, str], Any]) -> pd.Series:
    """A value for each row, test and method of the table."""
    cells = {cell: value(*cell) for cell in product(THRESHOLDS, TESTS, METHODS)}
    return pd.Series(cells).rename_axis(["row", "test", "method"])


def printed() -> pd.Series:
    """Table 4 as printed."""
    rows = quoted("lhg-table-4")["rows"]
    return by_cell(lambda row, test, method: rows[row][test][method])


def table(results: pd.DataFrame, suffix: str = "") -> pd.DataFrame:
    """Means over repetitions, indexed by row, test and method.

    ``mean``; ``sd``; ``error``, the part that the HMC reference causes; ``p`` of Wilcoxon's signed
    rank test between Laplace and loss-EM; ``better``, which of these is at 0.01, or nothing.
    """
    names = {threshold: row for row, threshold in THRESHOLDS.items()}
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for (threshold, test), group in results.groupby(["threshold", "test"], sort=False):
        difference = group[f"laplace{suffix}"] - group[f"loss_em{suffix}"]
        p = float(wilcoxon(difference).pvalue) if (difference != 0).any() else 1.0
        better = "" if p > 0.01 else "loss_em" if difference.median() > 0 else "laplace"
        for method in METHODS:
            values = group[method + suffix]
            error = np.nan
            if not suffix:
                error = float((group[f"{method}_error"] ** 2).sum() ** 0.5 / len(group))
            rows[names.get(threshold, f"{threshold:.4f}"), str(test), method] = {
                "mean": values.mean(),
                "sd": values.std(),
                "error": error,
                "p": p,
                "better": better,
            }
    out = pd.DataFrame(rows).T.rename_axis(["row", "test", "method"])
    return out.astype({"mean": float, "sd": float, "error": float, "p": float})


UNIT = (
    "Ten-thousandths of the criterion (28), which is a share: 0 where a method decides as the "
    "exact posterior does, 10,000 where it always decides the opposite. Here: means over "
    "repetitions and their standard errors, with a kernel of ours."
)


def beside_print(results: pd.DataFrame) -> pd.DataFrame:
    """The printed criterion of each method, and ours with standard errors, in `UNIT`."""
    found = table(results)
    error = found["sd"] / results["repetition"].nunique() ** 0.5
    names = {"laplace": "Laplace", "loss_em": "loss-EM", "ep": "EP"}
    columns = {}
    for method in METHODS:
        printed_here = printed().xs(method, level="method")
        for column, values in {
            "in print": printed_here,
            "here": found["mean"].xs(method, level="method"),
            "± here": error.xs(method, level="method"),
        }.items():
            digits = "{:.0f}" if column == "in print" else "{:.1f}"
            columns[f"{names[method]}, {column}"] = (1e4 * values).map(digits.format)
    shown = pd.DataFrame(columns).reindex(printed_here.index)
    tests = {"u_00_10": "U(0, 1)", "u_02_12": "U(0.2, 1.2)", "u_05_15": "U(0.5, 1.5)"}
    return shown.rename(index=tests).rename_axis(["c₊", "test inputs"])
