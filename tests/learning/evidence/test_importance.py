"""Weighted draws, against quadrature and repetition."""

import math

import numpy as np
import pytest
import torch
from grid_evidence import on_a_grid

from bayesloss import ISGP, Bernoulli, Gaussian, TrigonometricKernel, variational, weigh_draws
from bayesloss.learning.evidence.importance import WeightedDraws, log_ratios
from bayesloss.learning.inference.log_joint import LogJoint

PRIOR = ISGP(TrigonometricKernel(a=2.0, b=2.0, c=0.25, n_basis=2), gamma=1.0)


def problem(kind):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.uniform(-1, 1, 15))
    if kind == "labels":
        y = torch.from_numpy((rng.uniform(size=15) < 0.2 + 0.6 * (x.numpy() > 0)).astype(float))
        return Bernoulli(), x, y
    return Gaussian(0.3), x, torch.tanh(2 * x) + 0.5 * torch.from_numpy(rng.normal(size=15))


@pytest.mark.parametrize("kind", ["noise", "labels"])
def test_evidence_and_average_are_exact(kind):
    """With many draws both are those of the grid, whose own error is below a thousandth."""
    data = problem(kind)
    q = variational(PRIOR, *data)
    truth, mean = on_a_grid(PRIOR, *data, reach=5.5)
    found = weigh_draws(q, *data[1:], n_draws=20_000, generator=torch.Generator().manual_seed(1))
    assert found.log_evidence == pytest.approx(truth, abs=4 * found.error + 2e-3)
    nu = PRIOR.source(data[1], found.Gamma)
    average = found.weights @ nu
    spread = ((found.weights**2) @ (nu - average) ** 2).sqrt()
    assert bool(((average - mean).abs() < 4.5 * spread + 2e-3).all())
    # Nearer than the Gaussian's own value.
    assert abs(found.log_evidence - truth) < 0.5 * abs(q.log_evidence - truth)


def test_the_stated_error_is_the_error():
    likelihood, x, y = problem("noise")
    q = variational(PRIOR, likelihood, x, y)
    generator = torch.Generator().manual_seed(2)
    runs = [weigh_draws(q, x, y, n_draws=400, generator=generator) for _ in range(200)]
    spread = np.std([run.log_evidence for run in runs])
    # The standard deviation of 200 numbers is known to 5 %, and tails are a little heavy.
    assert np.mean([run.error for run in runs]) == pytest.approx(spread, rel=0.25)
    assert all(0 < run.effective_size <= 400 for run in runs)
    assert np.mean([run.log_evidence for run in runs]) > q.log_evidence


def test_what_draws_are_worth():
    """Kish's number, (sum r)^2 / sum r^2: of equal weights all draws, of one weight one."""
    for ratios, worth in (([5.0, 5.0, 5.0, 5.0], 4.0), ([1e-300, 3.0], 1.0), ([1, 2, 3], 36 / 14)):
        log_ratio = torch.tensor(ratios, dtype=torch.float64).log()
        draws = WeightedDraws(Gamma=torch.zeros(len(ratios), 1), log_ratios=log_ratio - 700)
        assert draws.effective_size == pytest.approx(worth, rel=1e-12)


def test_ratios_one_by_one():
    """Against the log joint density itself, and SciPy's formula for the two Gaussians' mean."""
    likelihood, x, y = problem("labels")
    q = variational(PRIOR, likelihood, x, y)
    joint = LogJoint(PRIOR, likelihood, likelihood.condense(PRIOR.features, x, y))
    noise = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    flip = torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64)
    halves = [
        torch.distributions.MultivariateNormal(
            q.mode * sign, q.covariance * torch.outer(sign, sign)
        )
        for sign in (flip.abs(), flip)
    ]
    for z, found in zip(noise, log_ratios(joint, q, noise), strict=True):
        Gamma = q.mode + q.root @ z
        log_q = torch.logsumexp(torch.stack([half.log_prob(Gamma) for half in halves]), 0)
        assert float(found) == pytest.approx(float(joint(Gamma) - log_q + math.log(2)), abs=1e-9)


def test_weights_of_data_and_bad_input():
    likelihood, x, y = problem("labels")
    q = variational(PRIOR, likelihood, x, y, sample_weight=torch.full_like(x, 2.0))
    twice = torch.cat([x, x]), torch.cat([y, y])
    runs = [
        weigh_draws(
            q, *data, sample_weight=w, n_draws=10, generator=torch.Generator().manual_seed(0)
        )
        for *data, w in ((x, y, torch.full_like(x, 2.0)), (*twice, None))
    ]
    torch.testing.assert_close(runs[0].log_ratios, runs[1].log_ratios)
    assert "tensor" not in repr(runs[0])  # thousands of draws do not fill a screen
    with pytest.raises(ValueError, match="n_draws of at least 2"):
        weigh_draws(q, x, y, n_draws=1)
