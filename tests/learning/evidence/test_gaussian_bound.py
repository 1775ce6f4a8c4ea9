"""The bound of any Gaussian: moments, derivatives, twins, against Monte Carlo and differences."""

import math

import numpy as np
import pytest
import torch
from gaussian_problems import PRIORS, any_gaussian, joint_of, labels, simulate
from scipy import integrate

from bayesloss import Bernoulli, Gaussian, MatsushitaLoss, variational
from bayesloss.learning.evidence import gaussian_bound, source_law
from bayesloss.learning.evidence.gaussian_bound import GaussianBound


@pytest.fixture(params=PRIORS.values(), ids=PRIORS.keys())
def prior(request):
    return request.param


class TestMoments:
    def test_against_monte_carlo(self, prior):
        x, y = simulate(8)
        joint = joint_of(prior, Bernoulli(), x, (y > 0).double())
        m, precision = any_gaussian(prior)
        bound = GaussianBound(joint)
        q = bound(m, precision)
        n = 200_000
        mean, variance = bound.joint.moments(q.m, q.root, q.slopes)
        noise = torch.from_numpy(np.random.default_rng(3).normal(size=(n, len(m))))
        nu = prior.source(x, m + noise @ q.root.T)
        assert bool(((nu.mean(0) - mean).abs() < 4.5 * nu.std(0) / math.sqrt(n)).all())
        squares = (nu - mean) ** 2
        error = squares.std(0) / math.sqrt(n)
        assert bool(((squares.mean(0) - variance).abs() < 4.5 * error).all())


class TestDerivatives:
    @pytest.mark.parametrize(
        "likelihood",
        [Gaussian(5.0), Bernoulli(), Bernoulli(MatsushitaLoss())],
        ids=["gaussian", "labels", "matsushita"],
    )
    def test_finite_differences(self, prior, likelihood, monkeypatch):
        monkeypatch.setattr(source_law, "LEAST", 0.0)  # the derivatives of what is left out are
        x, y = simulate(12) if isinstance(likelihood, Gaussian) else labels(12)
        bound = GaussianBound(joint_of(prior, likelihood, x, y))
        m, precision = any_gaussian(prior, seed=4)
        m = 0.3 * m  # so that the twins overlap, and their share has a slope
        q = bound(m, precision)
        gradient, hessian = bound.derivatives(q)
        noise = torch.randn((len(m), len(m)), dtype=torch.float64)
        S = q.root @ q.root.T
        scale = prior.precision.sqrt()

        def at(step):
            """L with the mean and the covariance moved along one line."""
            moved = S + step * q.root @ (noise + noise.T) @ q.root.T
            there = torch.linalg.inv(moved) / torch.outer(scale, scale)
            return float(bound(m + step * q.root @ noise[0], 0.5 * (there + there.T)).value)

        slope_S = 0.5 * (torch.linalg.inv(S) - hessian)  # dL/dS
        expected = float(gradient @ q.root @ noise[0])
        expected += float((slope_S * (q.root @ (noise + noise.T) @ q.root.T)).sum())
        # Fourth-order differences: 1e-12 of truncation, 1e-11 of rounding.
        h = 1e-3
        found = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


class TestTwin:
    @pytest.mark.parametrize("delta", [1e-6, 0.3, 2.0, 15.0, 80.0])
    def test_share_of_the_twin(self, delta):
        """The information of +-sqrt(delta) in standard normal noise, by SciPy's quadrature."""
        prior = PRIORS["isgp"]
        m = torch.zeros(7, dtype=torch.float64)
        m[0] = math.sqrt(delta / float(prior.precision[0]))
        bound = GaussianBound(joint_of(prior, Gaussian(1.0), *simulate(5)))
        share, slope, _ = bound.twin(m, torch.eye(7, dtype=torch.float64))

        def information(delta):
            def lost(z):
                return math.exp(-z * z / 2) * np.logaddexp(0, -2 * (delta + math.sqrt(delta) * z))

            value, _ = integrate.quad(lost, -12, 12, epsabs=1e-12, limit=200)
            return math.log(2) - value / math.sqrt(2 * math.pi)

        # 20 nodes; never worth more than a thousandth of a nat.
        assert float(share) == pytest.approx(information(delta), abs=1e-3)
        h = 0.01 * delta
        rise = (information(delta + h) - information(delta - h)) / (2 * h)
        assert float(slope) == pytest.approx(rise, abs=2e-3)


class TestManyLabels:
    """More labels than rows whose whole laws are asked for."""

    @pytest.mark.parametrize("n", [65, 400])
    def test_splines_stand_for_the_rest(self, n, monkeypatch):
        prior = PRIORS["isgp"]
        (x, y) = labels(n, seed=1)
        joint = joint_of(prior, Bernoulli(), x, y)
        m, precision = any_gaussian(prior)
        few = GaussianBound(joint)(0.5 * m, precision)
        monkeypatch.setattr(gaussian_bound, "_ROWS", n)
        every = GaussianBound(joint)(0.5 * m, precision)
        # Cubic splines over 64 places of a function as smooth as the kernel; 1e-6 a label.
        assert float(few.value) == pytest.approx(float(every.value), abs=1e-6 * n)
        torch.testing.assert_close(few.pull, every.pull, rtol=0, atol=1e-5 * n)
        torch.testing.assert_close(few.bend, every.bend, rtol=0, atol=1e-5 * n)

    def test_clusters(self, monkeypatch):
        """Inputs that all but coincide, and a few far away."""
        generator = np.random.default_rng(4)
        x = np.concatenate([0.3 + 1e-9 * generator.normal(size=150), [-0.9, -0.5, 0.8]])
        x = torch.from_numpy(x)
        y = torch.from_numpy((generator.random(153) < 0.6).astype(float))
        joint = joint_of(PRIORS["isgp"], Bernoulli(), x, y)
        m, precision = any_gaussian(PRIORS["isgp"])
        few = GaussianBound(joint)(0.5 * m, precision)
        monkeypatch.setattr(gaussian_bound, "_ROWS", 153)
        every = GaussianBound(joint)(0.5 * m, precision)
        assert float(few.value) == pytest.approx(float(every.value), abs=1e-6 * 153)
        assert variational(PRIORS["isgp"], Bernoulli(), x, y).converged
