"""EP with a utility against brute force on two and three points."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from tilted_problems import CASES, COSTS, brute_force, problem

from bayesloss import CostMatrix
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.tilted_ep import tilted_ep
from bayesloss.calibrating.utility import LogUtility


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize(("inputs", "labels"), CASES)
def test_moments_of_the_tilted_posterior(inputs, labels, costs):
    features, y, utility = problem(inputs, labels, 0.5, costs)
    q = tilted_ep(features, y, utility)
    mean, covariance, log_mass = brute_force(features, y, utility)
    assert q.converged.all()
    # As for plain EP, whose own error this is: the utility's moments are exact.
    assert (q.mean[0] - mean).abs().max() < 1e-3
    assert (q.covariance[0] - covariance).abs().max() < 1e-3
    assert float(q.log_evidence) == pytest.approx(log_mass, abs=1e-3)
    # What the utility does is far more than that.
    assert (expectation_propagation(features, y).mean[0] - mean).abs().max() > 5e-3


@pytest.mark.parametrize("costs", COSTS)
def test_moments_at_a_large_amplitude(costs):
    """Skew posteriors: EP's own error, and the utility adds little to it."""
    for inputs, labels in CASES:
        features, y, utility = problem(inputs, labels, 3.0, costs)
        q = tilted_ep(features, y, utility)
        mean, covariance, log_mass = brute_force(features, y, utility)
        assert q.converged.all()
        assert (q.mean[0] - mean).abs().max() < 0.03
        assert (q.covariance[0] - covariance).abs().max() < 0.06
        assert float(q.log_evidence) == pytest.approx(log_mass, abs=0.02)


def test_a_huge_max_loss_is_plain_ep():
    features, y, utility = problem(*CASES[2], 3.0, CostMatrix(0.2, 1), max_loss=1e12)
    q = tilted_ep(features, y, utility)
    plain = expectation_propagation(features, y)
    assert (q.mean - plain.mean).abs().max() < 1e-9
    assert float(q.log_evidence - plain.log_evidence) == pytest.approx(np.log(1e12), abs=1e-9)


def test_without_data_the_moments_are_exact():
    """Labels of inputs where f is zero tell nothing; what is left is the utility's own site."""
    features, y, utility = problem(*CASES[2], 2.0, CostMatrix(0.3, 1))
    features = torch.zeros_like(features)
    q = tilted_ep(features, y, utility)
    mean, covariance, log_mass = brute_force(features, y, utility)
    assert (q.mean[0] - mean).abs().max() < 1e-7
    assert (q.covariance[0] - covariance).abs().max() < 1e-7
    assert float(q.log_evidence) == pytest.approx(log_mass, abs=1e-7)


def test_cavities_without_variance_are_told():
    """A decision against the one label: what is left is two bumps, and no Gaussian."""
    one = torch.ones((1, 1), dtype=torch.float64)
    features = 30 * one[None]
    for M, sound in ((1.0, True), (1.1, False), (2.0, True)):
        utility = LogUtility(features, one, -one, CostMatrix(1, 1), M)
        if sound:
            assert tilted_ep(features, one, utility).converged.all()
        else:
            with pytest.warns(ConvergenceWarning, match="without variance: use a larger max_loss"):
                q = tilted_ep(features, one, utility)
            assert torch.isnan(q.log_evidence).all() and not q.converged.any()


def test_too_few_rounds_are_told():
    features, y, utility = problem(*CASES[2], 2.0, COSTS[1])
    with pytest.warns(ConvergenceWarning, match="utility's site of 1 of 1 data sets"):
        assert not tilted_ep(features, y, utility, max_iter=1).converged.any()
