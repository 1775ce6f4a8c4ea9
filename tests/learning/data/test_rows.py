"""Tests of what is said of rows in memory."""

import numpy as np
import pytest

from bayesloss.learning.data.rows import Rows, extremes, largest, size


def test_what_is_said_of_parts_and_merged_is_what_is_said_of_all():
    rng = np.random.default_rng(0)
    x, y, weight = rng.normal(size=50), rng.normal(size=50), rng.random(50)
    cuts = [
        Rows(*part) for part in zip(*(np.split(v, [7, 7, 30]) for v in (x, y, weight)), strict=True)
    ]
    expected = [-min(x), max(x), -min(y), max(y)]
    assert Rows(x, y, weight).fold(extremes, merge=largest).tolist() == expected
    assert largest([cut.fold(extremes) for cut in cuts]).tolist() == expected
    assert sum(cut.fold(size) for cut in cuts) == 50
    x[3] = np.nan
    found = largest([Rows(x[:9], y[:9], weight[:9]).fold(extremes), np.array(expected)])
    assert np.isnan(found[:2]).all() and found[2:] == pytest.approx(expected[2:])


def test_a_map_changes_x_and_y_and_keeps_weights():
    rows = Rows(np.arange(3.0), np.ones(3), np.array([1.0, 2.0, 3.0]))
    shifted = rows.map(lambda x, y, by: (x + by, -y), 10.0)
    assert shifted.fold(lambda x, y, weight: float(weight @ (x * y))) == -(10 + 22 + 36)
    points, weight = shifted.distribution(np.array([0.5]))
    assert points.tolist() == [10, 11, 12] and weight.tolist() == [1, 2, 3]
