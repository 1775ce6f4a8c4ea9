"""The toy problems of sources, against the definitions of their pieces."""

import numpy as np
import torch

from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss_book.problems import source_problems


def test_batched_likelihood_is_the_likelihood():
    for task in source_problems.TASKS:
        prior, likelihood = source_problems.prior_and_likelihood(task, 8)
        x, y = source_problems.data_set(task, 30, 1)
        joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))
        Gamma = prior.sample(4, torch.Generator().manual_seed(0))
        found = source_problems.batched_log_likelihood(joint)(Gamma)
        expected = torch.stack([joint.log_likelihood(row) for row in Gamma])
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)


def test_simulated_data_come_from_the_source():
    Gamma, x, y = source_problems.simulate("regression", 20_000, 8, 3)
    prior, likelihood = source_problems.prior_and_likelihood("regression", 8)
    noise = (y - prior.source(x, Gamma)) * likelihood.alpha**0.5
    assert abs(float(noise.mean())) < 4 / 20_000**0.5
    assert abs(float(noise.var()) - 1) < 4 * (2 / 20_000) ** 0.5
    assert float(x.abs().max()) <= 50
    Gamma, x, y = source_problems.simulate("classification", 20_000, 8, 1)
    prior, _ = source_problems.prior_and_likelihood("classification", 8)
    expected = torch.sigmoid(prior.source(x, Gamma)).mean()
    assert abs(float(y.mean() - expected)) < 0.015


def test_diagnose_sees_a_chain_apart():
    good = np.random.default_rng(0).normal(size=(4, 500, 2))
    bad = good.copy()
    bad[0, :, 1] += 3
    assert source_problems.diagnose(good)["r_hat"] < 1.02
    assert source_problems.diagnose(bad)["r_hat"] > 1.2
