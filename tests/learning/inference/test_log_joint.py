"""Tests of the log joint density against its dense textbook form, with psi, on the raw data."""

import math

import numpy as np
import pytest
import torch
from textbook_joint import log_joint, nu_of, prior_of, simulate

from bayesloss import GP, ISGP, Bernoulli, Gaussian
from bayesloss.learning.inference.log_joint import LogJoint

# torch.func compiles a helper by torch.jit, which recent releases deprecate.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


@pytest.fixture(params=[ISGP, GP], ids=["ISGP", "GP"])
def prior(request):
    return prior_of(request.param)


class TestLogJoint:
    """Against automatic differentiation of the dense textbook form, on the raw data."""

    alpha = 7.0

    def setup_method(self):
        self.x, self.y = simulate()

    def joint(self, prior):
        likelihood = Gaussian(self.alpha)
        return LogJoint(prior, likelihood, likelihood.condense(prior.features, self.x, self.y))

    def textbook(self, prior):
        return lambda Gamma: log_joint(prior, self.alpha, self.x, self.y, Gamma)

    @pytest.mark.parametrize("seed", [0, 1])
    def test_value_and_gradient(self, prior, seed):
        Gamma = prior.sample(1, torch.Generator().manual_seed(seed))[0]
        joint = self.joint(prior)
        textbook = self.textbook(prior)
        # Sums of forty terms, a few hundred nats.
        torch.testing.assert_close(joint(Gamma), textbook(Gamma), rtol=1e-12, atol=0)
        expected = torch.func.grad(textbook)(Gamma)
        scale = float(expected.abs().max())
        torch.testing.assert_close(
            joint.derivatives(Gamma)[0], expected, rtol=0, atol=1e-11 * scale
        )

    @pytest.mark.parametrize("seed", [0, 1])
    def test_hessian(self, prior, seed):
        """Eq. (11): to 1e-8 relative, as the issue asks, entry by entry."""
        Gamma = prior.sample(1, torch.Generator().manual_seed(seed))[0]
        expected = -torch.func.hessian(self.textbook(prior))(Gamma)
        got = self.joint(prior).hessian(Gamma)
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-11 * float(expected.max()))

    def test_curvature_is_the_hessian_in_units_of_the_prior(self, prior):
        """The log determinants differ by that of the prior's precision; the prior alone gives 1."""
        joint = self.joint(prior)
        Gamma = prior.sample(1, torch.Generator().manual_seed(3))[0]
        scale = torch.diag(prior.precision.rsqrt())
        expected = scale @ joint.hessian(Gamma) @ scale
        torch.testing.assert_close(joint.curvature(Gamma), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("kind", [ISGP, GP])
def test_derivatives_with_labels(kind):
    """Eq. (19), against automatic differentiation of the textbook's form."""
    prior, (x, y), likelihood = prior_of(kind), simulate(60), Bernoulli()
    labels = (y > 0).double()
    joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, labels))
    Gamma = prior.sample(1, torch.Generator().manual_seed(0))[0]

    def textbook(g):
        fit = torch.distributions.Bernoulli(logits=nu_of(prior, x, g)).log_prob(labels).sum()
        return fit + log_joint(prior, 1.0, x[:0], x[:0], g)

    torch.testing.assert_close(joint(Gamma), textbook(Gamma), rtol=1e-12, atol=0)
    slope = torch.func.grad(textbook)(Gamma)
    hessian = -torch.func.hessian(textbook)(Gamma)
    torch.testing.assert_close(joint.derivatives(Gamma)[0], slope, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(joint.hessian(Gamma), hessian, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("apart", [0.3, 1.0, 2.0, 4.0])
def test_the_twins_share_is_no_more_than_what_the_mixture_gains(apart):
    """Along w, in standard deviations, the twins are normal around +-apart: by quadrature."""
    prior = prior_of(ISGP)
    generator = np.random.default_rng(0)
    half = generator.normal(size=(7, 7))
    curvature = half @ half.T + np.eye(7)  # in units of the prior's standard deviations
    covariance = np.linalg.inv(curvature)
    direction = generator.normal(size=6)
    direction *= apart / math.sqrt(direction @ np.linalg.inv(covariance[:-1, :-1]) @ direction)
    Gamma = torch.from_numpy(np.append(direction, 0.3) * prior.precision.rsqrt().numpy())
    x = np.linspace(-apart - 12, apart + 12, 20_001)
    mixture = (np.exp(-0.5 * (x - apart) ** 2) + np.exp(-0.5 * (x + apart) ** 2)) / math.sqrt(
        8 * np.pi
    )
    entropy = -np.sum(mixture * np.log(np.maximum(mixture, 1e-300))) * (x[1] - x[0])
    gain = entropy - 0.5 * math.log(2 * math.pi * math.e)
    joint = LogJoint(prior, Gaussian(), Gaussian().condense(prior.features, *simulate()))
    share = float(joint.twin_bound(Gamma, torch.from_numpy(curvature)))
    assert gain - 0.15 < share < gain
    # Kolchinsky and Tracey's bound exactly: by the twins' overlap, the Bhattacharyya coefficient.
    densities = np.exp(-0.5 * (x - apart) ** 2) * np.exp(-0.5 * (x + apart) ** 2) / (2 * np.pi)
    overlap = np.sum(np.sqrt(densities)) * (x[1] - x[0])
    assert share == pytest.approx(math.log(2) - math.log1p(overlap), rel=1e-9)
