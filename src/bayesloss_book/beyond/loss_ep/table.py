"""Table 4 again, with loss-calibrated EP in it, at its kernel and at those of the map.

A cell is a kernel and a repetition; its measures are all tests and costs of the table. Data sets,
test inputs and costs are those of LHG section 5. Regrets are (28), averaged over *all* data sets:
which of them are easy would depend on who takes part.
"""

import warnings
from typing import Any

import pandas as pd
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.calibrating.loss_em_probit import loss_em_probit
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.laplace import laplace_probit
from bayesloss.calibrating.probit.whitened_gp import decide
from bayesloss_book.beyond.loss_ep.loss_ep import loss_ep_probit
from bayesloss_book.beyond.loss_ep.rules import by_one_more_label, table_3_by_draws
from bayesloss_book.references import probit_references as probit
from paperledger.stores.results import Folder, crossed, run_cells

METHODS = {
    "laplace": "Laplace",
    "loss_em": "loss-EM (Table 3)",
    "table_3_ep": "Table 3 by EP",
    "table_3_exact": "Table 3, exact",
    "ep": "EP",
    "loss_ep": "loss-EP",
    "one_label": "EP, one more label",
}

KERNEL = {"length_scale": 0.3, "amplitude": 3.0}
PAPER = {"n_sets": 100, "n_test": 1000, "n_chains": 4, "n_draws": 1000, "n_points": 4096}
MAP = {"n_sets": 60, "n_test": 200, "n_chains": 2, "n_draws": 500, "n_points": 1024}


def measure(
    *,
    length_scale: float,
    amplitude: float,
    repetition: int,
    n_sets: int,
    n_test: int,
    n_chains: int,
    n_draws: int,
    n_points: int,
) -> dict[str, float]:
    """All methods on all tests and costs of one kernel and repetition.

    For each method, row and test: ``method_row_test``, the mean of (28) over data sets under
    weighted draws; ``..._hmc``, under Hamiltonian Monte Carlo; ``..._over``, the standard error
    over data sets of the difference to EP, under weighted draws. ``unsettled_method``: how many of
    its runs did not end; ``unsettled_sites``: how many Gaussians. ``r_hat``, ``hmc_size``,
    ``points_size``: the worst of all data sets.
    """
    prior, y, test_unit = probit.draw_data(length_scale, amplitude, n_sets, n_test, repetition)
    features = prior.features
    laplace = laplace_probit(features, y)
    ep = expectation_propagation(features, y)
    z, share = probit.importance_points(prior, y, ep, n_draws=n_points, seed=repetition)
    hmc = probit.by_hamiltonian_monte_carlo(
        prior, y, laplace, n_chains=n_chains, n_draws=n_draws, seed=repetition
    )
    one_label = probit.Predictive(by_one_more_label(prior, y, probit.GRID))
    out: dict[str, float] = {
        "r_hat": hmc.r_hat,
        "hmc_size": hmc.effective_size,
        "points_size": float((1 / (share**2).sum(-1)).min()),
    }
    unsettled = dict.fromkeys(("loss_em", "table_3_ep", "table_3_exact", "loss_ep", "sites"), 0)
    for i, (test, left) in enumerate(probit.TESTS.items()):
        x = test_unit[i] + left
        targets, noise = prior.project(x.expand(n_sets, -1))
        exact = torch.empty(n_sets, n_test, dtype=torch.float64)
        by_draws = {row: torch.empty_like(exact) for row in probit.THRESHOLDS}
        for j in range(n_sets):
            p_draws = probit.normal_cdf((z[j] @ targets[j].mT) / noise[j])
            exact[j] = share[j] @ p_draws
            for row, threshold in probit.THRESHOLDS.items():
                found = table_3_by_draws(p_draws, share[j], probit.costs_at(threshold))
                by_draws[row][j] = found[0]
                unsettled["table_3_exact"] += not found[2]
        for row, threshold in probit.THRESHOLDS.items():
            costs = probit.costs_at(threshold)
            edge = costs.probit_threshold
            data = (features, y, targets, noise, costs)
            # Counted instead.
            with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
                loss_em = loss_em_probit(*data)
                table_3 = loss_em_probit(*data, inference="ep")
                loss_ep = loss_ep_probit(*data)
            for name, end in (("loss_em", loss_em), ("table_3_ep", table_3), ("loss_ep", loss_ep)):
                unsettled[name] += int((~end.converged).sum())
                unsettled["sites"] += int((~end.q.converged).sum())
            h = {
                "laplace": decide(laplace, targets, noise, edge),
                "loss_em": loss_em.decisions,
                "table_3_ep": table_3.decisions,
                "table_3_exact": by_draws[row],
                "ep": decide(ep, targets, noise, edge),
                "loss_ep": loss_ep.decisions,
                "one_label": torch.where(one_label(x) > costs.threshold, 1.0, -1.0),
            }
            by_points = {name: probit.excess_risk(h[name], exact, costs) for name in METHODS}
            sampled = hmc.predictive(x)
            for name in METHODS:
                key = f"{name}_{row}_{test}"
                out[key] = float(by_points[name].mean())
                out[f"{key}_hmc"] = float(probit.excess_risk(h[name], sampled, costs).mean())
                out[f"{key}_over"] = _error(by_points[name] - by_points["ep"])
    return out | {f"unsettled_{name}": count for name, count in unsettled.items()}


def _error(values: Tensor) -> float:
    return float(values.std() / len(values) ** 0.5)


def cells(n_repetitions: int = 10) -> list[dict[str, Any]]:
    """Repetitions at the kernel of Table 4."""
    return [KERNEL | {"repetition": repetition} for repetition in range(n_repetitions)]


def map_cells() -> list[dict[str, Any]]:
    """One repetition at each kernel of the map on the page on asymmetric losses."""
    return crossed(
        length_scale=(0.15, 0.2, 0.3, 0.4, 0.5), amplitude=(1.5, 2.0, 3.0, 4.0, 6.0), repetition=[0]
    )


def run(folder: Folder, *, n_jobs: int | None = None) -> None:
    """Table 4 at the paper's scale, and the map; resumable."""
    run_cells(measure, cells(), folder, "loss_ep", parameters=PAPER, n_jobs=n_jobs)
    run_cells(measure, map_cells(), folder, "loss_ep_map", parameters=MAP, n_jobs=n_jobs)


def regrets(stored: pd.DataFrame, reference: str = "") -> pd.DataFrame:
    """The stored means of (28), by weighted draws or "_hmc": a column a method."""
    index = ["length_scale", "amplitude", "repetition"]
    parts = []
    for row in probit.THRESHOLDS:
        for test in probit.TESTS:
            part = stored[index].assign(row=row, test=test)
            for name in METHODS:
                part[name] = stored[f"{name}_{row}_{test}{reference}"]
            parts.append(part)
    return pd.concat(parts).set_index([*index, "row", "test"])


def summary(stored: pd.DataFrame, reference: str = "") -> pd.DataFrame:
    """Means and standard errors over repetitions, of regrets and of their differences to EP."""
    long = regrets(stored, reference)
    regret, over = (
        frame.groupby(["row", "test"], sort=False) for frame in (long, long.sub(long["ep"], axis=0))
    )
    found = {"mean": regret.mean(), "error": regret.sem()}
    return pd.concat(found | {"over": over.mean(), "over_error": over.sem()}, axis=1)
