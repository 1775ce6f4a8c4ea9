"""SciPy's minimisers on functions of tensors, against minima in closed form."""

import math

import numpy as np
import pytest
import torch

from bayesloss.optimise import differentiated, minimise

CENTRE = torch.tensor([0.7, -1.3], dtype=torch.float64)
H = torch.tensor([[9.0, 2.0], [2.0, 4.0]], dtype=torch.float64)


def bowl(point):
    return 0.5 * (point - CENTRE) @ H @ (point - CENTRE) + 3.0


def test_the_minimum_of_a_bowl():
    start = torch.zeros(2, dtype=torch.float64)
    found = minimise(differentiated(bowl), start, options={"ftol": 0, "gtol": 1e-9})
    np.testing.assert_allclose(found.x, CENTRE, rtol=0, atol=1e-6)
    assert found.success
    assert found.fun == pytest.approx(3.0)
    assert np.abs(found.jac).max() < 1e-5
    assert not start.any()  # what is given stays


def test_within_bounds():
    """Where the second coordinate may not fall below -1 the first one follows, by H's first row."""
    bounds = torch.tensor([[-5.0, 5.0], [-1.0, math.inf]], dtype=torch.float64)
    found = minimise(
        differentiated(bowl), torch.zeros(2, dtype=torch.float64), bounds=bounds, options={}
    )
    expected = torch.tensor([0.7 - 2 * 0.3 / 9, -1.0], dtype=torch.float64)
    np.testing.assert_allclose(found.x, expected, rtol=0, atol=1e-5)


def test_it_turns_back_where_there_is_no_value():
    def with_a_cliff(point):
        value, gradient = differentiated(bowl)(point)
        return (math.inf if point[0] > 1 else value), gradient

    found = minimise(with_a_cliff, torch.tensor([-30.0, 20.0], dtype=torch.float64), options={})
    np.testing.assert_allclose(found.x, CENTRE, rtol=0, atol=1e-4)


def test_it_turns_back_where_value_and_slope_are_infinite():
    """The first step from 0 ends at the pole of -log(1 - x) - 3 x, whose minimum is at 2/3."""
    barrier = differentiated(lambda point: -(1 - point[0]).log() - 3 * point[0])
    start = torch.zeros(1, dtype=torch.float64)
    assert math.isinf(barrier(start + 1)[0])
    found = minimise(barrier, start, options={})
    assert found.success
    np.testing.assert_allclose(found.x, 2 / 3, rtol=0, atol=1e-5)


def test_it_turns_back_where_value_and_slope_are_not_defined():
    """From -5 the first step ends beyond the pole of -log(1 - x) - 50 x, whose minimum is .98."""
    barrier = differentiated(lambda point: -(1 - point[0]).log() - 50 * point[0])
    start = torch.full((1,), -5.0, dtype=torch.float64)
    assert math.isnan(barrier(start + 10)[0])
    found = minimise(barrier, start, options={})
    assert found.success
    np.testing.assert_allclose(found.x, 0.98, rtol=0, atol=1e-5)


def test_steps_that_are_too_few_are_told():
    found = minimise(differentiated(bowl), CENTRE + 9, options={"maxiter": 1})
    assert not found.success
    assert "ITERATIONS" in found.message


def test_from_the_inverse_hessian_a_bowl_takes_one_step():
    """Newton's, and one after rounding; more from the identity. Rounding makes it asymmetric."""
    inverse = torch.linalg.inv(H).numpy()
    inverse[0, 1] *= 1 + 1e-12
    start = torch.zeros(2, dtype=torch.float64)
    found = minimise(differentiated(bowl), start, inverse_hessian=inverse, options={})
    assert found.success
    blind = minimise(differentiated(bowl), start, inverse_hessian=np.eye(2), options={})
    assert found.nfev <= 3 < blind.nfev
    np.testing.assert_allclose(found.x, CENTRE, rtol=0, atol=1e-9)
