"""Draws against the exact mean: their error falls as it should, from a truth known otherwise."""

import numpy as np
import torch

from bayesloss import ISGP, Bernoulli, TrigonometricKernel, laplace
from bayesloss_book.learning.linkgistic import monte_carlo

PRIOR = ISGP(TrigonometricKernel(a=1.5, c=0.25, n_basis=8))
X = torch.linspace(-1, 1, 40, dtype=torch.float64)
POSTERIOR = laplace(PRIOR, Bernoulli(), X, (torch.sin(9 * X) + 2 * X > 0).double())


def test_the_exact_mean_against_many_draws():
    Gamma = POSTERIOR.sample(200_000, torch.Generator().manual_seed(1))
    values = torch.nn.functional.logsigmoid(PRIOR.source(X, Gamma))
    error = values.std(dim=0) / len(Gamma) ** 0.5
    exact = monte_carlo.expected_log_sigmoid(POSTERIOR, X)
    assert bool(((values.mean(dim=0) - exact).abs() < 4.5 * error + 1e-7).all())


def test_errors_fall():
    """Random draws by a half for four times as many; even ones are never behind from 16 on."""
    table = monte_carlo.errors(POSTERIOR, X, n_repeats=30, seed=0)
    ratio = table["random"].to_numpy()[:-1] / table["random"].to_numpy()[1:]
    assert np.abs(np.log2(ratio) - 1).max() < 0.7  # of thirty repeats each
    assert (table["even"] < table["random"])[16:].all()
    assert len(monte_carlo.draw_errors(table).axes[0].lines) == 2
