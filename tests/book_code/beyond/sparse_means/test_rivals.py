"""The rivals: each against another route."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from bayesloss_book.beyond.sparse_means import rivals
from bayesloss_book.beyond.sparse_means.problems import draw
from bayesloss_book.models.sparse_means import sparse_mean_kl

PROBLEM = draw("line", 2.0, 7, 0)


@pytest.mark.parametrize("name", [*rivals.FIXED, *rivals.PLACED, *rivals.ORACLES])
def test_every_method_gives_k_functions(name):
    inputs, mean = rivals.fit(name, PROBLEM, 7)
    assert inputs.shape == mean.shape == (7,) and bool(torch.isfinite(mean).all())
    if name in rivals.FIXED or name == "least possible":
        assert torch.equal(inputs, PROBLEM.model.x[PROBLEM.support])


def test_least_possible_is_least_on_its_support():
    model = PROBLEM.model

    def loss(name):
        inputs, mean = rivals.fit(name, PROBLEM, 7)
        return float(model.divergence(mean, PROBLEM.fresh, PROBLEM.weights, inputs))

    best = loss("least possible")
    assert all(best <= loss(name) for name in rivals.FIXED)
    assert loss("least possible at the targets") <= loss("FITC at the targets")


def test_density_ratio_of_gaussians():
    """Within a factor of 1.5 where test inputs are; the densities are known."""
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=4_000))
    points = torch.tensor(rng.normal(1, 0.7, size=4_000))
    found = rivals.density_ratio(x, points)
    truth = multivariate_normal(1, 0.49).pdf(x.numpy()) / multivariate_normal(0, 1).pdf(x.numpy())
    ratio = (found.numpy() / truth)[(x - 1).abs() < 1.4]
    assert float(found.mean()) == pytest.approx(1) and 1 / 1.5 < ratio.min() < ratio.max() < 1.5


def test_weights_count_data():
    """A datum of weight 2 is two data."""
    model = PROBLEM.model
    support = PROBLEM.model.x[PROBLEM.support]
    weights = torch.ones(len(model.y), dtype=torch.float64)
    weights[3] = 2
    x, y = (torch.cat([part, part[3:4]]) for part in (model.x, model.y))
    twice = type(model)(model.kernel, x, y, noise_variance=model.noise_variance)
    found = sparse_mean_kl(model, support, weights=weights)
    torch.testing.assert_close(found, sparse_mean_kl(twice, support), rtol=0, atol=1e-9)


def test_moved_inputs_raise_the_bound():
    """Titsias' bound by SciPy's density of N(0, Q + noise) and a trace."""
    model = PROBLEM.model

    def bound(Z):
        cross = model.kernel(model.x, Z).numpy()
        Q = cross @ np.linalg.solve(model.kernel(Z, Z).numpy() + 1e-8 * np.eye(len(Z)), cross.T)
        noisy = Q + model.noise_variance * np.eye(len(Q))
        density = multivariate_normal(np.zeros(len(Q)), noisy).logpdf(model.y.numpy())
        return density - (len(Q) - np.trace(Q)) / (2 * model.noise_variance)

    start = model.x[PROBLEM.support]
    values = [bound(rivals.inputs_by_the_bound(model, start, max_iter=n)) for n in (1, 5, 100)]
    assert bound(start) < values[0] < values[1] < values[2] < math.inf
