"""Coverage over simulated data sets: one cell by hand, and what is stored."""

from pathlib import Path

import numpy as np
import pytest

from bayesloss import variational
from bayesloss_book.beyond.variational import bands
from bayesloss_book.source_problems import grid, prior_and_likelihood, simulate
from bayesloss_book.stores.results import load_results

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"


def test_one_data_set_by_hand():
    found = bands.measure(task="regression", method="normal", seed=5, n=30, n_basis=6)
    Gamma, x, y = simulate("regression", 30, 6, 5)
    prior, likelihood = prior_and_likelihood("regression", 6)
    posterior = variational(prior, likelihood, x, y)
    mean, sd = posterior.mean(grid()), posterior.variance(grid()).sqrt()
    truth = prior.source(grid(), Gamma)
    inside = ((truth > mean - 1.959964 * sd) & (truth < mean + 1.959964 * sd)).double()
    assert found["covered_95"] == pytest.approx(float(inside.mean()))
    assert found["width"] == pytest.approx(float(sd.mean()))


def test_stored_bands():
    stored = load_results(RESULTS, "variational_bands")
    assert len(stored) == len(bands.cells())
    assert stored["converged"].mean() > 0.99
    counts = stored.groupby(["task", "method"]).size()
    assert counts["regression", "normal"] == counts["classification", "exact"] == 400
    # The truth's rank is uniform in regression: its mean, within four standard errors.
    ranks = stored[(stored["task"] == "regression") & (stored["method"] == "normal")]
    for side in ("rank_left", "rank_right"):
        error = 100 / np.sqrt(12 * len(ranks))
        assert abs(ranks[side].mean() - 49.5) < 4 * error
