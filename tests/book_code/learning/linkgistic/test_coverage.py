from dataclasses import replace

import numpy as np
import pytest
import torch

from bayesloss_book.learning.linkgistic import coverage
from bayesloss_book.learning.linkgistic.rounds import kinked, learn

SMALL = kinked(200, 0, n_test=400)


def test_counts_the_truths_within_the_band():
    """Moments in closed form put a band where the draws do: nearly, for nu is nearly Gaussian."""
    found = learn(SMALL, rounds=0, C=10.0, n_basis=8)[0]
    x = (torch.from_numpy(SMALL.X_test) - torch.from_numpy(SMALL.X.mean(axis=0))) @ found.beta
    mean, variance = (part.numpy() for part in found.posterior.moments(x))
    for deviations, expected in ((0.0, 1.0), (1.0, 1.0), (3.5, 0.0)):
        odds = mean + deviations * np.sqrt(variance)
        share = coverage.covered(found, replace(SMALL, odds=odds))
        assert share == pytest.approx(expected, abs=0.05)


def test_looks_at_the_same_data_three_times():
    found = coverage.measure(seed=0, n=200, C=10.0, n_basis=8)
    assert set(found) == {"fitted", "held_out", "known"}
    assert len(set(found.values())) == 3
    problem = kinked(200, 0)
    again = learn(problem, rounds=0, C=10.0, n_basis=8)[0]
    assert found["fitted"] == coverage.covered(again, problem)
