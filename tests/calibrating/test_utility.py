"""The log utility's derivatives and expectation, against automatic differentiation."""

import numpy as np
import pytest
import torch

from bayesloss import CostMatrix
from bayesloss.calibrating.utility import LogUtility, check_max_loss, utility


def problem(n_sets=4, n_targets=40, rank=5):
    """Features and noise of targets, and decisions by the toss of a coin."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(n_sets, n_targets, rank, dtype=torch.float64, generator=generator)
    noise = 1 + torch.rand(n_sets, n_targets, dtype=torch.float64, generator=generator)
    coin = torch.rand(noise.shape, generator=generator)
    return features, noise, torch.where(coin < 0.5, 1.0, -1.0).double()


@pytest.mark.parametrize(("costs", "M"), [(CostMatrix(1, 1), 1.0), (CostMatrix(0.05, 1), 3.0)])
def test_gradient_and_hessian_against_automatic_differentiation(costs, M):
    features, noise, decisions = problem()
    term = LogUtility(features, noise, decisions, costs, M)
    z = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gradient, hessian, safe = term.derivatives(z)

    def total(z):
        # Written out as in (12), with 1 - Phi in place of the package's rearrangement.
        p = torch.special.ndtr((features @ z[..., None]).squeeze(-1) / noise)
        loss = torch.where(term.decisions > 0, costs.c_plus * (1 - p), costs.c_minus * p)
        return (M - loss.mean(-1)).log().sum()

    torch.testing.assert_close(gradient, torch.func.grad(total)(z), rtol=0, atol=1e-12)
    full = torch.func.hessian(total)(z)
    for i in range(4):
        torch.testing.assert_close(hessian[i], -full[i, :, i], rtol=0, atol=1e-12)
        assert torch.linalg.eigvalsh(safe[i])[0] > -1e-12
    torch.testing.assert_close(term.value(z).sum(), total(z), rtol=1e-12, atol=1e-12)


def test_the_utility_s_expectation_and_derivatives():
    utility = LogUtility(*problem(1, 5, 3), CostMatrix(0.2, 1), max_loss=1.5)
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(1, 3, dtype=torch.float64, generator=generator)
    root = torch.randn(1, 3, 3, dtype=torch.float64, generator=generator)
    V = root @ root.mT
    node, weight = np.polynomial.hermite_e.hermegauss(24)
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


def test_some_data_sets_of_many():
    features, noise, decisions = problem()
    every = LogUtility(features, noise, decisions, CostMatrix(0.2, 1), 1.5)
    z = torch.ones(4, 5, dtype=torch.float64)
    rows = torch.tensor([3, 1])
    assert torch.equal(every.select(rows).value(z[rows]), every.value(z)[rows])
    torch.testing.assert_close(every.value(z).exp(), every.utility(z), rtol=1e-12, atol=0)


def test_the_largest_loss_may_be_reached_but_not_exceeded():
    losses = torch.tensor([[0.0, 3.0], [1.0, 2.0]])
    assert utility(losses, 3.0).tolist() == [[3.0, 0.0], [2.0, 1.0]]
    for M in (2.9, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="expected a finite M of at least the largest loss 3"):
            utility(losses, M)
    assert check_max_loss(None, CostMatrix(0.2, 1)) == 1
    for M in (0.9, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=">= the larger cost"):
            check_max_loss(M, CostMatrix(0.2, 1))
