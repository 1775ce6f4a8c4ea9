"""Tests of scores and their coordinates against matrices written out, and of rows drawn."""

import math

import numpy as np
import pytest
import torch

from bayesloss.learning.weights import linear_scores
from bayesloss.learning.weights.linear_scores import LinearScores, by_parts, sampled


def test_coordinates_make_all_directions_alike(problem):
    """In them the covariance of the inputs, times the level, plus the ridge is the identity."""
    data = problem(n=400)
    centred = data.Z - data.centre
    covariance = centred.T @ (centred * (data.weight / data.total)[:, None])
    curvature = data.level.mean() * covariance + data.ridge * torch.eye(5, dtype=torch.float64)
    for k in range(3):
        units = torch.zeros((5, 3, 6), dtype=torch.float64)
        units[:, k, :5] = torch.eye(5, dtype=torch.float64)
        P = torch.stack([data.weights(unit)[k, :5] for unit in units], dim=1)
        adjoint = torch.stack([data.slopes(unit)[k, :5] for unit in units])
        torch.testing.assert_close(P, adjoint, rtol=1e-12, atol=0)
        identity = torch.eye(5, dtype=torch.float64) * data.level.mean() / data.level[k]
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
    there, back = (data.weights(x) * g).sum(), (x * data.slopes(g)).sum()
    torch.testing.assert_close(there, back, rtol=1e-10, atol=0)
    inputs = torch.cat([data.Z - data.centre, torch.ones((200, 1), dtype=torch.float64)], dim=1)
    penalty = torch.diag(torch.tensor([data.ridge] * 5 + [0.0], dtype=torch.float64))
    for k in range(rows):
        units = torch.zeros((6, rows, 6), dtype=torch.float64)
        units[:, k] = torch.eye(6, dtype=torch.float64)
        moved = torch.stack([data.weights(unit) for unit in units], dim=2)
        if joined and k < 3:  # less what all classes would have in common
            own = moved[k] * 3 / 2
            torch.testing.assert_close(moved.sum(0), 0 * own, rtol=0, atol=1e-12)
        else:
            own = math.sqrt(3) * moved[0] if joined else moved[k]
        weighed = inputs * (data.weight / data.total * curvature[k])[:, None]
        H = own.T @ (inputs.T @ weighed + penalty) @ own
        torch.testing.assert_close(H, torch.eye(6).double(), rtol=0, atol=1e-5)  # offset + 1e-6


@pytest.mark.parametrize("shape", [(7,), (8,), (3, 5), (5, 16)])
def test_a_function_of_numbers_may_be_asked_by_parts(shape, monkeypatch):
    monkeypatch.setattr(linear_scores, "_PART", 8)
    x, generator = torch.randn(shape, dtype=torch.float64), torch.Generator().manual_seed(0)
    labels = torch.randint(2, shape, dtype=torch.int8, generator=generator)
    asked = []

    def function(x, labels):
        asked.append(x.numel())
        return x.exp() * labels, labels == 1

    values, ones = by_parts(function, x, labels)
    torch.testing.assert_close(values, x.exp() * labels, rtol=0, atol=0)
    torch.testing.assert_close(ones, labels == 1)
    assert sum(asked) == x.numel()
    assert len(asked) == 1 or max(asked) <= 8


def test_rows_are_drawn_in_proportion_and_stand_for_all():
    """By equal steps: each row within one of what it is to be drawn; sums have the right mean."""
    generator = np.random.default_rng(0)
    mass = generator.exponential(size=50) * (generator.random(50) < 0.8)
    for preference in (None, generator.uniform(0.2, 5, 50)):
        chance = mass * (1 if preference is None else preference)
        chance = chance / chance.sum()
        given = None if preference is None else torch.from_numpy(preference)
        rows, stands = (each.numpy() for each in sampled(torch.from_numpy(mass), 40, given))
        times = np.bincount(rows, minlength=50)
        assert np.all(np.abs(times - 40 * chance) < 1)
        assert len(rows) == 40
        assert not times[mass == 0].any()
        # What a row stands for, times how often it is expected, is its mass.
        np.testing.assert_allclose(stands * 40 * chance[rows], mass[rows], rtol=1e-12)
    rows, stands = sampled(torch.from_numpy(mass), 50)  # no fewer than there are: all
    assert rows.tolist() == list(range(50))
    np.testing.assert_array_equal(stands, mass)


def test_leverages_of_a_covariance(problem, monkeypatch):
    """From many random directions: four fifths of the exact ones by mean 1, and a fifth."""
    monkeypatch.setattr(linear_scores, "_GLANCES", 20_000)
    data = problem()
    z = (data.Z - data.centre).numpy()
    weight = (data.weight / data.total).numpy()
    covariance = float(data.level.mean()) * (z.T * weight) @ z + data.ridge * np.eye(5)
    exact = np.einsum("nd,de,ne->n", z, np.linalg.inv(covariance), z)
    # A share of a normal square's mean over 20,000 directions has standard error 0.01.
    np.testing.assert_allclose(data.leverages(), 0.8 * exact / exact.mean() + 0.2, rtol=0.05)
    moved = data.centred_on(torch.arange(len(z)) > 0)
    assert moved.leverages() is not data.leverages()  # made anew in other coordinates


@pytest.mark.parametrize("own", [False, True])
def test_some_of_the_problems(problem, own):
    """They keep the coordinates that they had among all."""
    data = problem()
    if own:
        curvature = torch.rand((3, 200), dtype=torch.float64, generator=torch.Generator())
        data = data.adapted(curvature)
    x = torch.randn((3, 6), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    some = data.of([2, 0])
    torch.testing.assert_close(some.weights(x[[2, 0]]), data.weights(x)[[2, 0]], rtol=0, atol=0)
    assert torch.equal(some.labels, data.labels[[2, 0]])
    assert data.of([0, 1, 2]) is data


def test_hessians_are_afforded_by_their_numbers(problem, monkeypatch):
    """K d^2 of them may be a quarter of the inputs' numbers, or so many whatever these are."""
    data = problem()  # 3 Hessians of 25 numbers, 1,000 in the inputs
    for spare, stored, afforded in [(75, 0, True), (74, 0, False), (0, 300, True), (0, 299, False)]:
        monkeypatch.setattr(linear_scores, "_SPARE", spare)
        monkeypatch.setattr(type(data.inputs), "stored", stored)
        assert data.adaptable is afforded
    monkeypatch.setattr(linear_scores, "_SPARE", 75)
    for wide, afforded in [(5, True), (4, False)]:
        monkeypatch.setattr(linear_scores, "_WIDE", wide)
        assert data.adaptable is afforded


def test_curvatures_are_expected_where_nothing_is_learned(problem):
    """The level: p (1 - p) / 4, p the share of ones by weight, and 1e-6 for one label alone."""
    data = problem()
    labels = torch.cat([data.labels, torch.ones_like(data.labels[:1])])
    data = LinearScores(data.Z, labels, data.weight, 0.7)
    p = np.average(labels.numpy(), axis=1, weights=data.weight.numpy())
    np.testing.assert_allclose(data.level, [*(p * (1 - p) / 4)[:3], 1e-6], rtol=1e-12)


def test_where_no_datum_tells_anything_coordinates_stay_finite(problem):
    """Without curvature the penalty alone is left, and 1e-6 for the offset."""
    data = problem().adapted(torch.zeros((3, 200), dtype=torch.float64))
    moved = data.weights(torch.eye(6, dtype=torch.float64).repeat_interleave(3, 0))
    expected = torch.diag(torch.tensor([data.ridge**-0.5] * 5 + [1e3], dtype=torch.float64))
    for k in range(3):
        torch.testing.assert_close(moved[k::3].abs(), expected, rtol=1e-6, atol=1e-6)


def test_hessians_that_are_none_are_refused(problem):
    curvature = torch.ones((3, 200), dtype=torch.float64)
    curvature[1, 7] = math.nan
    with pytest.raises(torch.linalg.LinAlgError, match="expected Hessians that are positive"):
        problem().adapted(curvature)
