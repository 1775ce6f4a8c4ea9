"""Covariate shift: the tables say what the definitions give."""

import numpy as np
import pytest
import torch

from bayesloss_book.calibrating.gp_regression import covariate_shift as page
from bayesloss_book.shifted_regression import NOISE, SMOOTHNESS
from bayesloss_book.sparse_means import sparse_mean_calibrated

PROBLEM = page.covariate_shift(2, n=40, k=5)


def test_data_are_sorted_and_reproducible():
    again = page.covariate_shift(2, n=40, k=5)
    assert torch.equal(PROBLEM.model.y, again.model.y)
    assert bool((PROBLEM.model.x.diff() > 0).all())
    assert PROBLEM.support == [0, 10, 20, 29, 39]
    mean = float(PROBLEM.weights @ PROBLEM.points)
    spread = float(PROBLEM.weights @ (PROBLEM.points - mean) ** 2)
    assert (mean, spread) == pytest.approx((2.0, page.DEVIATION**2))


def test_risks_are_mean_squared_errors_under_the_posterior():
    """By draws of the process at the test inputs, which use no theta."""
    table = page.risks(PROBLEM)
    x, y, points = (v.numpy() for v in (PROBLEM.model.x, PROBLEM.model.y, PROBLEM.points))

    def kernel(a, b):
        return np.exp(-0.5 * SMOOTHNESS * (a[:, None] - b) ** 2)

    noisy = kernel(x, x) + NOISE * np.eye(len(x))
    mean = kernel(points, x) @ np.linalg.solve(noisy, y)
    spread = 1 - np.einsum("ij,ji->i", kernel(points, x), np.linalg.solve(noisy, kernel(x, points)))
    weights = PROBLEM.weights.numpy()
    assert table.loc["posterior mean", "posterior risk"] == pytest.approx(weights @ spread + NOISE)
    for name, sparse in page.sparse_means(PROBLEM).items():
        gap = kernel(points, x[PROBLEM.support]) @ sparse.numpy() - mean
        assert table.loc[name, "d_L"] == pytest.approx(weights @ gap**2, rel=1e-6)
        risk = weights @ (spread + NOISE + gap**2)
        assert table.loc[name, "posterior risk"] == pytest.approx(risk)
        # KL by its fit of the data, up to a constant that both means share.
        fit = y - kernel(x, x[PROBLEM.support]) @ sparse.numpy()
        inner = kernel(x[PROBLEM.support], x[PROBLEM.support])
        cost = fit @ fit / (2 * NOISE) + sparse.numpy() @ inner @ sparse.numpy() / 2
        least = y @ np.linalg.solve(noisy, y) / 2
        assert table.loc[name, "KL"] == pytest.approx(cost - least, rel=1e-6)


def test_each_is_best_by_its_own_measure():
    table = page.risks(PROBLEM)
    assert table["d_L"].drop("posterior mean").idxmin() == "min d_L"
    assert table["KL"].drop("posterior mean").idxmin() == "min KL"


def test_sweep_averages_the_risks():
    one = page.risks(page.covariate_shift(0, shift=1.0))["d_L"]
    two = page.risks(page.covariate_shift(1, shift=1.0))["d_L"]
    table = page.sweep([1.0], [0, 1])
    for name in ("min KL", "min d_L"):
        assert table.loc[1.0, name] == pytest.approx((one[name] + two[name]) / 2)


def test_routes_end_at_the_least_divergence():
    by_cg = page.routes_by_cg(PROBLEM, [1, 40])
    by_support = page.routes_by_support(PROBLEM, [5, 40])
    assert by_cg.loc[1, "excess"] > 2 and by_support[5] > 1.1
    assert by_cg.loc[40, "excess"] == pytest.approx(1, abs=1e-4)
    assert by_support[40] == pytest.approx(1, abs=1e-4)
    assert bool((by_cg["excess"] <= by_cg["bound"] + 1e-9).all())
    best = sparse_mean_calibrated(PROBLEM.model, PROBLEM.support, PROBLEM.points, PROBLEM.weights)
    assert page.excess(PROBLEM, best) == pytest.approx(1)


def test_samples_need_a_little_kl():
    table = page.routes_by_samples(PROBLEM, [10, 300], n_repeats=5, seed=0)
    assert bool((table["with a little KL"] < table["d_L alone"]).all())
    assert table.loc[300, "with a little KL"] < table.loc[10, "with a little KL"]
    again = page.routes_by_samples(PROBLEM, [10, 300], n_repeats=5, seed=0)
    assert table.equals(again)
