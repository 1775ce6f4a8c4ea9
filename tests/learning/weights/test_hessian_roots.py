import numpy as np
import torch

from bayesloss.learning.data.inputs import DenseInputs
from bayesloss.learning.weights.coordinates import inverse_root, sampled, sampled_hessian


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


def test_all_rows_make_up_the_hessian():
    """Scaled, with an offset, and its inverse by the root."""
    generator = np.random.default_rng(1)
    z = generator.normal(size=(90, 4))
    mass = generator.random(90)
    scale = generator.random(4)
    centred = np.column_stack([(z - 0.3) * scale, np.ones(90)])
    H = centred.T @ (mass[:, None] * centred)
    given = (DenseInputs(torch.from_numpy(z)), torch.full((4,), 0.3, dtype=torch.float64))
    given = (*given, torch.from_numpy(mass), 90)
    options = {"scale": torch.from_numpy(scale), "offset": True}
    found = sampled_hessian(*given, **options)
    np.testing.assert_allclose(found, H, rtol=1e-12)
    root = inverse_root(found)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(H), rtol=1e-9, atol=1e-12)
    assert not inverse_root(-found).isfinite().any()
