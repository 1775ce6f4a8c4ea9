import math

import numpy as np
import pytest
from tolerances import UNIT, of_a_maximum, of_a_sum


@pytest.mark.parametrize("n", [10, 1000])
def test_a_sum_that_cancels_is_off_by_what_its_terms_say(n):
    generator = np.random.default_rng(n)
    errors = []
    for _ in range(100):
        terms = generator.normal(size=n)
        terms[-1] = 1e-4 - math.fsum(terms[:-1])
        total = 0.0
        for term in terms:
            total += term
        exact = math.fsum(terms)
        errors.append(abs(total / exact - 1) / of_a_sum(np.abs(terms).sum(), exact, n))
    assert max(errors) < 1
    assert max(errors) > 0.1 / n  # at random sqrt(n) of the n roundings remain, of parts of the sum


@pytest.mark.parametrize(("level", "curvature"), [(1.0, 1.0), (150.0, 0.01)])
def test_near_a_maximum_values_cannot_be_told_apart(level, curvature):
    """The place of the largest of many values, computed, is off by about as much."""

    def value(x):
        return level - curvature * x**2 / 2

    reach = of_a_maximum(level, curvature, runs=1)
    x = np.linspace(-20 * reach, 20 * reach, 100_001)
    assert 0.3 * reach < np.abs(x[value(x) == value(x).max()]).max() <= 1.5 * reach


def test_the_unit_is_that_of_the_standard():
    assert 1 + UNIT == 1 < 1 + 1.01 * UNIT
