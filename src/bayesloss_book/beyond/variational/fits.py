"""Laplace's and the variational Gaussian on the 24 toy problems whose exact posterior is stored."""

import math
import time
from typing import Any

import numpy as np
import pandas as pd
import torch

from bayesloss.learning.evidence.variational import variational
from bayesloss.learning.inference.laplace import laplace
from bayesloss.learning.inference.likelihoods import Bernoulli, Gaussian
from bayesloss.learning.sources.priors import ISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book.problems.source_problems import cells as problems
from bayesloss_book.problems.source_problems import data_set, grid, log_loss, prior_and_likelihood
from bayesloss_book.references.gaussian_bounds import best_gaussian
from paperledger.stores.results import runs

METHODS = {
    "laplace": "Laplace",
    "exact": "variational",
    "normal": "variational, as if ν were normal",
    "bound": "variational, by Jaakkola and Jordan's bound",
}
_SHARE = 0.05
_TIMES = 3  # of which the fastest counts


def measure(*, task: str, n: int, seed: int, method: str, n_basis: int) -> dict[str, float]:
    """Fit one problem by one method.

    ``evidence``: Laplace's approximation, or L of the variational Gaussian; ``bound``: what is
    certainly a lower bound. ``process_seconds``: of the whole inference. ``n_iter``, ``converged``.
    ``loss``: of 2000 new data, in nats a datum. ``mean_i``, ``sd_i``: of nu at the i-th point of
    the grid.
    """
    prior, likelihood = prior_and_likelihood(task, n_basis)
    x, y = data_set(task, n, seed)
    seconds = math.inf
    for _ in range(_TIMES):
        begin = time.process_time()
        if method == "laplace":
            posterior = laplace(prior, likelihood, x, y)
        else:
            posterior = best_gaussian(method, prior, likelihood, x, y)
        seconds = min(seconds, time.process_time() - begin)
    mean, variance = posterior.moments(grid())
    new_x, new_y = data_set(task, 2000, 10_000 + seed)
    draws = posterior.sample(1000, torch.Generator().manual_seed(seed))
    return {
        "evidence": posterior.log_evidence,
        "bound": posterior.evidence_bound,
        "process_seconds": seconds,
        "n_iter": posterior.n_iter,
        "converged": int(posterior.converged),
        "loss": log_loss(prior.source(new_x, draws), new_y, likelihood),
        **{f"mean_{i}": float(value) for i, value in enumerate(mean)},
        **{f"sd_{i}": float(value) for i, value in enumerate(variance.sqrt())},
    }


def cells() -> list[dict[str, Any]]:
    """Every problem by every method; with Gaussian noise all variational ones are "normal"."""
    return [
        {**problem, "method": method}
        for problem in problems()
        for method in METHODS
        if method in ("laplace", "normal") or problem["task"] == "classification"
    ]


def compare(fits: pd.DataFrame, exact: pd.DataFrame) -> pd.DataFrame:
    """Each fit against the exact posterior of its problem, both as stored.

    ``shift``, the root mean square error of nu's mean in exact deviations; ``width``, the geometric
    mean of deviations over the exact; ``gap`` of the evidence and ``gap_bound``, in nats;
    ``millinats`` by which log loss exceeds the exact posterior's; ``process_seconds``.
    """
    keys = ["task", "n", "seed"]
    both = fits.merge(exact, on=keys, suffixes=("", "_exact"))
    mean, sd, true_mean, true_sd = (
        both[[f"{name}_{i}{end}" for i in range(len(grid()))]].to_numpy()
        for end in ("", "_exact")
        for name in ("mean", "sd")
    )
    found = both[[*keys, "method", "process_seconds"]].copy()
    found["shift"] = np.sqrt((((mean - true_mean) / true_sd) ** 2).mean(axis=1))
    found["width"] = np.exp(np.log(sd / true_sd).mean(axis=1))
    found["gap"] = log_evidence(both) - both["evidence"]
    found["gap_bound"] = log_evidence(both) - both["bound"]
    found["millinats"] = 1e3 * (both["loss"] - both["loss_exact"])
    return found.set_index([*keys, "method"])


def by_name(table: pd.DataFrame) -> pd.DataFrame:
    """The table with "normal" called "exact" where noise is Gaussian: there both are one."""
    same = (table["task"] == "regression") & (table["method"] == "normal")
    return table.assign(method=table["method"].mask(same, "exact"))


def log_evidence(exact: pd.DataFrame) -> pd.Series:
    """By importance sampling, where its draws are worth something; else the larger estimate."""
    larger = exact[["importance", "annealed"]].max(axis=1)
    return exact["importance"].where(exact["importance_share"] >= _SHARE, larger)


def small_problems(task: str, sizes: tuple[int, ...], seed: int) -> pd.DataFrame:
    """Two basis functions, where the evidence is known: what each method says less the truth."""
    prior = ISGP(TrigonometricKernel(a=2.0, c=0.25, n_basis=2))
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(max(sizes), dtype=torch.float64, generator=generator) - 1
    likelihood: Gaussian | Bernoulli
    if task == "regression":
        noise = torch.randn(len(x), dtype=torch.float64, generator=generator)
        y = torch.tanh(1.5 * x) + 0.5 * noise
        likelihood = Gaussian(4.0)
    else:
        uniform = torch.rand(len(x), dtype=torch.float64, generator=generator)
        y = (uniform < torch.sigmoid(3 * x - 0.5)).double()
        likelihood = Bernoulli()
    rows = {}
    for n in sizes:
        data = x[:n], y[:n]
        truth = grid_evidence(prior, likelihood, *data)
        by_laplace = laplace(prior, likelihood, *data)
        rows[n] = {
            "Laplace": by_laplace.log_evidence - truth,
            "Laplace's bound": by_laplace.evidence_bound - truth,
            "variational": variational(prior, likelihood, *data).log_evidence - truth,
        }
        others = {"as if ν were normal": "normal", "Jaakkola and Jordan": "bound"}
        for name, method in others.items() if task == "classification" else ():
            other = best_gaussian(method, prior, likelihood, *data)
            rows[n][name] = other.log_evidence - truth
    return pd.DataFrame(rows).T.rename_axis("n")


def grid_evidence(
    prior: ISGP, likelihood: Gaussian | Bernoulli, x: torch.Tensor, y: torch.Tensor, half: int = 60
) -> float:
    """The log evidence of two weights and an intercept, by the trapezoidal rule in all three."""
    axis = torch.linspace(-6.5, 6.5, 2 * half + 1, dtype=torch.float64)  # prior deviations
    plane = torch.cartesian_prod(axis[half:], axis)  # -w gives the same: half of them will do
    share = torch.where(plane[:, 0].abs() < 1e-9, 0.5, 1.0).to(torch.float64).log() + math.log(2)
    data = likelihood.condense(prior.features, x, y)
    scale = prior.precision.rsqrt()
    zero = torch.cat([plane, torch.zeros((len(plane), 1), dtype=torch.float64)], dim=1)
    rise = prior.coefficients(zero * scale) @ data.features.T
    total = []
    for level in axis:
        nu = rise + (prior.mu + scale[-1] * level) * data.features[:, -1]
        if isinstance(likelihood, Gaussian):
            constant = 0.5 * len(y) * math.log(float(likelihood.alpha) / (2 * math.pi))
            fit = constant - 0.5 * likelihood.alpha * ((nu - data.targets) ** 2).sum(dim=1)
        else:
            fit = torch.nn.functional.logsigmoid((2 * data.targets - 1) * nu).sum(dim=1)
        log_prior = -0.5 * ((plane**2).sum(dim=1) + level**2) - 1.5 * math.log(2 * math.pi)
        total.append(torch.logsumexp(fit + log_prior + share, 0))
    return float(torch.logsumexp(torch.stack(total), 0)) + 3 * math.log(float(axis[1] - axis[0]))


run = runs(measure, cells, "variational_fits", n_basis=64)
