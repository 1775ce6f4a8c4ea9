"""Tests of the average over hyper-parameters: exact cases, brute force, Monte Carlo."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm

from bayesloss import GP, ISGP, Gaussian, TrigonometricKernel, laplace, maximise_evidence
from bayesloss.learning.inference import mixtures as hyper_mixture
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.mixtures import (
    PosteriorMixture,
    _climb,
    average_hyperparameters,
    importance_weighted_bound,
)
from bayesloss.learning.inference.newton import find_mode

GRID = torch.linspace(-0.9, 0.9, 5, dtype=torch.float64)


def simulate(n=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(n, dtype=torch.float64, generator=generator) - 1
    return x, torch.tanh(2 * x) + 0.2 * torch.randn(n, dtype=torch.float64, generator=generator)


def prior_of(kind, a=2.0):
    return kind(TrigonometricKernel(a=a, c=0.25, n_basis=6))


def two_components():
    x, y = simulate()
    parts = [laplace(prior_of(ISGP, a), Gaussian(alpha), x, y) for a, alpha in ((2, 25), (9, 1.0))]
    return PosteriorMixture(parts, torch.tensor([0.3, 0.7], dtype=torch.float64))


class TestImportanceWeightedBound:
    def bound(self, kind, n_draws, seed=0):
        x, y = simulate()
        prior, likelihood = prior_of(kind), Gaussian(25.0)
        posterior = laplace(prior, likelihood, x, y)
        joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(n_draws, 7, dtype=torch.float64, generator=generator)
        return float(importance_weighted_bound(joint, posterior, noise)), posterior

    def test_exact_where_the_posterior_is_gaussian(self):
        """For a GP every draw gives the evidence itself: here by the n x n formula."""
        x, y = simulate()
        covariance = prior_of(GP).kernel(x[:, None], x) + 1 + torch.eye(40).double() / 25
        normal = torch.distributions.MultivariateNormal(torch.zeros(40).double(), covariance)
        assert self.bound(GP, 3)[0] == pytest.approx(float(normal.log_prob(y)), abs=1e-8)

    def test_between_the_plain_bound_and_the_evidence(self):
        """With one draw it is the plain bound on average; with more it rises, to the evidence."""
        ones = np.array([self.bound(ISGP, 1, seed)[0] for seed in range(400)])
        many = np.array([self.bound(ISGP, 64, seed)[0] for seed in range(30)])
        plain = self.bound(ISGP, 1)[1].evidence_bound
        # The plain bound takes a little off the twin's entropy (Kolchinsky and Tracey): 1e-3 nats.
        assert abs(ones.mean() - plain) < 4 * ones.std() / 20 + 1e-3
        assert many.mean() > ones.mean()
        evidence = self.bound(ISGP, 20_000)[0]
        assert many.mean() < evidence + 4 * many.std() / math.sqrt(30)


class TestMixture:
    def test_moments_and_quantiles_by_draws(self):
        """Within four standard errors of a hundred thousand draws of Gaussians with the moments."""
        mixture, n = two_components(), 100_000
        generator = np.random.default_rng(0)
        which = generator.random(n) < 0.7
        moments = [torch.stack(part.moments(GRID)).numpy() for part in mixture.components]
        means, variances = (np.where(which[:, None], moments[1][i], moments[0][i]) for i in (0, 1))
        draws = means + np.sqrt(variances) * generator.normal(size=(n, 5))
        mean, variance = mixture.moments(GRID)
        assert np.all(np.abs(draws.mean(axis=0) - mean.numpy()) < 4 * draws.std(axis=0) / n**0.5)
        np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.03)
        for level in (0.025, 0.5, 0.9):
            below = (draws < mixture.quantile(GRID, level).numpy()).mean(axis=0)
            assert np.all(np.abs(below - level) < 4 * math.sqrt(level * (1 - level) / n))

    def test_quantile_of_an_observation_by_root_finding(self):
        mixture = two_components()
        moments = [torch.stack(part.moments(GRID[:1])).numpy()[:, 0] for part in mixture.components]
        spread = [math.sqrt(moments[0][1] + 1 / 25), math.sqrt(moments[1][1] + 1)]

        def excess(q):
            parts = (norm.cdf(q, m[0], s) for m, s in zip(moments, spread, strict=True))
            return np.dot([0.3, 0.7], list(parts)) - 0.975

        got = mixture.quantile(GRID[:1], 0.975, observation=True)
        assert float(got) == pytest.approx(brentq(excess, -10, 10, xtol=1e-12), abs=1e-9)

    def test_sources_have_the_mixtures_moments(self):
        mixture, n = two_components(), 20_000
        paths = mixture.sample_source(GRID, n, torch.Generator().manual_seed(0)).numpy()
        mean, variance = (values.numpy() for values in mixture.moments(GRID))
        assert np.all(np.abs(paths.mean(axis=0) - mean) < 4 * np.sqrt(variance / n))
        np.testing.assert_allclose(paths.var(axis=0), variance, rtol=0.06)
        assert np.diff(paths, axis=1).min() >= 0


class TestAverage:
    @pytest.mark.parametrize("kind", [GP, ISGP])
    def test_against_a_dense_grid(self, kind):
        """For a GP, brute force over 1/a, log k(0, 0) and log alpha with the exact evidence."""
        x, y = simulate(60)
        best = maximise_evidence(prior_of(kind), Gaussian(25.0), x, y)
        prior = best.posterior.prior
        data = best.likelihood.condense(prior.features, x, y)
        mixture = average_hyperparameters(best.posterior, data)
        assert float(mixture.weights.sum()) == pytest.approx(1)
        mean, variance = mixture.moments(GRID)
        if kind is ISGP:  # no exact evidence: wider than the best alone, and near its mean
            plain_mean, plain_variance = best.posterior.moments(GRID)
            assert bool((variance > plain_variance).all())
            assert bool(((mean - plain_mean).abs() < plain_variance.sqrt()).all())
            return
        found, weights = [], []
        variances = float(prior.kernel.variance) * np.exp(np.linspace(-3.5, 5, 14))
        alphas = float(best.likelihood.alpha) * np.exp(np.linspace(-0.8, 0.8, 7))
        for ratio in (np.arange(12) + 0.5) / 12:
            for k in variances:
                kernel = TrigonometricKernel(a=1 / ratio, c=0.25, n_basis=6).scaled(k)
                there = GP(kernel, mu=prior.mu, gamma=prior.gamma)
                for alpha in alphas:
                    found.append(laplace(there, Gaussian(alpha), x, y))
                    weights.append(found[-1].log_evidence)
        weights = torch.softmax(torch.tensor(weights, dtype=torch.float64), dim=0)
        expected_mean, expected = PosteriorMixture(found, weights).moments(GRID)
        # The design is a rough one: five points for two hyper-parameters.
        assert bool(((mean - expected_mean).abs() < 0.2 * expected.sqrt()).all())
        np.testing.assert_allclose(variance.sqrt(), expected.sqrt(), rtol=0.12)

    def test_a_walk_ends_at_the_first_node_without_any_mode(self, monkeypatch):
        """Beyond some a no search converges: one node there, and none farther on, is looked at."""
        best = maximise_evidence(prior_of(ISGP), Gaussian(25.0), *simulate()).posterior
        data = best.likelihood.condense(best.prior.features, *simulate())
        limit, seen = 2.0, set()

        def find(joint, start):
            a = float(joint.prior.kernel.a)
            seen.add(round(a, 9))
            return replace(find_mode(joint, start), converged=a < limit)

        monkeypatch.setattr(hyper_mixture, "find_mode", find)
        mixture = average_hyperparameters(best, data)
        assert [a for a in seen if a > limit] == [pytest.approx(8 / 3.5)]  # nodes are even in 1/a
        assert all(float(part.prior.kernel.a) < limit for part in mixture.components)

    def test_labels_are_refused(self):
        x, y = simulate()
        likelihood = Bernoulli()
        prior, labels = prior_of(ISGP), (y > 0).to(torch.float64)
        data = likelihood.condense(prior.features, x, labels)
        with pytest.raises(TypeError, match="expected a Gaussian likelihood, got Bernoulli"):
            average_hyperparameters(laplace(prior, likelihood, x, labels), data)


def test_a_climb_takes_newtons_steps_of_two_deviations_at_most():
    """To the top of -z'Hz/2 from ten deviations away: no step is longer than two of them."""
    H = np.array([[2.0, 0.5], [0.5, 1.0]])
    values, vectors = np.linalg.eigh(H)
    V = (vectors * values**-0.5) @ vectors.T
    seen = []

    def climb_at(ratio, zeta, start):
        seen.append(zeta)
        return -zeta @ H @ zeta / 2, -H @ zeta, SimpleNamespace(Gamma=start)

    top, _, spread = _climb(climb_at, 0.5, 10 * V @ [0.6, 0.8], torch.zeros(1), V)
    steps = np.linalg.norm(np.linalg.solve(V, np.diff(seen, axis=0).T), axis=0)
    # Between them V is taken anew, by differences of the slope at points 0.1 or less apart.
    assert 1.9 < steps.max() < 2.2
    assert np.abs(top).max() < 1e-3
    np.testing.assert_allclose(spread, V, rtol=1e-6)


class TestClimb:
    """Newton's method to the maximum of a function that is told by value and slope."""

    centre = np.array([0.7, -1.3])
    H = np.array([[9.0, 2.0], [2.0, 4.0]])  # minus the Hessian at the top

    def climb(self, function, start=(0.0, 0.0), V=0.1):
        asked = []

        def climb_at(ratio, at, Gamma):
            asked.append(at)
            return *function(at - self.centre), SimpleNamespace(Gamma=Gamma)

        found = _climb(climb_at, 1.0, np.array(start), torch.zeros(1), V * np.eye(2))
        return *found, asked

    def quadratic(self, z):
        return -0.5 * z @ self.H @ z, -self.H @ z

    def bounded(self, z):
        """Flat far from its top: Newton's steps would overshoot."""
        size = 1 + z @ self.H @ z
        return -0.5 * np.log(size), -self.H @ z / size

    @pytest.mark.parametrize("shape", ["quadratic", "bounded"])
    @pytest.mark.parametrize("V", [0.02, 0.3, 3.0])
    def test_ends_at_the_top_with_the_root_of_its_covariance(self, shape, V):
        zeta, _, V, _ = self.climb(getattr(self, shape), V=V)
        off = zeta - self.centre
        # At most a thousandth of a standard deviation is left; steps that halve end sooner.
        assert np.sqrt(off @ self.H @ off) < 2e-3
        # The Hessian is by differences of the slope over 0.02: their error grows with its square.
        np.testing.assert_allclose(V @ self.H @ V, np.eye(2), atol=5e-3)

    def test_steps_are_short_where_the_curvature_says_little(self):
        """On a plane no step is longer than two standard deviations, of at most 1.5 each."""
        slope = np.array([3.0, 4.0])
        zeta, _, V, asked = self.climb(lambda z: (slope @ z, slope))
        np.testing.assert_allclose(V, 1.5 * np.eye(2), rtol=1e-12)
        steps = np.linalg.norm(np.diff(asked, axis=0), axis=1)
        assert steps.max() <= 2 * 1.5 + 0.05
        # Uphill all the way, until the steps that it may take are used up.
        np.testing.assert_allclose(zeta / np.linalg.norm(zeta), slope / 5, rtol=1e-12)
        assert np.linalg.norm(zeta) < hyper_mixture._CLIMB * 2 * 1.5

    def test_where_there_is_no_value_it_stays(self):
        zeta, _, V, asked = self.climb(lambda z: (-np.inf, np.zeros(2)))
        assert len(asked) == 1
        assert not zeta.any()
        np.testing.assert_array_equal(V, 0.1 * np.eye(2))


def test_a_node_counts_by_the_volume_of_its_standard_deviations(monkeypatch):
    """With one evidence everywhere its points' weights are share |det V| exp(z^2 / 2)."""
    best = laplace(prior_of(ISGP), Gaussian(25.0), *simulate())
    data = best.likelihood.condense(best.prior.features, *simulate())
    size = iter(range(100))
    sides = []

    def climb(climb_at, ratio, zeta, start, V):
        k = next(size)  # volumes differ by factors of up to 400 between nodes
        sides.append((ratio, 0.02 * (1 + k), 0.1 * (1 + k % 3)))
        return zeta, start, np.diag(sides[-1][1:])

    monkeypatch.setattr(hyper_mixture, "_climb", climb)
    monkeypatch.setattr(hyper_mixture, "importance_weighted_bound", lambda *_: -1e6)
    monkeypatch.setattr(hyper_mixture, "_NEGLIGIBLE", 0.0)
    mixture = average_hyperparameters(best, data)
    a = np.array([float(part.prior.kernel.a) for part in mixture.components])
    assert len(a) == 5 * len(sides) == 40
    radius = 1.1 * np.sqrt(2)
    for ratio, one, other in sides:
        here = mixture.weights[np.isclose(a, 1 / ratio)].numpy() / (one * other)
        if ratio == sides[0][0]:
            unit = here[0]
        # The middle of the design, and four points on a circle (Rue, Martino and Chopin 2009).
        share = np.array([1 - 2 / radius**2] + [1 / (2 * radius**2) * np.exp(radius**2 / 2)] * 4)
        np.testing.assert_allclose(here / unit, share / share[0], rtol=1e-9)
