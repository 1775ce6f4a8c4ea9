"""Maximum entropy discrimination against a solver that keeps the constraints."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import ndtr
from sklearn.exceptions import ConvergenceWarning

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.probit.whitened_gp import WhitenedGP
from bayesloss.kernels import SquaredExponential
from bayesloss_book.calibrating.asymmetric_losses.maximum_entropy import med_probit, slacks


def test_against_constrained_minimisation():
    """Two points, slacks as variables of their own, (29) as it is printed."""
    x = torch.tensor([[0.1, 0.4]], dtype=torch.float64)
    prior = WhitenedGP.at(SquaredExponential(a=9.0, b=4.0), x, batch_dims=1)
    y = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    costs = CostMatrix(0.3, 1.0)
    C = 2.0
    found = med_probit(prior.features, y, costs, C=C, smoothing=1e-3)
    A = prior.features[0].numpy()
    labels = y[0].numpy()

    def unpack(v):
        return v[:2], np.array([[np.exp(v[2]), 0], [v[3], np.exp(v[4])]]), v[5:]

    def p_right(v):
        mean, root, _ = unpack(v)
        return ndtr(labels * (A @ mean) / np.sqrt(1 + ((A @ root) ** 2).sum(1)))

    def objective(v):
        mean, root, xi = unpack(v)
        log_det = 2 * np.log(root.diagonal()).sum()
        return 0.5 * (mean @ mean + (root**2).sum() - log_det - 2) + C * xi.sum()

    cost = np.where(labels > 0, costs.c_minus, costs.c_plus)
    constraints = [
        {"type": "ineq", "fun": lambda v: v[5:]},
        {"type": "ineq", "fun": lambda v: v[5:] + p_right(v) - (1 - p_right(v)) - cost},
    ]
    start = np.concatenate([np.zeros(5), np.full(2, 2.0)])
    theirs = minimize(objective, start, constraints=constraints, method="SLSQP", tol=1e-12)
    assert theirs.success
    # Smoothing costs at most 0.7e-3 a hinge, times C.
    assert -float(found.log_evidence) == pytest.approx(theirs.fun, abs=4e-3)
    assert found.mean[0].numpy() == pytest.approx(theirs.x[:2], abs=1e-2)
    _, root, xi = unpack(theirs.x)
    assert found.covariance[0].numpy() == pytest.approx(root @ root.T, abs=1e-2)
    right = torch.from_numpy(p_right(theirs.x))
    assert slacks(right, y[0], costs).numpy() == pytest.approx(xi, abs=1e-4)


def test_bad_price_and_too_few_iterations():
    features = torch.eye(2, dtype=torch.float64)[None]
    y = torch.ones(1, 2, dtype=torch.float64)
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        med_probit(features, y, CostMatrix(), C=5.0, max_iter=1)
