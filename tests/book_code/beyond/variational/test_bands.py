"""Coverage over simulated data sets: one cell by hand."""

import pytest

from bayesloss import variational
from bayesloss_book.beyond.variational import bands
from bayesloss_book.problems.source_problems import grid, prior_and_likelihood, simulate


def test_one_data_set_by_hand():
    found = bands.measure(task="regression", method="normal", seed=5, n=30, n_basis=6)
    Gamma, x, y = simulate("regression", 30, 6, 5)
    prior, likelihood = prior_and_likelihood("regression", 6)
    posterior = variational(prior, likelihood, x, y)
    mean = posterior.mean(grid())
    sd = posterior.variance(grid()).sqrt()
    truth = prior.source(grid(), Gamma)
    inside = ((truth > mean - 1.959964 * sd) & (truth < mean + 1.959964 * sd)).double()
    assert found["covered_95"] == pytest.approx(float(inside.mean()))
    assert found["width"] == pytest.approx(float(sd.mean()))
