r"""Decisions on 10 to 1,000 targets together, on the data of LHG's Table 4.

A cell is a kernel and a repetition. Each method is a set of joint draws of the labels, from which
:func:`~bayesloss.decide_together` chooses; it is judged by long chains that no method has seen, as
is the choice by other chains, from which regrets are counted. Utilities lie between 0 and 1:

* ``budget``: the share of positives among a fifth of the targets, which is to be chosen;
* ``f``: the F-measure of what is chosen;
* ``saturating``: 1 less the wrong decisions, as a share of a fifth of the targets, at least 0;
* ``any``: 1 if no decision is wrong (of ten targets).

A method ``..._alone`` has the same marginals but no dependence: each target's draws are permuted.
``loss_em`` is LHG's Table 3 without approximations: the posterior's draws, weighted with the mean
utility of the last decisions until these stay.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesloss.calibrating.decide_together import JointDecision, Utility, decide_together, f_measure
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.laplace import laplace_probit
from bayesloss.calibrating.probit.whitened_gp import GaussianWeights, WhitenedGP
from bayesloss_book.references.probit_references import (
    TESTS,
    draw_data,
    importance_points,
    whitened_chains,
)
from paperledger.stores.results import runs

METHODS = {
    "laplace": "Laplace",
    "ep": "EP",
    "ep_alone": "EP, target by target",
    "exact": "weighted draws",
    "exact_alone": "weighted draws, target by target",
    "loss_em": "loss-EM, by draws",
}
UTILITIES = {
    "budget": "a budget",
    "f": "F-measure",
    "saturating": "costs that saturate",
    "any": "any error costs",
}
KERNELS = ((0.3, 3.0), (0.15, 3.0), (0.5, 3.0), (0.3, 1.5), (0.3, 6.0))
PAPER = {"n_sets": 8, "n_draws": 512, "n_labels": 4}
SIZES = (10, 100, 1000)
INPUTS = {"u_00_10": "among the data", "u_05_15": "beyond them"}  # of LHG's tests


def utility_of(name: str, m: int) -> tuple[Utility, int | None]:
    """A utility of m targets between 0 and 1, and how many of them have to be chosen."""
    fifth = m // 5
    utilities: dict[str, Utility] = {
        "budget": lambda hits, chosen, positives: hits / fifth,
        "f": f_measure,
        "saturating": lambda hits, chosen, positives: (
            1 - np.minimum(chosen + positives - 2 * hits, fifth) / fifth
        ),
        "any": lambda hits, chosen, positives: np.where(chosen + positives == 2 * hits, 1.0, 0.0),
    }
    return utilities[name], fifth if name == "budget" else None


def cases(m: int) -> list[str]:
    """The utilities that are tried on m targets: that all are right is hopeless for many."""
    return [name for name in UTILITIES if name != "any" or m == min(SIZES)]


def weighted_draws(prior: WhitenedGP, y: Tensor, ep: GaussianWeights, n: int, seed: int) -> Tensor:
    """Draws (sets, n, r) from the posterior: weighted points, resampled evenly."""
    z, share = importance_points(prior, y, ep, n_draws=16 * n, seed=seed)
    levels = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    chosen = torch.searchsorted(share.cumsum(-1).clamp(max=1.0), levels.expand(len(y), -1).clone())
    return torch.take_along_dim(z, chosen.clamp(max=z.shape[1] - 1)[..., None], 1)


def chains(prior: WhitenedGP, y: Tensor, laplace: GaussianWeights, n: int, seed: int) -> Tensor:
    """Draws (4, n, sets, r) of four long chains: the truth."""
    points, root = whitened_chains(prior, y, laplace, n_chains=4, n_draws=n, seed=seed)
    return (laplace.mean + (root @ points[..., None]).squeeze(-1)).transpose(0, 1)


def data_set(prior: WhitenedGP, j: int) -> WhitenedGP:
    """The prior at the inputs of one data set."""
    return WhitenedGP(prior.kernel, prior.inputs[j], prior.features[j], prior.basis[j])


def problems(
    prior: WhitenedGP, unit: Tensor, sizes: tuple[int, ...]
) -> Iterator[tuple[str, int, int, WhitenedGP, Tensor]]:
    """Each test, number of targets and data set, with its prior and the targets."""
    for test, m, j in product(INPUTS, sizes, range(len(prior.inputs))):
        yield test, m, j, data_set(prior, j), unit[list(TESTS).index(test), :m] + TESTS[test]


def worth(utility: Utility, labels: NDArray[Any], chosen: NDArray[Any]) -> NDArray[np.float64]:
    """The utility of a choice, for each draw of the labels."""
    hits = labels[:, chosen].sum(axis=1)
    positives = labels.sum(axis=1)
    return np.asarray(utility(hits, chosen.sum(), positives), dtype=np.float64)


def loss_em(labels: NDArray, n_labels: int, utility: Utility, k: int | None) -> JointDecision:
    """LHG's Table 3 by draws: ``n_labels`` rows in turn belong to one draw of the weights."""
    found = decide_together(labels, utility, k=k)
    for _ in range(20):
        chosen = found.chosen
        each = worth(utility, labels, chosen)
        weight = each.reshape(-1, n_labels).mean(axis=1).repeat(n_labels)  # LHG (11)
        if not weight.any():
            break
        found = decide_together(labels, utility, k=k, sample_weight=weight)
        if (found.chosen == chosen).all():
            break
    return found


def measure(
    *, repetition: int, n_sets: int, n_draws: int, n_labels: int, **kernel: float
) -> dict[str, float]:
    """Means over data sets of each method's utility less that of the chains' own choice.

    Keys are ``method/utility/m/test``, with ``/error`` the standard error over data sets, and
    ``.../gap``, how far the choice may be from the best one under the draws, by its bound.
    """
    prior, y, unit = draw_data(**kernel, n_sets=n_sets, n_test=max(SIZES), seed=repetition)
    generator = torch.Generator().manual_seed(repetition)
    laplace = laplace_probit(prior.features, y)
    ep = expectation_propagation(prior.features, y)
    long = chains(prior, y, laplace, n_draws, repetition)
    own, judge = (half.flatten(0, 1).transpose(0, 1) for half in long.split(2))
    z = {
        "laplace": laplace.sample(n_draws, generator),
        "ep": ep.sample(n_draws, generator),
        "exact": weighted_draws(prior, y, ep, n_draws, repetition),
        "own": own,
        "judge": judge,
    }
    rows: list[dict[str, Any]] = []
    for test, m, j, one, x in problems(prior, unit, SIZES):
        drawn = {
            name: one.draw_labels(each[j].repeat_interleave(n_labels, 0), x, generator).numpy()
            for name, each in z.items()
        }
        found = _all_methods(drawn, m, n_labels, np.random.default_rng([repetition, j, m]))
        rows += [row | {"m": m, "test": test} for row in found]
    out: dict[str, float] = {}
    for key, group in pd.DataFrame(rows).groupby(["method", "utility", "m", "test"]):
        name = "/".join(map(str, key))
        out[name] = float(group["regret"].mean())
        out[f"{name}/error"] = float(group["regret"].std() / len(group) ** 0.5)
        out[f"{name}/gap"] = float(group["gap"].mean())
    return out


def _all_methods(
    drawn: dict[str, NDArray], m: int, n_labels: int, chance: np.random.Generator
) -> list[dict[str, Any]]:
    judge = drawn.pop("judge")
    drawn |= {f"{name}_alone": chance.permuted(drawn[name], axis=0) for name in ("ep", "exact")}
    rows = []
    for name in cases(m):
        utility, k = utility_of(name, m)
        made = {method: decide_together(labels, utility, k=k) for method, labels in drawn.items()}
        made["loss_em"] = loss_em(drawn["exact"], n_labels, utility, k)
        of = {method: worth(utility, judge, each.chosen).mean() for method, each in made.items()}
        rows += [
            {
                "method": method,
                "utility": name,
                "regret": float(of["own"] - of[method]),
                "gap": made[method].bound - made[method].utility,
            }
            for method in METHODS
        ]
    return rows


def cells(n_repetitions: int = 2) -> list[dict[str, Any]]:
    """Repetitions at each kernel."""
    return [
        {"length_scale": length, "amplitude": height, "repetition": repetition}
        for repetition in range(n_repetitions)
        for length, height in KERNELS
    ]


def summary(stored: pd.DataFrame) -> pd.DataFrame:
    """Mean regret, its standard error over cells, and the mean gap, by all that they depend on."""
    names = [name for name in stored if name.count("/") == 3]
    index = pd.MultiIndex.from_tuples(
        [(*name.split("/")[1:], name.split("/")[0]) for name in names],
        names=["utility", "m", "test", "method"],
    )
    values = stored[names].set_axis(index, axis=1)
    gaps = stored[[f"{name}/gap" for name in names]].set_axis(index, axis=1)
    found = {"mean": values.mean(), "error": values.sem(), "gap": gaps.mean()}
    return pd.DataFrame(found).rename(index=int, level="m")


run = runs(measure, cells, "together", **PAPER)
