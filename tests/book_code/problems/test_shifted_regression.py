"""The shared problem of covariate shift: its least divergence by another route."""

import numpy as np
import pytest

from bayesloss_book.problems import shifted_regression as shared


def test_least_divergence():
    """By NumPy's least squares on a grid of the test distribution."""
    problem = shared.covariate_shift(1, n=30, k=3)
    model = problem.model
    grid = np.linspace(-1, 5, 2001)
    density = np.exp(-0.5 * ((grid - problem.shift) / shared.DEVIATION) ** 2)

    def kernel(inputs):
        return np.exp(-0.5 * shared.SMOOTHNESS * (grid[:, None] - inputs.numpy()) ** 2)

    noisy = model.K.numpy() + shared.NOISE * np.eye(30)
    mean = kernel(model.x) @ np.linalg.solve(noisy, model.y.numpy())
    rows = kernel(model.x[problem.support])

    root = np.sqrt(density / density.sum())
    least = np.linalg.lstsq(root[:, None] * rows, root * mean, rcond=None)[1][0]
    # The farthest function is 1e-6 of the nearest there: 40 nodes see its tail to three digits.
    assert problem.least == pytest.approx(least, rel=2e-3)


def test_support_does_not_know_the_shift():
    near, far = (shared.covariate_shift(0, shift=shift) for shift in (0.0, 3.0))
    assert near.support == far.support and near.model.y.equal(far.model.y)
