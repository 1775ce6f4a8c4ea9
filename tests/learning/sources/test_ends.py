"""Tests of the ISGP with straight ends: geometry, draws, and what it leaves alone."""

import numpy as np
import pytest
import torch

from bayesloss import GP, ISGP, Gaussian, TrigonometricKernel, laplace
from bayesloss.learning.evidence.mixtures import PosteriorMixture
from bayesloss.learning.sources.priors import CentredISGP, StraightEnds

INSIDE = torch.linspace(-1, 1, 21, dtype=torch.float64)
BEYOND = torch.tensor([-40, -3, -1.5, 1.5, 3, 40], dtype=torch.float64)


EDGE = 2.5
PLAIN = ISGP(TrigonometricKernel(a=1.5, c=0.25, n_basis=6), mu=0.3, gamma=2.0)
LINE = CentredISGP(TrigonometricKernel(a=1.5, c=1 / EDGE, n_basis=8).scaled(0.4), tau=0.5, mu=0.3)


@pytest.fixture(
    params=[(PLAIN, 1.0, 0.125), (LINE, EDGE, 2 * EDGE)], ids=["plain", "around a line"]
)
def case(request):
    """A prior, the same with straight ends, where they begin and how far back they look; draws."""
    plain, end, back = request.param
    Gamma = plain.sample(5, torch.Generator().manual_seed(0))
    return plain, StraightEnds(plain, end, back), end, back, Gamma


def test_inside_it_is_the_isgp(case):
    plain, straight, end, _, Gamma = case
    x = end * INSIDE
    for of in ("source", "derivative"):
        expected = getattr(plain, of)(x, Gamma)
        torch.testing.assert_close(getattr(straight, of)(x, Gamma), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(straight.features(x), plain.features(x), rtol=1e-12, atol=0)
    assert torch.equal(straight.sample(5, torch.Generator().manual_seed(0)), Gamma)


@pytest.mark.parametrize("sign", [-1, 1])
def test_beyond_it_is_the_line_through_two_points(case, sign):
    """Through nu at the end and some way inside, by NumPy."""
    plain, straight, end, back, Gamma = case
    at = torch.tensor([end - back, end], dtype=torch.float64)
    far = sign * end * np.array([1.0, 1.7, 4.0, 90.0])
    got = straight.source(torch.from_numpy(far), Gamma).numpy()
    for two, path in zip(plain.source(sign * at, Gamma).numpy(), got, strict=True):
        np.testing.assert_allclose(path, np.polyval(np.polyfit(at, two, 1), abs(far)), rtol=1e-9)


def test_features_and_slopes_are_the_sources(case):
    """Also far out, where nu is large; slopes by central differences."""
    _, straight, end, _, Gamma = case
    x = end * torch.cat([BEYOND, BEYOND / 50])
    step = 1e-5
    by_features = straight.coefficients(Gamma) @ straight.features(x).T
    torch.testing.assert_close(by_features, straight.source(x, Gamma), rtol=1e-10, atol=1e-10)
    rise = straight.source(x + step, Gamma) - straight.source(x - step, Gamma)
    # Rounding of values near 100 at a step of 1e-5.
    for found, expected in zip(straight.derivative(x, Gamma), rise / (2 * step), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(straight.derivative(x, Gamma[0]), straight.derivative(x, Gamma)[0])


def test_moments_are_those_of_the_draws():
    noise = torch.randn(21, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    posterior = laplace(PLAIN, Gaussian(25.0), INSIDE, torch.tanh(2 * INSIDE) + 0.2 * noise)
    one = PosteriorMixture([posterior], torch.ones(1, dtype=torch.float64))
    mixture = one.with_straight_ends()
    n = 20_000
    paths = mixture.sample_source(BEYOND, n, torch.Generator().manual_seed(2))
    mean, variance = mixture.moments(BEYOND)
    assert bool(((paths.mean(dim=0) - mean).abs() < 4 * (variance / n).sqrt()).all())
    np.testing.assert_allclose(paths.var(dim=0), variance, rtol=0.1)
    assert float(paths.diff(dim=1).min()) >= 0
    assert bool((variance[3:].diff() > 0).all())
    assert bool((variance[:3].diff() < 0).all())


def test_a_gaussian_process_stays_as_it_is():
    prior = GP(TrigonometricKernel(a=1.5, c=0.25, n_basis=6))
    posterior = laplace(prior, Gaussian(25.0), INSIDE, INSIDE)
    mixture = PosteriorMixture([posterior], torch.ones(1).double()).with_straight_ends()
    assert mixture.components[0] is posterior


def test_around_a_line_the_prior_mean_is_that_line_everywhere():
    x = torch.tensor([-7.0, 0.0, 1.0, 12.0]).double()
    straight = StraightEnds(LINE, EDGE, 2 * EDGE)
    root = torch.diag(straight.precision.rsqrt())
    mean = straight.features(x) @ straight.mean_coefficients(straight.location, root)
    torch.testing.assert_close(mean, 0.3 + x)
