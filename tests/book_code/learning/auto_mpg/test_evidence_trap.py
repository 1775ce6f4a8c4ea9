"""The trap is there, and the lower bound keeps out of it."""

from pathlib import Path

import numpy as np
import pytest

from bayesloss_book.learning.auto_mpg import evidence_trap
from bayesloss_book.stores.results import load_results

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"


@pytest.fixture(scope="module")
def stored():
    return load_results(RESULTS, "evidence_trap")


def test_stored_results_are_whole(stored):
    assert len(stored) == len(evidence_trap.cells())


def test_annealing_agrees_with_itself(stored):
    """Two seeds give one evidence, within four of their standard errors."""
    for _, pair in stored.groupby(["path", "a"]):
        gap = pair["annealed"].max() - pair["annealed"].min()
        assert gap < 4 * np.hypot(*pair["annealed_error"])
    assert (stored["effective_size"] > 10).all()


def test_bound_is_below_the_truth(stored):
    assert (stored["bound"] < stored["annealed"] + 4 * stored["annealed_error"]).all()


def test_the_bound_leads_to_one_place_and_laplace_astray(stored):
    ends = evidence_trap.search_ends(stored)
    bound, astray = ends.loc["bound"], ends.loc["laplace"]
    assert bound["bound"].max() - bound["bound"].min() < 0.1
    assert (bound["error_laplace"] < 1.05 * bound["error_exact"]).all()
    assert (astray["laplace"] > astray["annealed"] + 1).any()
    assert (astray["error_laplace"] > 2 * astray["error_exact"]).any()


def test_a_small_cell_can_be_measured():
    """With four basis functions; the truth is at least the bound, up to its own error."""
    found = evidence_trap.measure(path="slice", a=4.0, seed=0, n_basis=4)
    assert found["bound"] < found["annealed"] + 4 * found["annealed_error"]
    assert found["error_laplace"] == pytest.approx(found["error_exact"], rel=0.05)


def test_a_free_intercept_closes_the_band():
    table = evidence_trap.free_intercept(n_basis=4)
    limited, free = (
        table[f"sd at the centre, {kind}"].astype(float) for kind in ("limited", "free")
    )
    # At gamma = 10^6 the prior alone leaves a standard deviation of 10^-3.
    np.testing.assert_allclose(free, 1e-3, rtol=1e-5, atol=5e-4)
    assert (limited > 10 * free).all()
    assert (table["nats gained"].astype(float) > 1).all()
