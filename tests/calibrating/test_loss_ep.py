"""EP with a utility against brute force on two and three points."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.expectation_propagation import expectation_propagation
from bayesloss.calibrating.loss_em_classification import LogUtility, loss_em_probit
from bayesloss.calibrating.loss_ep import tilted_ep
from bayesloss.calibrating.probit import WhitenedGP, decide
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


def test_the_utility_s_expectation_and_derivatives():
    """Closed forms against Gauss-Hermite and automatic differentiation."""
    _, _, utility = problem(*CASES[2], 2.0, CostMatrix(0.2, 1), max_loss=1.5)
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(1, 3, dtype=torch.float64, generator=generator)
    root = torch.randn(1, 3, 3, dtype=torch.float64, generator=generator)
    V = root @ root.mT
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    z = torch.tensor(np.stack(np.meshgrid(*[node] * 3, indexing="ij"), -1).reshape(-1, 3))
    w = torch.tensor(weight / weight.sum())
    w = torch.stack(torch.meshgrid(w, w, w, indexing="ij"), -1).reshape(-1, 3).prod(-1)
    factor = torch.linalg.cholesky(V)[0]

    def log_mean(m):
        p = torch.special.ndtr(((m + z @ factor.mT) @ utility.features[0].mT) / utility.noise[0])
        loss = torch.where(utility.decisions[0] > 0, 0.2 * (1 - p), p).mean(-1)
        return ((1.5 - loss) * w).sum().log()

    value, gradient, hessian = utility.log_expectation(mean, V)
    assert float(value) == pytest.approx(float(log_mean(mean[0])), abs=1e-8)
    assert (gradient[0] - torch.func.grad(log_mean)(mean[0])).abs().max() < 1e-8
    assert (hessian[0] - torch.func.hessian(log_mean)(mean[0])).abs().max() < 1e-8


def test_a_huge_max_loss_is_plain_ep():
    features, y, utility = problem(*CASES[2], 3.0, CostMatrix(0.2, 1), max_loss=1e12)
    q, plain = tilted_ep(features, y, utility), expectation_propagation(features, y)
    assert (q.mean - plain.mean).abs().max() < 1e-9
    assert float(q.log_evidence - plain.log_evidence) == pytest.approx(np.log(1e12), abs=1e-9)


def sets(n_sets=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n_sets, 15, dtype=torch.float64, generator=generator)
    prior = WhitenedGP.at(SquaredExponential(a=0.3**-2, b=9.0), x, batch_dims=1)
    z = torch.randn(n_sets, prior.features.shape[-1], 1, dtype=torch.float64, generator=generator)
    coin = torch.rand(n_sets, 15, dtype=torch.float64, generator=generator)
    y = torch.where(coin < torch.special.ndtr((prior.features @ z).squeeze(-1)), 1.0, -1.0)
    targets = torch.linspace(0, 1.2, 40, dtype=torch.float64).expand(n_sets, -1)
    return prior.features, y.double(), *prior.project(targets)


def test_loss_em_by_ep_ends_at_its_own_decisions():
    features, y, target_features, noise = sets()
    costs = CostMatrix(0.2, 1)
    found = loss_em_probit(features, y, target_features, noise, costs, inference="ep")
    assert found.converged.all() and found.q.converged.all()
    term = LogUtility(target_features, noise, found.decisions, costs, 1.0)
    again = tilted_ep(features, y, term)
    assert (again.mean - found.q.mean).abs().max() < 1e-9
    assert torch.equal(
        found.decisions, decide(again, target_features, noise, costs.probit_threshold)
    )
    one = slice(3, 4)
    alone = tilted_ep(features[one], y[one], term.select(torch.tensor([3])))
    assert (alone.mean - again.mean[one]).abs().max() < 1e-7


def test_too_few_rounds_and_other_names():
    features, y, target_features, noise = sets(3)
    costs = CostMatrix(1, 1)
    term = LogUtility(target_features, noise, torch.ones_like(noise), costs, 1.0)
    with pytest.warns(ConvergenceWarning, match="utility's site"):
        assert not tilted_ep(features, y, term, max_iter=1).converged.any()
    with pytest.raises(ValueError, match="max_iter of at least 1"):
        tilted_ep(features, y, term, max_iter=0)
    with pytest.raises(ValueError, match="'laplace' or 'ep', got 'vb'"):
        loss_em_probit(features, y, target_features, noise, costs, inference="vb")


def test_without_data_the_moments_are_exact():
    """Labels of inputs where f is zero tell nothing; what is left is the utility's own site."""
    features, y, utility = problem(*CASES[2], 2.0, CostMatrix(0.3, 1))
    features = torch.zeros_like(features)
    q = tilted_ep(features, y, utility)
    mean, covariance, log_mass = brute_force(features, y, utility)
    assert (q.mean[0] - mean).abs().max() < 1e-7
    assert (q.covariance[0] - covariance).abs().max() < 1e-7
    assert float(q.log_evidence) == pytest.approx(log_mass, abs=1e-7)
