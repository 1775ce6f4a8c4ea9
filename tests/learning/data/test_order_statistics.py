"""Order statistics by counting are those of sorting."""

import numpy as np
import pytest

from bayesloss.learning.data import order_statistics
from bayesloss.learning.data.order_statistics import points_at
from bayesloss.learning.data.rows import Rows


@pytest.mark.parametrize("few", [2**14, 50, 0])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_the_points_nearest_to_levels_are_those_of_sorting(monkeypatch, few, scale):
    monkeypatch.setattr(order_statistics, "_FEW", few)
    rng = np.random.default_rng(0)
    x = scale * rng.standard_normal(5001).round(3)  # some are equal, and some are zero
    x[:2] = 0.0, -0.0
    weight = rng.integers(1, 4, 5001).astype(float)
    depths = np.array([0.01, 0.25, 0.5, 0.9])
    points, mass = points_at(Rows(x, x, weight).fold, depths)
    assert mass.sum() == weight.sum()
    assert (np.diff(points) > 0).all()
    assert (points[0], points[-1]) == (x.min(), x.max())
    ordered = np.repeat(np.sort(x), weight[np.argsort(x, kind="stable")].astype(int))
    for depth in depths:
        expected = ordered[int(np.ceil(depth * len(ordered))) - 1]
        at = np.searchsorted(mass.cumsum() / mass.sum(), depth)
        assert points[at] == expected
