"""Pr[nu <= v] against closed forms and draws, and an average of laws against draws."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from bayesloss import LinkCalibrator
from bayesloss.learning.evidence.source_law import SourceLaw
from bayesloss_book.references.source_laws import MixtureLaw, below


def square(l, lam, mean, n):
    """The law of mean + l z + lam (z^2 - 1), n times."""
    eye = torch.eye(1).double()
    full = torch.full((n,), 1.0).double()
    rows = (full[:, None] * l, full[:, None] * lam)
    return SourceLaw(full * mean, full * (l**2 + 2 * lam**2), eye, eye.expand(n, 1, 1), *rows)


@pytest.mark.parametrize("lam", [-0.8, -0.05, 0.3, 2.0])
def test_a_shifted_square_is_a_noncentral_chi_square(lam):
    """lam (z + l / (2 lam))^2 is one of one degree of freedom; z moves little where lam does."""
    l = 6 * abs(lam)
    law = square(l, lam, 1.5, 9)
    v = law.mean + law.variance.sqrt() * torch.linspace(-2, 2, 9).double()
    from_square = (v - 1.5 + lam + l**2 / (4 * lam)) / lam
    truth = stats.ncx2.cdf(from_square.numpy(), 1, (l / (2 * lam)) ** 2)
    np.testing.assert_allclose(below(law, v), truth if lam > 0 else 1 - truth, atol=2e-3)


def test_a_normal_law():
    law = SourceLaw.normal(torch.tensor([0.0, 3.0]).double(), torch.tensor([1.0, 25.0]).double())
    v = torch.tensor([0.7, -4.0]).double()
    np.testing.assert_allclose(below(law, v), stats.norm.cdf([0.7, -7 / 5]), atol=1e-12)


def test_an_average_against_draws_of_each_part():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=80)
    y = rng.random(80) < 1 / (1 + np.exp(-3 * scores))
    average = LinkCalibrator().fit(scores, y).average_
    x = torch.linspace(-1, 1, 4).double()
    generator = torch.Generator().manual_seed(1)
    shares = 0
    means = 0
    errors = 0
    law = MixtureLaw(average, x)
    size = 40_000
    v = average.moments(x)[0] - 0.5
    for weight, part in zip(average.weights, average.components, strict=True):
        nu = part.prior.source(x, part.sample(size, generator))
        shares = shares + weight * (nu <= v).double().mean(dim=0)
        means = means + weight * torch.sigmoid(nu).mean(dim=0)
        errors = errors + weight**2 / size
    # Standard errors of shares, and of probabilities, are at most half of this.
    assert float((law.below(v) - shares).abs().max()) < 2.2 * math.sqrt(errors)
    assert float((law.mean_probability() - means).abs().max()) < 2.2 * math.sqrt(errors)
