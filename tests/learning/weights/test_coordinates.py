"""Tests of coordinates of weights against matrices written out."""

import math

import numpy as np
import pytest
import torch

from bayesloss.learning.weights.linear_scores import LinearScores


def weights_of(data, coordinates):
    return data.coordinates.weights(coordinates, data.n_joint)


def slopes_of(data, gradient):
    return data.coordinates.slopes(gradient, data.n_joint)


def levels_of(data):
    """What the coordinates expect of the problems' mean curvatures."""
    return data.coordinates.offset_scale[:, 0] ** -2


def test_coordinates_make_all_directions_alike(problem):
    data = problem(n=400)
    centred = data.inputs.Z - data.centre
    covariance = centred.T @ (centred * (data.weight / data.total)[:, None])
    curvature = data.coordinates.level * covariance + data.ridge * torch.eye(5, dtype=torch.float64)
    for k in range(3):
        units = torch.zeros((5, 3, 6), dtype=torch.float64)
        units[:, k, :5] = torch.eye(5, dtype=torch.float64)
        P = torch.stack([weights_of(data, unit)[k, :5] for unit in units], dim=1)
        adjoint = torch.stack([slopes_of(data, unit)[k, :5] for unit in units])
        torch.testing.assert_close(P, adjoint, rtol=1e-12, atol=0)
        identity = torch.eye(5, dtype=torch.float64) * data.coordinates.level / levels_of(data)[k]
        torch.testing.assert_close(P.T @ curvature @ P, identity, rtol=0, atol=1e-8)


@pytest.mark.parametrize("joined", [False, True])
def test_coordinates_of_each_problem(problem, joined):
    """The way back along slopes is the adjoint; and in them the Hessians are the identity."""
    data = problem()
    generator = torch.Generator().manual_seed(0)
    rows = 4 if joined else 3
    curvature = torch.rand((rows, 200), dtype=torch.float64, generator=generator)
    data = (data.joined() if joined else data).adapted(curvature)
    x = torch.randn((2 * rows, 6), dtype=torch.float64, generator=generator)
    g = torch.randn((6, 6), dtype=torch.float64, generator=generator)
    there = (weights_of(data, x) * g).sum()
    back = (x * slopes_of(data, g)).sum()
    torch.testing.assert_close(there, back, rtol=1e-10, atol=0)
    inputs = torch.cat(
        [data.inputs.Z - data.centre, torch.ones((200, 1), dtype=torch.float64)], dim=1
    )
    penalty = torch.diag(torch.tensor([data.ridge] * 5 + [0.0], dtype=torch.float64))
    for k in range(rows):
        units = torch.zeros((6, rows, 6), dtype=torch.float64)
        units[:, k] = torch.eye(6, dtype=torch.float64)
        moved = torch.stack([weights_of(data, unit) for unit in units], dim=2)
        if joined and k < 3:  # less what all classes would have in common
            own = moved[k] * 3 / 2
            torch.testing.assert_close(moved.sum(0), 0 * own, rtol=0, atol=1e-12)
        else:
            own = math.sqrt(3) * moved[0] if joined else moved[k]
        weighed = inputs * (data.weight / data.total * curvature[k])[:, None]
        H = own.T @ (inputs.T @ weighed + penalty) @ own
        torch.testing.assert_close(H, torch.eye(6).double(), rtol=0, atol=1e-5)  # offset + 1e-6


def test_curvatures_are_expected_where_nothing_is_learned(problem):
    """The level: p (1 - p) / 4, p the share of ones by weight, and 1e-6 for one label alone."""
    data = problem()
    labels = torch.cat([data.labels, torch.ones_like(data.labels[:1])])
    data = LinearScores.of(data.inputs.Z, labels, data.weight, 0.7)
    p = np.average(labels.numpy(), axis=1, weights=data.weight.numpy())
    np.testing.assert_allclose(levels_of(data), [*(p * (1 - p) / 4)[:3], 1e-6], rtol=1e-12)


def test_where_no_datum_tells_anything_coordinates_stay_finite(problem):
    """Without curvature the penalty alone is left, and 1e-6 for the offset."""
    data = problem().adapted(torch.zeros((3, 200), dtype=torch.float64))
    moved = weights_of(data, torch.eye(6, dtype=torch.float64).repeat_interleave(3, 0))
    expected = torch.diag(torch.tensor([data.ridge**-0.5] * 5 + [1e3], dtype=torch.float64))
    for k in range(3):
        torch.testing.assert_close(moved[k::3].abs(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("own", [False, True])
def test_some_of_the_problems(problem, own):
    data = problem()
    if own:
        curvature = torch.rand((3, 200), dtype=torch.float64, generator=torch.Generator())
        data = data.adapted(curvature)
    x = torch.randn((3, 6), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    some = data.only([2, 0])
    torch.testing.assert_close(
        weights_of(some, x[[2, 0]]), weights_of(data, x)[[2, 0]], rtol=0, atol=0
    )
    assert torch.equal(some.labels, data.labels[[2, 0]])
    assert data.only([0, 1, 2]) is data
