"""Sparse means of a Gaussian process under covariate shift (LHG section 4.1)."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss_book.models.sparse_means import (
    mean_by_cg,
    on_all,
    sparse_mean_calibrated,
    sparse_mean_kl,
)
from bayesloss_book.problems.shifted_regression import (
    DEVIATION,
    ShiftedProblem,
    covariate_shift,
    equal_ranks,
)


def sparse_means(problem: ShiftedProblem) -> dict[str, Tensor]:
    """The two sparse means, each of shape (k,)."""
    least_kl = sparse_mean_kl(problem.model, problem.support)
    return {"min KL": least_kl, "min d_L": problem.fitted()}


def risks(problem: ShiftedProblem) -> pd.DataFrame:
    """Each decision's posterior risk, its excess d_L and its excess KL over the posterior mean."""
    model = problem.model
    cross = model.kernel(problem.points, model.x)
    noisy = model.K + model.noise_variance * torch.eye(len(model.y), dtype=torch.float64)
    explained = (cross * torch.linalg.solve(noisy, cross.T).T).sum(dim=1)
    spread = model.noise_variance + model.kernel.b - explained  # needs no inverse of K
    least = float(problem.weights @ spread)
    rows = {"posterior mean": {"posterior risk": least, "d_L": 0.0, "KL": 0.0}}
    for name, mean in sparse_means(problem).items():
        gap = on_all(model, problem.support, mean) - model.mean
        d_L = problem.divergence(mean)
        kl = 0.5 * float(gap @ model.precision @ gap)
        rows[name] = {"posterior risk": least + d_L, "d_L": d_L, "KL": kl}
    return pd.DataFrame(rows).T


def sweep(shifts: Sequence[float], seeds: Sequence[int]) -> pd.DataFrame:
    """d_L of the two sparse means, averaged over data sets, for several test distributions."""
    rows = {}
    for shift in shifts:
        tables = [risks(covariate_shift(seed, shift=shift))["d_L"] for seed in seeds]
        rows[shift] = {name: np.mean([t[name] for t in tables]) for name in ("min KL", "min d_L")}
    return pd.DataFrame(rows).T.rename_axis("shift")


def excess(problem: ShiftedProblem, mean: Tensor) -> float:
    """d_L of a sparse mean, as a multiple of the least that is possible on its support."""
    return problem.divergence(mean) / problem.least


def routes_by_cg(problem: ShiftedProblem, iterations: Sequence[int]) -> pd.DataFrame:
    """What so many iterations of conjugate gradients give in place of the exact solve."""
    model = problem.model
    rows = {}
    for t in iterations:
        # Unfinished is what is asked for.
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            solved = mean_by_cg(model, rtol=1e-12, max_iter=t).mean
        sparse = problem.fitted(model.action(problem.points, solved))
        off = float(model.divergence(solved, problem.points, problem.weights))
        rows[t] = {"excess": excess(problem, sparse), "bound": 1 + off / problem.least}
    return pd.DataFrame(rows).T.rename_axis("iterations")


def routes_by_support(problem: ShiftedProblem, sizes: Sequence[int]) -> pd.Series:
    """The excess when the KL solution on a larger support stands for the posterior mean."""
    model = problem.model
    found = {}
    for size in sizes:
        larger = equal_ranks(len(model.y), size)
        target = model.action(problem.points, sparse_mean_kl(model, larger), larger)
        found[size] = excess(problem, problem.fitted(target))
    return pd.Series(found).rename_axis("size")


def routes_by_samples(
    problem: ShiftedProblem, sizes: Sequence[int], *, n_repeats: int, seed: int, share: float = 0.1
) -> pd.DataFrame:
    """The median excess when m samples stand for the test distribution."""
    generator = torch.Generator().manual_seed(seed)
    model = problem.model
    rows = {}
    for m in sizes:
        values = []
        for _ in range(n_repeats):
            draws = torch.randn(m, dtype=torch.float64, generator=generator)
            points = problem.shift + DEVIATION * draws
            means = (
                sparse_mean_calibrated(model, problem.support, points, kl_weight=weight)
                for weight in (0.0, share * model.noise_variance / m)
            )
            values.append([excess(problem, mean) for mean in means])
        medians = np.median(values, axis=0)
        rows[m] = dict(zip(("d_L alone", "with a little KL"), medians, strict=True))
    return pd.DataFrame(rows).T.rename_axis("samples")
