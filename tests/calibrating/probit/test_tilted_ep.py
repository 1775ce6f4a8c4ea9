"""EP with a utility against brute force on two and three points."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from bayesloss import CostMatrix
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.tilted_ep import tilted_ep
from bayesloss.calibrating.probit.whitened_gp import WhitenedGP
from bayesloss.calibrating.utility import LogUtility
from bayesloss.kernels import SquaredExponential

CASES = [
    ([0.1, 0.3], [1, 1]),
    ([0.1, 0.9], [1, -1]),
    ([0.1, 0.4, 0.6], [1, 1, -1]),
    ([0.0, 0.5, 1.0], [-1, -1, -1]),
]
COSTS = [CostMatrix(1, 1), CostMatrix(0.1, 1), CostMatrix(1, 0.3)]


def problem(inputs, labels, amplitude, costs, max_loss=None):
    """A posterior and the utility of alternating decisions on five targets."""
    kernel = SquaredExponential(a=0.3**-2, b=amplitude**2)
    prior = WhitenedGP.at(kernel, torch.tensor(inputs, dtype=torch.float64)[None], batch_dims=1)
    targets = torch.linspace(0, 1.4, 5, dtype=torch.float64)[None]
    decisions = torch.tensor([[1.0, -1.0, 1.0, 1.0, -1.0]], dtype=torch.float64)
    largest = max_loss or max(costs.c_plus, costs.c_minus)
    utility = LogUtility(*prior.project(targets), decisions, costs, largest)
    return prior.features, torch.tensor(labels, dtype=torch.float64)[None], utility


def brute_force(features, y, utility, n_nodes=60):
    """Moments and log mass of prior x likelihood x utility on a Gauss-Hermite grid."""
    node, weight = np.polynomial.hermite_e.hermegauss(n_nodes)
    r = features.shape[-1]
    z = torch.tensor(np.stack(np.meshgrid(*[node] * r, indexing="ij"), -1).reshape(-1, r))
    mass = torch.tensor(weight / weight.sum())
    mass = torch.stack(torch.meshgrid(*[mass] * r, indexing="ij"), -1).reshape(-1, r).prod(-1)
    mass = mass * torch.special.ndtr(y[0] * (z @ features[0].mT)).prod(-1)
    p = torch.special.ndtr((z @ utility.features[0].mT) / utility.noise[0])
    costs = utility.costs
    positive = utility.decisions[0] > 0
    loss = torch.where(positive, costs.c_plus * (1 - p), costs.c_minus * p).mean(-1)
    mass = mass * (utility.max_loss - loss)
    total = mass.sum()
    mean = (mass[:, None] * z).sum(0) / total
    centred = z - mean
    return mean, (mass[:, None] * centred).mT @ centred / total, float(total.log())


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
    plain = expectation_propagation(features, y)
    assert (plain.mean[0] - mean).abs().max() > 5e-3


@pytest.mark.parametrize("costs", COSTS)
def test_moments_at_a_large_amplitude(costs):
    """Skew posteriors: EP's own error, and the utility adds little to it."""
    for inputs, labels in CASES:
        features, y, utility = problem(inputs, labels, 3.0, costs)
        q = tilted_ep(features, y, utility)
        mean, covariance, log_mass = brute_force(features, y, utility, n_nodes=100)
        assert q.converged.all()
        assert (q.mean[0] - mean).abs().max() < 0.03
        assert (q.covariance[0] - covariance).abs().max() < 0.06
        assert float(q.log_evidence) == pytest.approx(log_mass, abs=0.02)


def test_a_huge_max_loss_is_plain_ep():
    features, y, utility = problem(*CASES[2], 3.0, CostMatrix(0.2, 1), max_loss=1e12)
    q, plain = tilted_ep(features, y, utility), expectation_propagation(features, y)
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
