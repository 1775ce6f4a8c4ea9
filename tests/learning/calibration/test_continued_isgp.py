"""Straight lines beyond the period: by hand, and by finite differences."""

import pytest
import torch

from bayesloss import TrigonometricKernel
from bayesloss.learning.calibration.continued_isgp import ContinuedISGP
from bayesloss.learning.sources.priors import CentredISGP

EDGE = 2.5


@pytest.fixture
def priors():
    kernel = TrigonometricKernel(a=1.5, c=1 / EDGE, n_basis=8).scaled(0.4)
    return [kind(kernel, tau=0.5, mu=0.3) for kind in (CentredISGP, ContinuedISGP)]


@pytest.fixture
def Gamma(priors):
    return priors[0].sample(3, torch.Generator().manual_seed(0))


def test_paths_are_those_of_the_isgp_on_the_period_and_straight_beyond(priors, Gamma):
    plain, continued = priors
    x = torch.linspace(-EDGE, EDGE, 41, dtype=torch.float64)
    inner = plain.source(x, Gamma)
    torch.testing.assert_close(continued.source(x, Gamma), inner)
    slope = (inner[:, -1] - inner[:, 0]) / (2 * EDGE)
    far = torch.tensor([0.1, 1.0, 30.0], dtype=torch.float64)
    rise = slope[:, None] * far
    torch.testing.assert_close(continued.source(EDGE + far, Gamma), inner[:, -1:] + rise)
    torch.testing.assert_close(continued.source(-EDGE - far, Gamma), inner[:, :1] - rise)


def test_slopes_are_those_of_finite_differences(priors, Gamma):
    x = torch.tensor([-9.0, -2.6, -2.4, 0.0, 1.0, 2.49, 2.51, 7.0], dtype=torch.float64)
    step = 1e-6
    ends = [priors[1].source(x + sign * step, Gamma) for sign in (1, -1)]
    expected = (ends[0] - ends[1]) / (2 * step)
    # Cancellation costs eps nu / step, about 1e-9.
    torch.testing.assert_close(priors[1].derivative(x, Gamma), expected, rtol=0, atol=1e-8)
    torch.testing.assert_close(priors[1].derivative(x, Gamma[0]), expected[0], rtol=0, atol=1e-8)


def test_the_prior_mean_is_the_same_line_everywhere(priors):
    x = torch.tensor([-7.0, 0.0, 1.0, 12.0], dtype=torch.float64)
    location, root = priors[1].location, torch.diag(priors[1].precision.rsqrt())
    mean = priors[1].features(x) @ priors[1].mean_coefficients(location, root)
    torch.testing.assert_close(mean, 0.3 + x)
