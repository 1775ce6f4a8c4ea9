"""Tests of the ISGP with straight ends: geometry, draws, and what it leaves alone."""

import numpy as np
import pytest
import torch

from bayesloss import GP, ISGP, Gaussian, TrigonometricKernel, laplace
from bayesloss.learning.evidence.mixtures import PosteriorMixture
from bayesloss.learning.sources.priors import CentredISGP, StraightEnds

INSIDE = torch.linspace(-1, 1, 21, dtype=torch.float64)
BEYOND = torch.tensor([-40, -3, -1.5, 1.5, 3, 40], dtype=torch.float64)


def priors():
    plain = ISGP(TrigonometricKernel(a=1.5, c=0.25, n_basis=6), mu=0.3, gamma=2.0)
    return plain, StraightEnds(plain, 1.0, 0.125)


def draws(prior, n=5):
    return prior.sample(n, torch.Generator().manual_seed(0))


def test_inside_it_is_the_isgp():
    plain, straight = priors()
    Gamma = draws(plain)
    for of in ("source", "derivative"):
        expected = getattr(plain, of)(INSIDE, Gamma)
        assert torch.equal(getattr(straight, of)(INSIDE, Gamma), expected)
    assert torch.equal(straight.features(INSIDE), plain.features(INSIDE))
    assert torch.equal(draws(straight), Gamma)


@pytest.mark.parametrize("sign", [-1, 1])
def test_beyond_it_is_the_line_through_two_points(sign):
    """Through nu at the end and an eighth of a unit inside, by NumPy."""
    plain, straight = priors()
    Gamma = draws(plain)
    ends = plain.source(sign * torch.tensor([0.875, 1.0], dtype=torch.float64), Gamma).numpy()
    far = sign * np.array([1.0, 1.7, 4.0, 90.0])
    got = straight.source(torch.from_numpy(far), Gamma).numpy()
    for (back, end), path in zip(ends, got, strict=True):
        line = np.polyval(np.polyfit([0.875, 1], [back, end], 1), abs(far))
        np.testing.assert_allclose(path, line, rtol=1e-9)


def test_features_and_slopes_are_the_sources():
    """Also far out, where nu is large; slopes by central differences."""
    _, straight = priors()
    Gamma, step = draws(straight), 1e-5
    by_features = straight.coefficients(Gamma) @ straight.features(BEYOND).T
    torch.testing.assert_close(by_features, straight.source(BEYOND, Gamma), rtol=1e-10, atol=1e-10)
    rise = straight.source(BEYOND + step, Gamma) - straight.source(BEYOND - step, Gamma)
    # Rounding of values near 100 at a step of 1e-5.
    torch.testing.assert_close(
        straight.derivative(BEYOND, Gamma), rise / (2 * step), rtol=1e-6, atol=1e-7
    )


def test_moments_are_those_of_the_draws():
    """Within four standard errors; monotone, and the wider the farther out."""
    plain, _ = priors()
    noise = torch.randn(21, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    posterior = laplace(plain, Gaussian(25.0), INSIDE, torch.tanh(2 * INSIDE) + 0.2 * noise)
    one = PosteriorMixture([posterior], torch.ones(1, dtype=torch.float64))
    mixture, n = one.with_straight_ends(), 20_000
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


EDGE = 2.5


@pytest.fixture
def lines():
    kernel = TrigonometricKernel(a=1.5, c=1 / EDGE, n_basis=8).scaled(0.4)
    line = CentredISGP(kernel, tau=0.5, mu=0.3)
    return line, StraightEnds(line, EDGE, 2 * EDGE)


@pytest.fixture
def Gamma(lines):
    return lines[0].sample(3, torch.Generator().manual_seed(0))


def test_around_a_line_paths_are_those_of_the_isgp_on_the_period_and_straight_beyond(lines, Gamma):
    plain, continued = lines
    x = torch.linspace(-EDGE, EDGE, 41, dtype=torch.float64)
    inner = plain.source(x, Gamma)
    torch.testing.assert_close(continued.source(x, Gamma), inner)
    slope = (inner[:, -1] - inner[:, 0]) / (2 * EDGE)
    far = torch.tensor([0.1, 1.0, 30.0], dtype=torch.float64)
    rise = slope[:, None] * far
    torch.testing.assert_close(continued.source(EDGE + far, Gamma), inner[:, -1:] + rise)
    torch.testing.assert_close(continued.source(-EDGE - far, Gamma), inner[:, :1] - rise)


def test_slopes_are_those_of_finite_differences(lines, Gamma):
    x = torch.tensor([-9.0, -2.6, -2.4, 0.0, 1.0, 2.49, 2.51, 7.0], dtype=torch.float64)
    step = 1e-6
    ends = [lines[1].source(x + sign * step, Gamma) for sign in (1, -1)]
    expected = (ends[0] - ends[1]) / (2 * step)
    # Cancellation costs eps nu / step, about 1e-9.
    torch.testing.assert_close(lines[1].derivative(x, Gamma), expected, rtol=0, atol=1e-8)
    torch.testing.assert_close(lines[1].derivative(x, Gamma[0]), expected[0], rtol=0, atol=1e-8)


def test_the_prior_mean_is_the_same_line_everywhere(lines):
    x = torch.tensor([-7.0, 0.0, 1.0, 12.0], dtype=torch.float64)
    location, root = lines[1].location, torch.diag(lines[1].precision.rsqrt())
    mean = lines[1].features(x) @ lines[1].mean_coefficients(location, root)
    torch.testing.assert_close(mean, 0.3 + x)
