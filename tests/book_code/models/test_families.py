"""The nearest member of a family, against quadrature, another optimiser and moments."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brute
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from bayesloss_book.models import families
from bayesloss_book.models.families import Family, gaussians
from bayesloss_book.references.decision_references import discretise

STATES = torch.linspace(-8, 8, 801, dtype=torch.float64)
P = discretise(
    torch.as_tensor(np.log(0.7 * norm.pdf(STATES, -1.5, 1) + 0.3 * norm.pdf(STATES, 3, 0.6)))
)


def test_masses_are_a_gaussian_s():
    q = gaussians(STATES).log_masses(torch.tensor([0.25, math.log(0.1)], dtype=torch.float64)).exp()
    # The middle rule for a smooth function that vanishes at the ends is exact to rounding.
    np.testing.assert_allclose(q, norm.pdf(STATES, 2, 0.8) * 0.02, atol=1e-12)


def test_moment_matching_has_the_moments():
    q = gaussians(STATES).moment_matching(P).q
    for power in (1, 2):  # the gradient vanishes to 1e-6 in units of half the range
        assert float((q * STATES**power).sum()) == pytest.approx(
            float((P * STATES**power).sum()), abs=1e-3
        )


def test_nearest_is_the_best_of_a_brute_search():
    found = gaussians(STATES).nearest(P.log())

    def divergence(x):
        q = norm.pdf(STATES, x[0], x[1])
        q = q / q.sum()
        return float((q * (np.log(q + 1e-300) - P.log().numpy())).sum())

    # Polished by Nelder and Mead.
    best, least, *_ = brute(divergence, ((-4, 5), (0.3, 4)), Ns=40, full_output=True)
    assert found.converged
    assert found.divergence == pytest.approx(least, abs=1e-8)
    assert float((found.q * STATES).sum()) == pytest.approx(best[0], abs=1e-3)


def test_a_start_is_never_lost():
    """One poor start of the family's own, and a good one that is handed over."""
    family = Family(gaussians(STATES).log_masses, torch.tensor([[0.4, -2.5]], dtype=torch.float64))
    alone = family.nearest(P.log())
    helped = family.nearest(P.log(), start=torch.tensor([-0.19, -2.1], dtype=torch.float64))
    assert helped.divergence < alone.divergence - 0.1


def test_infinite_divergence():
    with pytest.raises(ValueError, match="the divergence is infinite"):
        gaussians(STATES).nearest(torch.where(STATES < 0, 0.0, -math.inf))


def test_warns_when_it_stops_early(monkeypatch):
    monkeypatch.setattr(families, "_MAX_ITER", 1)
    with pytest.warns(ConvergenceWarning, match="stopped before its gradient vanished"):
        found = gaussians(STATES).nearest(P.log())
    assert not found.converged


def test_bad_states():
    with pytest.raises(ValueError, match="at least two states"):
        gaussians(torch.zeros(1))
