"""The toys of the Laplace page: the truth that others are compared with must itself be true."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from bayesloss.learning.inference.laplace import laplace
from bayesloss_book.learning.laplace import toys


def test_density_of_weights_is_a_multivariate_normal():
    """Against SciPy's density with the covariance written out."""
    prior = toys.small_prior()
    x, y, likelihood = toys.regression(7, seed=1)
    w = torch.tensor([[0.7, -0.4], [0.0, 0.3]], dtype=torch.float64)
    found = toys.log_density_of_weights(prior, likelihood, x, y, w)
    covariance = np.eye(7) / float(likelihood.alpha) + 1 / float(prior.gamma)
    for value, point in zip(found, w, strict=True):
        mean = torch.einsum("i,nij,j->n", point, prior.kernel.psi(x), point).numpy()
        expected = multivariate_normal(mean, covariance).logpdf(y.numpy())
        weights = multivariate_normal(np.zeros(2), np.diag(prior.kernel.eigenvalues.numpy()))
        expected += weights.logpdf(point.numpy())
        assert float(value) == pytest.approx(expected, abs=1e-10)  # both exact up to rounding


def test_true_evidence_is_an_integral():
    """Against Gauss and Legendre's quadrature of the density; its nodes are 0.08 apart at most."""
    prior = toys.small_prior()
    x, y, likelihood = toys.regression(3, seed=2)

    nodes, weights = (torch.from_numpy(5 * each) for each in np.polynomial.legendre.leggauss(200))
    grid = torch.cartesian_prod(nodes, nodes)
    log_density = toys.log_density_of_weights(prior, likelihood, x, y, grid)
    integral = float(torch.outer(weights, weights).flatten() @ log_density.exp())
    found = toys.true_log_evidence(prior, likelihood, x, y)
    assert found == pytest.approx(math.log(integral), abs=1e-4)


def test_grid_is_fine_enough():
    """A grid twice as fine changes nothing at the largest n of the page."""
    prior = toys.small_prior()
    x, y, likelihood = toys.regression(256, seed=0)
    coarse, fine = (
        toys.true_log_evidence(prior, likelihood, x, y, half=half) for half in (220, 400)
    )
    assert coarse == pytest.approx(fine, abs=1e-5)


def test_every_data_set_is_one_fitted_alone():
    prior = toys.small_prior()
    table = toys.compare_losses(prior, (5, 12), range(2, 4), 300)
    assert table.index.tolist() == [(5, 2), (5, 3), (12, 2), (12, 3)]
    x, y, likelihood = toys.classification(12, 2)
    new = torch.linspace(-1, 1, 201, dtype=torch.float64)
    alone = toys.losses(laplace(prior, likelihood, x, y), new, toys.log_odds(new).sigmoid(), 300, 2)
    assert table.loc[12, 2].tolist() == pytest.approx(alone.tolist())
