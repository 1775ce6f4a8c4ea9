"""The toys of the Laplace page: the truth that others are compared with must itself be true."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
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
        expected += multivariate_normal(
            np.zeros(2), np.diag(prior.kernel.eigenvalues.numpy())
        ).logpdf(point.numpy())
        assert float(value) == pytest.approx(expected, abs=1e-10)  # both exact up to rounding


def test_true_evidence_is_an_integral():
    """Against Gauss and Legendre's quadrature of the density; its nodes are 0.08 apart at most."""
    prior = toys.small_prior()
    x, y, likelihood = toys.regression(3, seed=2)

    nodes, weights = (torch.from_numpy(5 * each) for each in np.polynomial.legendre.leggauss(200))
    log_density = toys.log_density_of_weights(
        prior, likelihood, x, y, torch.cartesian_prod(nodes, nodes)
    )
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


@pytest.mark.parametrize("seed", range(2))
def test_bound_is_below_the_truth_and_laplace_tends_to_it(seed):
    table = toys.evidence_table((4, 128), seed)
    assert (table["lower bound"] <= 1e-9).all()
    assert abs(table["with both constants"].iloc[-1]) < 0.05
    # What the print lacks: (M + 1)/2 log(2 pi) + log 2 with M = 2.
    lack = 1.5 * math.log(2 * math.pi) + math.log(2)
    assert table["as printed"].iloc[-1] == pytest.approx(-lack, abs=0.05)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    values=st.lists(
        st.tuples(st.floats(-20, 20), st.floats(-20, 20), st.sampled_from([-1, 1])),
        min_size=1,
        max_size=6,
    )
)
def test_theorem_8_points_the_other_way(values):
    """For sources with values a or b at each input, equally likely: Jensen, in closed form."""
    low, high, sign = (np.array(column, dtype=float) for column in zip(*values, strict=True))

    def loss(nu):
        return np.logaddexp(0, -sign * nu).mean()

    averaged = (loss(low) + loss(high)) / 2
    assert loss((low + high) / 2) <= averaged + 1e-12


def test_losses_are_ordered():
    prior = toys.small_prior()
    x, y, likelihood = toys.classification(25, seed=3)
    posterior = laplace(prior, likelihood, x, y)
    found = toys.losses(posterior, x, y, 5000, seed=0)
    slack = 4 * found["error"]
    assert found["of the mean source"] <= found["averaged over sources"] + slack
    assert found["of the averaged probability"] <= found["averaged over sources"] + slack


def test_every_data_set_is_one_fitted_alone():
    prior = toys.small_prior()
    table = toys.compare_losses(prior, (5, 12), range(2, 4), 300)
    assert table.index.tolist() == [(5, 2), (5, 3), (12, 2), (12, 3)]
    x, y, likelihood = toys.classification(12, 2)
    new = toys.classification(1000, 10_000)[:2]
    alone = toys.losses(laplace(prior, likelihood, x, y), *new, 300, 2)
    assert table.loc[12, 2].tolist() == pytest.approx(alone.tolist())


def test_same_seed_same_data():
    one, other = toys.classification(9, seed=4), toys.classification(9, seed=4)
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])
