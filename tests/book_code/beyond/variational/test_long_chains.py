"""The jumps have the density that they say, and the chains settle where the truth is known."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from bayesloss import ISGP, Gaussian, TrigonometricKernel
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss_book.beyond.variational import long_chains
from bayesloss_book.beyond.variational.fits import grid_evidence


@pytest.fixture(scope="module")
def problem():
    prior = ISGP(TrigonometricKernel(a=2.0, c=0.25, n_basis=2))
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(12, dtype=torch.float64, generator=generator) - 1
    y = torch.tanh(2 * x) + 0.5 * torch.randn(12, dtype=torch.float64, generator=generator)
    likelihood = Gaussian(4.0)
    joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))
    starts = torch.cat([prior.start(x)[None], prior.sample(4, generator)])
    return joint, x, y, long_chains.jumper(long_chains.gaussians(joint, x, y, starts, "normal"))


def test_density_of_the_mixture(problem):
    *_, mixture = problem
    points = mixture.sample(50, torch.Generator().manual_seed(1))
    flip = np.array([-1.0, -1.0, 1.0])
    parts = []
    for mean, root, log_weight in zip(
        mixture.means.numpy(), mixture.roots.numpy(), mixture.log_weights.numpy(), strict=True
    ):
        for sign in (np.ones(3), flip):
            S = (root @ root.T) * np.outer(sign, sign)
            parts.append(
                log_weight - np.log(2) + multivariate_normal(mean * sign, S).logpdf(points)
            )
    np.testing.assert_allclose(mixture.log_density(points), logsumexp(parts, axis=0), rtol=1e-10)


def test_importance_sampling_has_the_evidence(problem):
    joint, x, y, mixture = problem
    value, error, share = long_chains.importance_evidence(joint, mixture, 20_000, 0)
    truth = grid_evidence(joint.prior, joint.likelihood, x, y)
    assert abs(value - truth) < 4 * error and error < 0.02
    assert share > 0.3


def test_chains_against_importance_sampling(problem):
    pytest.importorskip("numpyro", reason="the extra chains is not installed")
    joint, x, _, mixture = problem
    start = mixture.sample(4, torch.Generator().manual_seed(2))
    Gamma, went = long_chains.nuts(
        joint, mixture, start, n_draws=400, n_warm_up=200, n_jumps=2, target_acceptance=0.8, seed=0
    )
    nu = joint.prior.source(x, Gamma.flatten(0, 1)).reshape(4, 400, -1)
    points = mixture.sample(100_000, torch.Generator().manual_seed(3))
    log_p = torch.stack([joint(point) for point in points[:20_000]])
    weights = torch.softmax(log_p - mixture.log_density(points[:20_000]), dim=0)
    exact = weights @ joint.prior.source(x, points[:20_000])
    spread = nu.flatten(0, 1).std(dim=0)
    # 1,600 draws, of which at least one in four is worth an independent one.
    assert bool(((nu.mean(dim=(0, 1)) - exact).abs() < 4 * spread / 20).all())
    assert went["jumps"] > 0.2 and went["divergences"] == 0
