"""How fine the grid of scores is; that it is not felt is tested where EM spreads data on it."""

import pytest

from bayesloss import ISGP, TrigonometricKernel
from bayesloss.learning.sources.grid import grid_size


def test_grid_grows_with_the_fourth_root():
    prior = ISGP(TrigonometricKernel(a=1.2, c=0.0625, n_basis=32))
    sizes = [grid_size(prior, 16.0, n) for n in (10**4, 16 * 10**4, 256 * 10**4)]
    assert sizes[1] / sizes[0] == pytest.approx(2, rel=0.01)
    assert sizes[2] / sizes[1] == pytest.approx(2, rel=0.01)
    assert grid_size(prior, 0.0, 10) == 64
