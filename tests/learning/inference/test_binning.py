"""Tests of condensed rows against the sums of squares of all data."""

import numpy as np
import pytest
import torch
from tolerances import of_a_sum

from bayesloss import ISGP, TrigonometricKernel
from bayesloss.learning.inference import binning

N = 2**16 + 1234  # above the least for which there are cells


def waves(x):
    return ISGP(TrigonometricKernel(a=1.5, c=0.5, n_basis=32)).features(x)


def with_a_kink(x):
    return torch.stack([torch.ones_like(x), x, (x - 0.1234).abs()], dim=1)


def everywhere(generator):
    return generator.uniform(-1, 1, N)


def in_clusters(generator):
    """Most cells empty, some with a single point."""
    x = np.concatenate([0.3 + 1e-6 * generator.normal(size=N - 3), [-1.0, 0.7, 1.0]])
    return generator.permutation(x)


def all_equal(generator):
    return np.full(N, 0.25)


@pytest.mark.parametrize("spread", [everywhere, in_clusters, all_equal])
@pytest.mark.parametrize("features", [waves, with_a_kink])
def test_sums_of_squares_are_kept(features, spread):
    generator = np.random.default_rng(0)
    x = torch.from_numpy(spread(generator))
    y = torch.from_numpy(np.sin(5 * x.numpy()) + 0.1 * generator.normal(size=N))
    weight = torch.from_numpy(generator.integers(1, 4, N).astype(float))
    Phi = features(x)
    found = binning.triangle(features, x, y, weight)
    size = Phi.shape[1]
    for _ in range(3):
        u = torch.from_numpy(generator.normal(size=size))
        expected = float(weight @ (Phi @ u - y) ** 2)
        got = float(((found[:, :size] @ u - found[:, size]) ** 2).sum())
        # A triangle is that of rows off by a rounding for each that a block holds, for equal rows
        # round to one side; squares are off by twice as much.
        terms = float(weight @ (Phi.abs() @ u.abs() + y.abs()) ** 2) ** 0.5
        rel = 2 * of_a_sum(terms, expected**0.5, binning._ROWS)
        assert got == pytest.approx(expected, rel=rel)


def test_flat_directions_keep_their_digits():
    """Coefficients that nearly cancel: the square of the smallest value is below rounding."""
    x = torch.from_numpy(everywhere(np.random.default_rng(1)))
    found = binning.triangle(waves, x, 0 * x, torch.ones_like(x))[:, :-1]
    values = torch.linalg.svdvals(waves(x))
    got = torch.linalg.svdvals(found)
    assert float(values[-1] / values[0]) < 1e-8
    atol = 1e-14 * float(values[0])  # the features' own rounding
    torch.testing.assert_close(got[: len(values)], values, rtol=1e-9, atol=atol)


def test_cells_are_used_where_features_are_smooth():
    """Some thousand rows for all the data; with a kink those of its cell stay as they are."""
    x = torch.linspace(-1, 1, N, dtype=torch.float64)
    rows = {
        features: sum(map(len, binning.few_rows(features, x, x, torch.ones_like(x))))
        for features in (waves, with_a_kink)
    }
    assert rows[waves] / (binning._NODES + 1) in binning._CELLS
    least = binning._CELLS[-1]
    assert rows[with_a_kink] == pytest.approx(17 * (least - 1) + N / least, abs=2)
