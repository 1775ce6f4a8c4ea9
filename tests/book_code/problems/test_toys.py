"""The toys: their truths against other routes, and their noise."""

import math

import numpy as np
import pytest
import torch

from bayesloss_book.problems import toys


@pytest.mark.parametrize("truth", toys.TRUTHS)
def test_slope_is_the_derivative_and_never_negative(truth):
    data = toys.regression_problem(5, 0, truth)
    x = toys.grid().requires_grad_()
    (expected,) = torch.autograd.grad(data.source(x).sum(), x)
    torch.testing.assert_close(data.slope(x.detach()), expected, rtol=1e-12, atol=1e-14)
    assert (expected > 0).all()


def test_noise_and_range():
    data = toys.regression_problem(20_000, 0)
    residual = data.y - data.source(data.x)
    # Four standard errors of a standard deviation.
    assert float(residual.std()) == pytest.approx(
        toys.NOISE, abs=4 * toys.NOISE / math.sqrt(40_000)
    )
    assert float(data.x.abs().max()) <= toys.REACH
    assert float(data.x.abs().max()) > 0.99 * toys.REACH


@pytest.mark.parametrize("truth", toys.KNOTS)
def test_truth_interpolates_its_corners(truth):
    """NumPy's interpolation inside; increasing; the slope by automatic differentiation."""
    data = toys.classification_problem(1, 0, truth)
    corners = np.array(toys.KNOTS[truth])
    x = toys.grid(n=203).requires_grad_()
    nu = data.source(x)
    np.testing.assert_allclose(
        nu.detach(), np.interp(x.detach(), corners[:, 0], corners[:, 1]), atol=1e-12
    )
    (slope,) = torch.autograd.grad(nu.sum(), x)
    torch.testing.assert_close(data.slope(x.detach()), slope)
    assert (slope > 0).all()
    outside = data.source(torch.tensor([-60.0, 60.0], dtype=torch.float64))
    edges = data.slope(torch.tensor([-50.0, 50.0], dtype=torch.float64))
    np.testing.assert_allclose(
        outside, corners[[0, -1], 1] + [-10 * float(edges[0]), 10 * float(edges[1])]
    )


def test_labels_have_the_probabilities_of_the_truth():
    """The share of 1 in ten stretches, within four standard errors of the mean probability."""
    data = toys.classification_problem(40_000, 0)
    assert set(data.y.tolist()) == {0.0, 1.0}
    p = torch.sigmoid(data.source(data.x))
    for low in range(-50, 50, 10):
        here = (data.x >= low) & (data.x < low + 10)
        error = float((p[here] * (1 - p[here])).mean() / here.sum()) ** 0.5
        assert abs(float(data.y[here].mean() - p[here].mean())) < 4 * error
