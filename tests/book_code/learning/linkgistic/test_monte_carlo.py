"""Draws against the exact mean: their error falls as it should, from a truth known otherwise."""

from functools import cache

import numpy as np
import torch

from bayesloss import ISGP, Bernoulli, TrigonometricKernel, laplace
from bayesloss_book.learning.linkgistic import monte_carlo
from bayesloss_book.references.source_laws import law_at

PRIOR = ISGP(TrigonometricKernel(a=1.5, c=0.25, n_basis=8))
X = torch.linspace(-1, 1, 40, dtype=torch.float64)
Y = (torch.sin(9 * X) + 2 * X > 0).double()
POSTERIOR = laplace(PRIOR, Bernoulli(), X, Y)
SEEDED = torch.Generator().manual_seed(1)
NU = cache(lambda: PRIOR.source(X, POSTERIOR.sample(200_000, SEEDED)))  # drawn once
LOG = torch.nn.functional.logsigmoid


def near(values, exact, slack=0.0):
    """Means over draws within 4.5 standard errors of what is exact."""
    error = values.std(dim=0) / len(values) ** 0.5
    return bool(((values.mean(dim=0) - exact).abs() < 4.5 * error + 1e-7 + slack).all())


def test_the_exact_means_against_many_draws():
    found = law_at(POSTERIOR, X).expected_log_sigmoid()
    assert near(LOG(NU()), found.value)
    assert near(torch.sigmoid(-NU()), found.by_mean)
    spread = monte_carlo.spread(POSTERIOR, X, Y)
    assert abs(spread - LOG((2 * Y - 1) * NU()).mean(dim=0).std()) < 0.005


def test_one_normal_has_three_moments():
    law = law_at(POSTERIOR, X)
    one = monte_carlo.of_one_normal(law)
    z = torch.linspace(-12, 12, 4801, dtype=torch.float64)[:, None]
    weight = torch.softmax(-0.5 * z**2, dim=0)
    nu = one.mean + one.slopes[:, 0] * z + one.eigenvalues[:, 0] * (z**2 - 1)
    mean = (weight * nu).sum(dim=0)
    assert torch.allclose(mean, law.mean, rtol=0, atol=1e-12)
    assert torch.allclose((weight * (nu - mean) ** 2).sum(dim=0), law.variance, rtol=1e-9)
    third = (weight * (nu - mean) ** 3).sum(dim=0)
    scale = law.variance**1.5
    assert near((NU() - law.mean) ** 3 / scale, third / scale)
    assert float((third / scale).abs().max()) > 0.5  # far from normal
    value = one.expected_log_sigmoid().value
    assert torch.allclose(value, (weight * LOG(nu)).sum(dim=0), rtol=0, atol=1e-7)


def test_errors_fall():
    """Random draws by a half for four times as many; even ones are never behind from 16 on."""
    table = monte_carlo.errors(POSTERIOR, X, Y, n_repeats=30, seed=0)
    for what in monte_carlo.MEASURES:
        random = table[what, "random"].dropna().to_numpy()
        assert np.abs(np.log2(random[:-1] / random[1:]) - 1).max() < 0.7  # of thirty repeats each
    label = table["a label"].loc[16:]
    assert (label["even"] < label["random"]).all()
    # Q by another route: the log likelihood of labels, over many draws.
    many = LOG((2 * Y - 1) * NU()).mean()
    few = PRIOR.source(X, POSTERIOR.sample(4, torch.Generator().manual_seed(0)))
    off = LOG((2 * Y - 1) * few).mean() - many
    one = monte_carlo.errors(POSTERIOR, X, Y, n_repeats=1, seed=0, sizes=(4,))
    assert abs(one.loc[4, ("Q", "random")] - abs(off)) < 0.005
    assert len(monte_carlo.draw_errors(table).axes[1].lines) == 3
