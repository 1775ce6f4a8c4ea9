"""The trap is there, and the lower bound keeps out of it."""

import numpy as np
import pytest

from bayesloss.experiments import evidence_trap


@pytest.fixture(scope="module")
def table():
    return evidence_trap.compare_objectives(n_basis=32, starts=(8.0, 1.2))


def test_the_bound_leads_to_one_place_from_every_start(table):
    found = table.loc["lower bound"]
    assert (found.nunique() == 1).all()
    assert found["Laplace's evidence less bound"].astype(float).max() < 1


def test_laplace_evidence_leads_astray(table):
    found = table.loc["Laplace's evidence"]
    assert (found == "over 10").any().iloc[0]
    assert (found == "over 80").any().iloc[1]


def test_a_free_intercept_closes_the_band():
    table = evidence_trap.free_intercept(n_basis=8)
    limited, free = (
        table[f"sd at the centre, {kind}"].astype(float) for kind in ("limited", "free")
    )
    # At gamma = 10^6 the prior alone leaves a standard deviation of 10^-3.
    assert np.allclose(free, 1e-3, atol=5e-4)
    assert (limited > 10 * free).all()
    assert (table["nats gained"].astype(float) > 1).all()
