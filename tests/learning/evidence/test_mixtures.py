"""Tests of mixtures of posteriors: exact cases, brute force, Monte Carlo."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm

from bayesloss import (
    GP,
    ISGP,
    Gaussian,
    LogLoss,
    MatsushitaLoss,
    TrigonometricKernel,
    laplace,
    maximise_evidence,
)
from bayesloss.learning.evidence import mixtures
from bayesloss.learning.evidence.evidence import (
    at_smoothness,
    evidence_gradient,
    joint_at,
    theta_of,
)
from bayesloss.learning.evidence.importance import log_ratios
from bayesloss.learning.evidence.mixtures import (
    NormalBernoulli,
    PosteriorMixture,
    average_hyperparameters,
    average_priors,
)
from bayesloss.learning.inference.laplace import approximate, even_normals
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode

GRID = torch.linspace(-0.9, 0.9, 5, dtype=torch.float64)
VALUES = (1.3, 2.0, 6.0)


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


def labels(n=300, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.uniform(-3, 3, n))
    p = torch.sigmoid(torch.where(x > 0, 2.5 * x, 0.3 * x))
    return x, (torch.from_numpy(rng.random(n)) < p).to(torch.float64)


def average(kind=ISGP, likelihood=None, n=300):
    """The average over three values of a, given labels; and the labels."""
    x, y = labels(n)
    prior = kind(TrigonometricKernel(a=1.5, c=1 / 6, n_basis=12).scaled(0.8), mu=0.1, gamma=0.5)
    likelihood = likelihood or Bernoulli()
    data = likelihood.condense(prior.features, x, y)
    priors = [at_smoothness(prior, a) for a in VALUES]
    return average_priors(priors, likelihood, data, start=prior.start(x)), x, y


class TestMixture:
    def test_moments_and_quantiles_by_draws(self):
        """Within four standard errors of a hundred thousand draws of Gaussians with the moments."""
        mixture = two_components()
        n = 100_000
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

    def test_draws_have_the_mixtures_moments(self):
        mixture = two_components()
        n = 20_000
        noise = torch.randn((n, 7), generator=torch.Generator().manual_seed(0)).double()
        nu = mixture.components[0].prior.source(GRID, mixture.draws(noise))
        mean, variance = mixture.moments(GRID)
        assert bool(((nu.mean(dim=0) - mean).abs() < 4 * (variance / n).sqrt()).all())
        squares = (nu - mean) ** 2
        error = squares.std(dim=0) / math.sqrt(n)
        assert bool(((squares.mean(dim=0) - variance).abs() < 4 * error).all())

    def test_draws_go_to_the_components_by_weight(self):
        mixture = two_components()
        draws = mixture.draws(torch.zeros((50, 7), dtype=torch.float64))
        assert [int((draws == q.mode).all(dim=1).sum()) for q in mixture.components] == [15, 35]
        assert mixture.best is mixture.components[1]

    def test_it_has_converged_where_it_counts(self):
        good = two_components().components[0]
        bad = replace(two_components().best, converged=False)
        for share, expected in ((1e-4, True), (0.5, False)):
            weights = torch.tensor([1 - share, share], dtype=torch.float64)
            assert PosteriorMixture([good, bad], weights).converged is expected


class TestAveragePriors:
    @pytest.mark.parametrize("kind", [ISGP, GP])
    @pytest.mark.parametrize("likelihood", [Bernoulli(), Gaussian(alpha=4.0)], ids=repr)
    def test_every_posterior_is_the_one_fitted_alone(self, kind, likelihood):
        """Fitted to the data themselves, from another start on the same hill: the same posterior.

        From afar an ISGP may end at another mode, where f changes its sign.
        """
        mixture, x, y = average(kind, likelihood)
        for a, part in zip(VALUES, mixture.components, strict=True):
            kernel = TrigonometricKernel(a=a, c=1 / 6, n_basis=12).scaled(0.8)
            near = 0.9 * part.mode
            alone = laplace(kind(kernel, mu=0.1, gamma=0.5), likelihood, x, y, start=near)
            # Two modes known to half the digits; -w is as good as w.
            assert part.evidence_bound == pytest.approx(alone.evidence_bound, abs=1e-7)
            at = torch.linspace(-2, 2, 5, dtype=torch.float64)
            torch.testing.assert_close(part.mean(at), alone.mean(at), atol=1e-7, rtol=0)

    def test_weights_are_the_exponentials_of_the_bounds(self):
        mixture, *_ = average()
        bounds = np.array([part.evidence_bound for part in mixture.components])
        expected = np.exp(bounds - bounds.max())
        np.testing.assert_allclose(mixture.weights, expected / sum(expected), rtol=1e-12)
        assert mixture.best is mixture.components[int(bounds.argmax())]
        assert mixture.converged

    def test_a_likelihood_without_a_bound_is_refused(self):
        with pytest.raises(ValueError, match="expected a likelihood with a bound"):
            average(likelihood=Bernoulli(MatsushitaLoss()))


class TestAverageHyperparameters:
    def test_against_a_dense_grid(self):
        """Brute force over 1/a, log k(0, 0) and log alpha with the exact evidence of a GP."""
        x, y = simulate(60)
        best = maximise_evidence(prior_of(GP), Gaussian(25.0), x, y)
        prior = best.posterior.prior
        data = best.likelihood.condense(prior.features, x, y)
        mixture = average_hyperparameters(best.posterior, data)
        assert float(mixture.weights.sum()) == pytest.approx(1)
        mean, variance = mixture.moments(GRID)
        found = []
        weights = []
        variances = float(prior.kernel.variance) * np.exp(np.linspace(-3.5, 5, 9))
        alphas = float(best.likelihood.alpha) * np.exp(np.linspace(-0.8, 0.8, 5))
        for ratio in (np.arange(8) + 0.5) / 8:
            for k in variances:
                kernel = TrigonometricKernel(a=1 / ratio, c=0.25, n_basis=6).scaled(k)
                there = GP(kernel, mu=prior.mu, gamma=prior.gamma)
                for alpha in alphas:
                    joint = LogJoint(there, Gaussian(alpha), data)
                    mode = find_mode(joint, there.location)
                    found.append(approximate(joint, mode, with_bound=False))  # half of the time
                    weights.append(found[-1].log_evidence)
        weights = torch.softmax(torch.tensor(weights, dtype=torch.float64), dim=0)
        expected_mean, expected = PosteriorMixture(found, weights).moments(GRID)
        # The design is a rough one: five points for two hyper-parameters.
        assert bool(((mean - expected_mean).abs() < 0.2 * expected.sqrt()).all())
        np.testing.assert_allclose(variance.sqrt(), expected.sqrt(), rtol=0.12)

    def test_the_design_of_each_node(self):
        """Five points around the bound's maximum, in the units of its Hessian, by their weights.

        V comes from the points, the Hessian by differences of the bound's gradient. The weights are
        share |det V| exp(value + z^2 / 2), with one factor for all nodes.
        """
        x, y = simulate(200)
        best = maximise_evidence(prior_of(ISGP), Gaussian(25.0), x, y).posterior
        data = best.likelihood.condense(best.prior.features, x, y)
        mixture = average_hyperparameters(best, data)
        begin = LogJoint(best.prior, best.likelihood, data)
        there = [LogJoint(q.prior, q.likelihood, data) for q in mixture.components]
        thetas = torch.stack([theta_of(joint) for joint in there])
        half = even_normals(64, 7)
        noise = torch.cat([half, half * torch.tensor([1, 1, 1, -1, -1, -1, -1]).double()])
        radius = 1.1 * math.sqrt(2)
        units = []
        share = [1 - 2 / radius**2] + 4 * [1 / (2 * radius**2)]  # Rue, Martino and Chopin (2009)

        def slope(theta, start):
            return evidence_gradient(theta, partial(joint_at, begin), start, "bound")[1][[1, 4]]

        for log_odds in thetas[:, 0].unique():
            here = (thetas[:, 0] == log_odds).nonzero()[:, 0]
            if len(here) < 5:  # some had no weight
                continue
            zeta = thetas[here][:, [1, 4]]
            top = thetas[here[0]]
            V = torch.stack([zeta[1] - zeta[2], zeta[3] - zeta[4]], dim=1) / (2 * radius)
            mode = mixture.components[here[0]].mode
            # At most a thousandth of a standard deviation is left.
            assert float((V.T @ slope(top, mode)).norm()) < 1e-3
            steps = 0.02 * torch.eye(5, dtype=torch.float64)[[1, 4]]
            rows = [(slope(top + h, mode) - slope(top - h, mode)) / 0.04 for h in steps]
            np.testing.assert_allclose(-V.T @ torch.stack(rows) @ V, np.eye(2), atol=0.03)
            for i, (k, z) in enumerate(zip(here, [0, *4 * [radius]], strict=True)):
                q = mixture.components[k]
                ratios = log_ratios(there[k], q, noise)
                value = min(float(ratios.logsumexp(0)) - math.log(128), q.evidence_bound + 5)
                log_weight = math.log(share[i] * abs(float(V.det()))) + value + z * z / 2
                units.append(math.log(float(mixture.weights[k])) - log_weight)
        assert len(units) >= 15
        np.testing.assert_allclose(units, units[0], atol=1e-8)

    def test_draws_that_miss_the_data_raise_a_node_by_five_nats_at_most(self, monkeypatch):
        x, y = simulate(60)
        best = maximise_evidence(prior_of(ISGP), Gaussian(25.0), x, y).posterior
        begin = LogJoint(
            best.prior, best.likelihood, best.likelihood.condense(best.prior.features, x, y)
        )
        here = mixtures._Slice(begin, 1 / float(best.prior.kernel.a))
        top = mixtures._Top(
            zeta=theta_of(begin)[[1, 4]], Gamma=best.mode, V=0.3 * torch.eye(2).double()
        )
        noise = even_normals(128, len(best.mode))

        def fit(joint, mode):
            return approximate(joint, mode, with_bound=True)

        for above, raised in ((-3.0, -3.0), (4.9, 4.9), (5.1, 5.0), (40.0, 5.0)):

            def ratios(joint, posterior, noise, above=above):
                # All 128 alike, so that their mean is this far above the bound.
                return noise.new_full((len(noise),), posterior.evidence_bound + above)

            monkeypatch.setattr(mixtures, "log_ratios", ratios)
            points = here.points(top, noise, fit)
            assert len(points) == 5
            for point in points:
                assert point.value - point.posterior.evidence_bound == pytest.approx(
                    raised, abs=1e-9
                )

    def test_a_walk_ends_at_the_first_node_without_a_say(self):
        """Beyond some a all bounds are low: one node there, and none farther on, is looked at."""
        best = maximise_evidence(prior_of(ISGP), Gaussian(25.0), *simulate()).posterior
        data = best.likelihood.condense(best.prior.features, *simulate())
        limit = 2.0
        seen = set()

        def fit(joint, mode):
            a = float(joint.prior.kernel.a)
            seen.add(round(a, 9))
            q = approximate(joint, mode)
            return q if a < limit else replace(q, evidence_bound=-1e6)

        mixture = average_hyperparameters(best, data, fit)
        assert [a for a in seen if a > limit] == [pytest.approx(8 / 3.5)]  # nodes are even in 1/a
        assert all(float(part.prior.kernel.a) < limit for part in mixture.components)

    def test_labels_are_refused(self):
        x, y = simulate()
        likelihood = Bernoulli()
        prior = prior_of(ISGP)
        y = (y > 0).to(torch.float64)
        data = likelihood.condense(prior.features, x, y)
        with pytest.raises(TypeError, match="expected a Gaussian likelihood, got Bernoulli"):
            average_hyperparameters(laplace(prior, likelihood, x, y), data)


@pytest.mark.parametrize("loss", [LogLoss(), MatsushitaLoss()], ids=repr)
def test_quadrature_averages_over_normal_sources(loss):
    """Against a sum over a fine grid of the normal density."""
    likelihood = NormalBernoulli(loss)
    y = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
    data = likelihood.condense(lambda x: x[:, None], torch.ones_like(y), y)
    mean = torch.tensor([-1.0, 0.3, 2.0], dtype=torch.float64)
    variance = torch.tensor([0.0, 0.5, 4.0], dtype=torch.float64)
    z = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    expected = sum(
        float(density @ loss.log_likelihood(2 * y[k] - 1, mean[k] + variance[k].sqrt() * z)[0])
        for k in range(3)
    )
    found = float(likelihood.expected_log_density(mean, variance, data))
    assert found == pytest.approx(expected, abs=2e-3)  # 15 points, a standard deviation of 2
    if isinstance(loss, LogLoss):
        assert found > Bernoulli().expected_log_density(mean, variance, data)
