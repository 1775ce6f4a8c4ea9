"""Cost pairs add up to the log loss, whichever way they are counted."""

import numpy as np
import pytest
import torch

from bayesloss import LogLoss, MatsushitaLoss, SquareLoss
from bayesloss_book.beyond.both import mixture
from bayesloss_book.labelled_scores import make_prior


@pytest.mark.parametrize(("label", "place"), [(0, -20.0), (1, 12.0)])
def test_cost_pairs_add_up_to_the_log_loss(label, place):
    prior = make_prior()
    Gamma = prior.sample(1, torch.Generator().manual_seed(4))[0]

    def loss(x):
        nu = float(prior.source(torch.tensor([x], dtype=torch.float64), Gamma)[0])
        return float(np.logaddexp(0, nu if label == 0 else -nu))

    found = mixture.by_decisions(prior, Gamma, place, label)
    assert found == pytest.approx(loss(place), abs=1e-9)
    change = mixture.by_scores(prior, Gamma, -20.0, 12.0, label)
    assert change == pytest.approx(loss(12.0) - loss(-20.0), abs=1e-9)


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
    p, q = torch.tensor([0.3, 0.8]).double(), torch.tensor([0.6, 0.7]).double()
    found = mixture.excess_risks(p, q, np.array([0.2, 0.4, 0.75, 0.9]))
    assert found == pytest.approx([0, 0.1 / 2, 0.05 / 2, 0])


@pytest.mark.parametrize("loss", [LogLoss(), SquareLoss(), MatsushitaLoss()], ids=repr)
@pytest.mark.parametrize(("p", "q"), [(0.1, 0.4), (0.9, 0.2), (0.5, 0.5)])
def test_they_add_up_to_the_divergence(loss, p, q):
    expected = float(loss.divergence(p, q))
    assert mixture.added_up(loss, p, q) == pytest.approx(expected, abs=1e-9)


def test_with_a_drawn_weight():
    prior = make_prior()
    for Gamma in prior.sample(3, torch.Generator().manual_seed(7)):
        added, divergence = mixture.drawn_divergences(prior, Gamma, 0.7, 0.15)
        assert added == pytest.approx(divergence, abs=1e-9) and divergence > 0
