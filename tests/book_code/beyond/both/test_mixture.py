import numpy as np
import pytest
import torch

from bayesloss_book.beyond.both import mixture
from bayesloss_book.data.labelled_scores import make_prior


def test_turning_scores_are_roots_and_stay_on_the_grid():
    prior = make_prior()
    Gamma = prior.sample(5, torch.Generator().manual_seed(0))
    grid = torch.linspace(-50, 50, 2001, dtype=torch.float64)
    t = np.array([1e-6, 0.3, 0.5, 0.7, 1 - 1e-6])
    found = mixture.turning_scores(prior, Gamma, t, grid)
    assert found.shape == (5, 5)
    assert (np.diff(found, axis=1) >= 0).all() and (np.abs(found) <= 50).all()
    for k in range(5):
        p = torch.sigmoid(prior.source(torch.from_numpy(found[k]), Gamma[k])).numpy()
        inside = np.abs(found[k]) < 50
        # The grid's spacing is 0.05, and links rise by less than 0.2 a unit where they cross.
        assert np.abs(p - t)[inside].max(initial=0) < 0.01


def test_excess_risks_by_hand():
    """A decision is wrong only between p and q, and costs the distance from the threshold."""
    p = torch.tensor([0.3, 0.8]).double()
    q = torch.tensor([0.6, 0.7]).double()
    found = mixture.excess_risks(p, q, np.array([0.2, 0.4, 0.75, 0.9]))
    assert found == pytest.approx([0, 0.1 / 2, 0.05 / 2, 0])
