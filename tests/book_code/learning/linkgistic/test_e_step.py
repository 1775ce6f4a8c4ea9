"""The E-step that is timed is the one that the estimator takes; the stored times are whole."""

from pathlib import Path

import pytest
import torch

from bayesloss import ISGP, TrigonometricKernel, laplace
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss_book.learning.linkgistic import e_step as link_cost
from bayesloss_book.stores.results import load_results

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"


@pytest.fixture(scope="module")
def stored():
    return load_results(RESULTS, "link_cost")


def test_evidence_is_that_of_the_data_without_a_grid():
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(2000, dtype=torch.float64, generator=generator)
    y = (torch.rand(2000, dtype=torch.float64, generator=generator) < torch.sigmoid(x)).double()
    prior = ISGP(TrigonometricKernel(a=1.2, c=0.5 / float(x.abs().max()), n_basis=16), gamma=0.01)
    found = link_cost.measure(n=2000, n_basis=16, repeat=0)
    expected = laplace(prior, Bernoulli(), x, y).log_evidence / 2000
    # A thousandth of a standard deviation is what the grid may shift the mode by.
    assert found["log_evidence"] == pytest.approx(expected, abs=1e-4)
    assert found["rows"] <= found["nodes"]


def test_stored_results_are_whole(stored):
    assert len(stored) == len(link_cost.cells())
    assert (stored.groupby(["n", "n_basis"])["log_evidence"].nunique() == 1).all()


def test_grid_grows_with_the_fourth_root(stored):
    """And with the part of the kernel's period that the scores fill, which varies."""
    nodes = stored[stored["n_basis"] == 64].groupby("n")["nodes"].first()
    growth = (nodes.shift(-1) / nodes).dropna()
    assert growth.between(0.9 * 10**0.25, 1.1 * 10**0.25).all()


def test_figure(stored):
    figure = link_cost.draw_cost(stored)
    assert [axis.get_title() for axis in figure.axes] == ["M = 64", "N = 1,000,000"]
    medians = link_cost.medians(stored)
    drawn = figure.axes[1].lines[0].get_ydata()
    assert sorted(drawn) == sorted(medians[medians.index.get_level_values("n") == 10**6])
