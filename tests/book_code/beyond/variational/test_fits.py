"""The variational Gaussian on the toys: the truth on a grid, and how it is compared."""

import math

import pandas as pd
import pytest
import torch

from bayesloss import ISGP, Gaussian, TrigonometricKernel
from bayesloss_book.beyond.variational import fits
from bayesloss_book.problems.source_problems import grid


def test_evidence_on_the_grid_against_monte_carlo():
    prior = ISGP(TrigonometricKernel(a=2.0, c=0.25, n_basis=2))
    x = torch.tensor([-0.7, 0.1, 0.8], dtype=torch.float64)
    y = torch.tensor([-0.4, 0.3, 0.9], dtype=torch.float64)
    nu = prior.source(x, prior.sample(400_000, torch.Generator().manual_seed(0)))
    density = torch.distributions.Normal(nu, 0.5).log_prob(y).sum(dim=1).exp()
    error = float(density.std() / density.mean()) / math.sqrt(len(density))
    found = fits.grid_evidence(prior, Gaussian(4.0), x, y)
    assert found == pytest.approx(math.log(float(density.mean())), abs=4 * error)


def test_compare_in_exact_standard_deviations():
    places = range(len(grid()))
    problem = {"task": "regression", "n": 10, "seed": 0}
    exact = {**problem, "importance": -3.0, "annealed": -2.5, "loss": 0.5}
    exact["importance_share"] = 0.2
    exact |= {f"mean_{i}": float(i) for i in places} | {f"sd_{i}": 2.0 for i in places}
    fit = {**problem, "method": "normal", "evidence": -3.5, "bound": -4.0, "loss": 0.6}
    fit |= {f"mean_{i}": i + 1.0 for i in places} | {f"sd_{i}": 1.0 for i in places}
    fit["process_seconds"] = 0.1
    row = fits.compare(pd.DataFrame([fit]), pd.DataFrame([exact])).iloc[0]
    assert row["shift"] == pytest.approx(0.5) and row["width"] == pytest.approx(0.5)
    assert row["gap"] == pytest.approx(0.5) and row["gap_bound"] == pytest.approx(1.0)
    assert row["millinats"] == pytest.approx(100)


def test_the_larger_estimate_where_importance_sampling_is_poor():
    exact = pd.DataFrame(
        {"importance": [-3.0, -3.0], "annealed": [-2.5, -3.5], "importance_share": [0.01, 0.01]}
    )
    assert fits.log_evidence(exact).tolist() == [-2.5, -3.0]
    assert fits.log_evidence(exact.assign(importance_share=0.1)).tolist() == [-3.0, -3.0]
