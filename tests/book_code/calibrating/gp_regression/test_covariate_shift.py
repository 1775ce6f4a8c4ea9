import numpy as np
import pytest

from bayesloss_book.calibrating.gp_regression import covariate_shift as page
from bayesloss_book.models.sparse_means import sparse_mean_calibrated
from bayesloss_book.problems.shifted_regression import NOISE, SMOOTHNESS

PROBLEM = page.covariate_shift(2, n=40, k=5)


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


def test_routes_end_at_the_least_divergence():
    by_cg = page.routes_by_cg(PROBLEM, [1, 40])
    by_support = page.routes_by_support(PROBLEM, [5, 40])
    assert by_cg.loc[1, "excess"] > 2 and by_support[5] > 1.1
    assert by_cg.loc[40, "excess"] == pytest.approx(1, abs=1e-4)
    assert by_support[40] == pytest.approx(1, abs=1e-4)
    assert bool((by_cg["excess"] <= by_cg["bound"] + 1e-9).all())
    best = sparse_mean_calibrated(PROBLEM.model, PROBLEM.support, PROBLEM.points, PROBLEM.weights)
    assert page.excess(PROBLEM, best) == pytest.approx(1)
