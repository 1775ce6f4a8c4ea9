import math

import numpy as np
import pytest
import torch

from bayesloss.learning.weights import linear_scores
from bayesloss.learning.weights.linear_scores import by_parts


@pytest.mark.parametrize("shape", [(7,), (8,), (3, 5), (5, 16)])
def test_a_function_of_numbers_may_be_asked_by_parts(shape, monkeypatch):
    monkeypatch.setattr(linear_scores, "_PART", 8)
    x = torch.randn(shape, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
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


@pytest.mark.parametrize("C", [0.7, math.inf])
def test_the_penalty_is_known_as_it_was_given(problem, C):
    """Of 200 rows with weights of 1 to 3; infinite for none."""
    found = problem(C=C).C
    assert found == pytest.approx(C, rel=1e-14)


def test_leverages_of_a_covariance(problem, monkeypatch):
    """From many random directions: four fifths of the exact ones by mean 1, and a fifth."""
    monkeypatch.setattr(linear_scores, "_GLANCES", 20_000)
    data = problem()
    z = (data.inputs.Z - data.centre).numpy()
    weight = (data.weight / data.total).numpy()
    covariance = float(data.coordinates.level) * (z.T * weight) @ z + data.ridge * np.eye(5)
    exact = np.einsum("nd,de,ne->n", z, np.linalg.inv(covariance), z)
    # A share of a normal square's mean over 20,000 directions has standard error 0.01.
    np.testing.assert_allclose(data.leverages, 0.8 * exact / exact.mean() + 0.2, rtol=0.05)
    moved = data.centred_on(torch.arange(len(z)) > 0)
    assert moved.leverages is not data.leverages  # made anew in other coordinates


def test_hessians_are_afforded_by_their_numbers(problem, monkeypatch):
    """K d^2 of them may be a quarter of the inputs' numbers, or so many whatever these are."""
    data = problem()  # 3 Hessians of 25 numbers, 1,000 in the inputs
    for spare, stored, afforded in [(75, 0, True), (74, 0, False), (0, 300, True), (0, 299, False)]:
        monkeypatch.setattr(linear_scores, "_SPARE", spare)
        monkeypatch.setattr(type(data.inputs), "stored", stored)
        assert data.adaptable is afforded
    monkeypatch.setattr(linear_scores, "_SPARE", 75)
    for wide, afforded in [(5, True), (4, False)]:
        monkeypatch.setattr(linear_scores, "MOST_COLUMNS", wide)
        assert data.adaptable is afforded


def test_hessians_that_are_none_are_refused(problem):
    curvature = torch.ones((3, 200), dtype=torch.float64)
    curvature[1, 7] = math.nan
    with pytest.raises(torch.linalg.LinAlgError, match="expected Hessians that are positive"):
        problem().adapted(curvature)
