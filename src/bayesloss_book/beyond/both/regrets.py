"""What deciding by each approximation costs, when the link is learned: regrets by cost ratio.

A cell is a data set, a number of labels and a draw of them. The truth is the posterior over links,
by long chains of elliptical slice sampling; the prior and its parameters are the same for all.
"""

import math
from typing import Any

import numpy as np
import torch
from arviz_stats.base import array_stats  # type: ignore[attr-defined]
from scipy.stats import qmc
from torch import Tensor

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.learning.evidence.importance import log_ratios
from bayesloss.learning.evidence.variational import nearest
from bayesloss.learning.inference.laplace import approximate
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import Mode, find_mode
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss_book.beyond.both import tilted
from bayesloss_book.data.labelled_scores import DATA, N_BASIS, Problem, make_prior, problem
from bayesloss_book.problems.source_problems import whitened_log_likelihood
from bayesloss_book.references.probit_references import costs_at, excess_risk
from bayesloss_book.references.samplers import elliptical_slice_sampling
from paperledger.stores.results import runs

METHODS = {
    "mode": "the mode's link",
    "laplace": "Laplace",
    "table_3": "Table 3 by Laplace",
    "tilted": "Laplace with costs",
    "one_label": "one more label",
    "variational": "variational",
    "tilted_variational": "variational with costs",
    "weighted": "weighted draws",
}
RATIOS = {"1": 0.5, "4": 0.2, "19": 0.05, "49": 0.02}  # c_- / c_+, and the threshold
_NODES = 25  # scores at which a label is added; in between the log odds are interpolated


def gaussian_noise(n_draws: int = 4096) -> Tensor:
    """Quasi-random standard normal points of shape (n_draws, M + 1)."""
    sobol = qmc.MultivariateNormalQMC(np.zeros(N_BASIS + 1), rng=np.random.default_rng(0))
    return torch.from_numpy(np.asarray(sobol.random(n_draws)))


def chains(
    joint: LogJoint, targets: Tensor, *, n_chains: int, n_draws: int, seed: int
) -> tuple[Tensor, float, float]:
    """By chains: sigma(nu) at targets (chains, S), the worst R-hat and effective size of nu."""
    prior = joint.prior
    scale = joint.prior.precision.rsqrt()
    sizes = {"n_chains": n_chains, "n_draws": n_draws, "n_burn_in": n_draws // 4}
    z = elliptical_slice_sampling(whitened_log_likelihood(joint), len(scale), seed=seed, **sizes)
    coefficients = prior.coefficients(prior.location + z * scale)
    five = targets[torch.linspace(0, len(targets) - 1, 5).to(torch.int64)]
    nu = (coefficients @ five.T).permute(2, 0, 1).numpy()
    r_hat = array_stats.rhat(nu, chain_axis=1, draw_axis=2)
    size = array_stats.ess(nu, chain_axis=1, draw_axis=2)
    # Chain by chain: all draws at all targets would not fit in a small memory.
    p = torch.stack([torch.sigmoid(chain @ targets.T).mean(0) for chain in coefficients])
    return p, float(r_hat.max()), float(size.min())


def decisions(cut: int, n_targets: int) -> Tensor:
    """+1 from target number ``cut`` on, -1 before it, of shape (n_targets,)."""
    return torch.where(torch.arange(n_targets) >= cut, 1.0, -1.0).to(torch.float64)


def measure(*, data: str, n: int, seed: int, n_chains: int, n_draws: int) -> dict[str, float]:
    """All methods and costs on one draw of labels.

    ``method_ratio``: LHG (28), the regret under the chains' posterior, from 0 to 1.
    ``method_ratio_paid``: the mean cost on the targets as they turned out; that of deciding by the
    chains is ``chains_ratio_paid``. ``p_method``: the largest error of a probability. ``p_error``:
    the chains' own largest standard error. ``r_hat``, ``effective_size``. ``settled``: whether
    Table 3 ended at all costs. ``share``: what a weighted draw is worth, in independent draws from
    the posterior.
    """
    prior = make_prior()
    given = problem(data, n, seed)
    joint = tilted.labels_joint(prior, given.x, given.y)
    mode = find_mode(joint, prior.start(given.x))
    targets = prior.features(given.targets)
    noise = gaussian_noise()
    by_chain, r_hat, size = chains(joint, targets, n_chains=n_chains, n_draws=n_draws, seed=seed)
    exact = by_chain.mean(0)
    p, share = probabilities(given, joint, mode)
    out = {f"p_{name}": float((p[name] - exact).abs().max()) for name in p}
    out |= {
        "p_error": float((by_chain.std(0) / math.sqrt(n_chains)).max()),
        "r_hat": r_hat,
        "effective_size": size,
        "share": share,
    }
    settled = mode.converged
    for ratio, threshold in RATIOS.items():
        costs = costs_at(threshold)
        cut = {name: tilted.cut_of(p[name], costs) for name in p}
        cut["tilted"] = tilted.best_cut(joint, mode, targets, costs)
        cut["tilted_variational"] = tilted.best_cut(joint, mode, targets, costs, by_variation=True)
        cut["table_3"], ended = tilted.table_3(joint, mode, targets, costs, noise, cut["laplace"])
        settled &= ended
        for name in METHODS:
            h = decisions(cut[name], len(exact))
            out[f"{name}_{ratio}"] = float(excess_risk(h, exact, costs))
            out[f"{name}_{ratio}_paid"] = _paid(h, given.labels, costs)
        best = decisions(tilted.cut_of(exact, costs), len(exact))
        out[f"chains_{ratio}_paid"] = _paid(best, given.labels, costs)
    return out | {"settled": settled}


def probabilities(given: Problem, joint: LogJoint, mode: Mode) -> tuple[dict[str, Tensor], float]:
    """The probability of yes at the targets by each method that has one, and a draw's worth."""
    prior = joint.prior
    noise = gaussian_noise()
    targets = prior.features(given.targets)
    q, _ = nearest(joint, mode, with_laws=False)
    weights = torch.softmax(log_ratios(joint, q, noise), dim=0)
    p = {
        "mode": torch.sigmoid(targets @ prior.coefficients(mode.Gamma)),
        "laplace": tilted.mean_probability(
            approximate(joint, mode, with_bound=False), targets, noise
        ),
        "one_label": _interpolated(prior, given.x, given.y, mode, given.targets),
        "variational": tilted.mean_probability(q, targets, noise),
        "weighted": tilted.mean_probability(q, targets, noise, weights),
    }
    return p, float(1 / (weights**2).sum()) / len(weights)


def _interpolated(prior: SourcePrior, x: Tensor, y: Tensor, mode: Mode, targets: Tensor) -> Tensor:
    nodes = torch.linspace(float(targets[0]), float(targets[-1]), _NODES, dtype=torch.float64)
    log_odds = torch.logit(tilted.one_more_label(prior, x, y, mode, nodes))
    return torch.sigmoid(torch.from_numpy(np.interp(targets, nodes, log_odds)))


def _paid(h: Tensor, labels: Tensor, costs: CostMatrix) -> float:
    return float(torch.where(h > 0, costs.c_plus * (1 - labels), costs.c_minus * labels).mean())


def cells() -> list[dict[str, Any]]:
    """20 and 100 labels: eight draws of simulated links, four of each data set."""
    return [
        {"data": data, "n": n, "seed": seed}
        for seed in range(8)
        for data in DATA
        for n in (20, 100)
        if data == "simulated" or seed < 4
    ]


run = runs(measure, cells, "both", n_chains=96, n_draws=1500)
