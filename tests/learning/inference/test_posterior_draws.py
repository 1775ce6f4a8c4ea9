"""Tests of draws without chance against many random ones."""

import math

import pytest
import torch

from bayesloss import ISGP, TrigonometricKernel, laplace
from bayesloss.learning.inference.laplace import even_normals, ordered_root
from bayesloss.learning.inference.likelihoods import Bernoulli


@pytest.fixture(scope="module")
def posterior():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, dtype=torch.float64, generator=generator)
    y = (torch.rand(300, dtype=torch.float64, generator=generator) < torch.sigmoid(x)).double()
    kernel = TrigonometricKernel(a=1.5, c=0.5 / float(x.abs().max()), n_basis=32)
    return laplace(ISGP(kernel, gamma=0.01), Bernoulli(), x, y)


def test_even_normals():
    """Moments of 1024 points, nearer to the truth than random ones' standard errors."""
    z = even_normals(1024, 10)
    assert even_normals(1024, 10) is z
    assert bool(z.isfinite().all())
    assert float(z.mean(0).abs().max()) < 0.1 / math.sqrt(1024)
    covariance = z.T @ z / 1024
    assert float((covariance - torch.eye(10)).abs().max()) < math.sqrt(2 / 1024)


def test_first_columns_move_most(posterior):
    root = ordered_root(posterior, -2.0, 2.0)
    torch.testing.assert_close(root @ root.T, posterior.covariance, rtol=0, atol=1e-12)
    x = torch.linspace(-2, 2, 64, dtype=torch.float64)
    moved = [
        posterior.prior.source(x, posterior.mode + 1e-4 * column)
        - posterior.prior.source(x, posterior.mode - 1e-4 * column)
        for column in root.T
    ]
    sizes = torch.stack(moved).norm(dim=1)
    assert bool((sizes.diff() < 1e-6 * sizes[0]).all())
    assert min([float(each[each.abs().argmax()]) for each in moved[:5]]) > 0


def test_as_exact_as_many_random_draws(posterior):
    """The mean probability: 64 points against 100,000 draws, whose error is below 0.0007."""
    prior = posterior.prior
    x = torch.linspace(-2.5, 2.5, 40, dtype=torch.float64)

    def mean(Gamma):
        return torch.sigmoid(prior.source(x, Gamma)).mean(0)

    generator = torch.Generator().manual_seed(1)
    truth = torch.stack([mean(posterior.sample(10_000, generator)) for _ in range(10)]).mean(0)
    root = ordered_root(posterior, -2.5, 2.5)
    even = mean(posterior.mode + even_normals(64, len(posterior.mode)) @ root.T)
    random = [(mean(posterior.sample(64, generator)) - truth).abs().max() for _ in range(20)]
    error = float((even - truth).abs().max())
    assert error < 0.004
    assert error < 0.4 * float(torch.stack(random).mean())
    assert bool((even.diff() > 0).all())
