"""The Gaussian nearest to the posterior, against quadrature, Monte Carlo and finite differences."""

import math
import warnings
from functools import cache

import numpy as np
import pytest
import torch
from gaussian_problems import PRIORS, joint_of, labels, simulate
from grid_evidence import on_a_grid
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from torch.distributions import Normal

from bayesloss import (
    ISGP,
    Bernoulli,
    Gaussian,
    LogLoss,
    MatsushitaLoss,
    TrigonometricKernel,
    laplace,
    maximise_evidence,
    variational,
)
from bayesloss.learning.evidence.evidence import evidence_gradient
from bayesloss.learning.evidence.gaussian_bound import GaussianBound
from bayesloss.learning.evidence.variational import maximise_bound, nearest
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode


@cache
def usual():
    """One fit to what `simulate` makes, for several tests."""
    return variational(PRIORS["isgp"], Gaussian(6.0), *simulate())


class TestBound:
    """Against the evidence itself, and against the definition of the bound."""

    @pytest.mark.parametrize(("n", "b"), [(2, 2.0), (10, 0.2), (10, 2.0), (40, 0.2)])
    def test_below_the_evidence_and_above_laplaces_bound(self, n, b):
        """Two weights and an intercept, integrated on a grid that is wide enough."""
        prior = ISGP(TrigonometricKernel(a=2.0, b=b, c=0.25, n_basis=2), gamma=1.0)
        x, y = simulate(n)
        posterior = variational(prior, Gaussian(4.0), x, y)
        truth, _ = on_a_grid(prior, Gaussian(4.0), x, y, half=45)
        assert posterior.log_evidence == posterior.evidence_bound
        # The grid's own error; with 40 data it is 1e-5, and the bound 0.01 below.
        assert posterior.log_evidence <= truth + 1e-6
        assert posterior.log_evidence >= laplace(prior, Gaussian(4.0), x, y).evidence_bound - 1e-6
        assert posterior.log_evidence > truth - 0.5

    @pytest.mark.parametrize(("n", "seed"), [(4, 0), (8, 1), (16, 0), (32, 1)])
    def test_labels(self, n, seed):
        """A bound, a quarter of a nat below the evidence at most, and above Laplace's."""
        prior = ISGP(TrigonometricKernel(a=2.0, b=2.0, c=0.25, n_basis=2), gamma=1.0)
        x, y = labels(n, seed)
        truth, _ = on_a_grid(prior, Bernoulli(), x, y)
        posterior = variational(prior, Bernoulli(), x, y)
        assert posterior.log_evidence == posterior.evidence_bound
        assert truth - 0.25 < posterior.log_evidence < truth
        assert posterior.log_evidence > laplace(prior, Bernoulli(), x, y).evidence_bound

    @pytest.mark.parametrize(
        ("b", "noise"), [(0.9, 0.3), (0.05, 2.0), (2.0, None)], ids=["apart", "overlap", "labels"]
    )
    def test_it_is_the_expectation_that_it_says(self, b, noise):
        """E_q[log p(D, Gamma) - log q(Gamma)], q the mixture of both twins, by Monte Carlo."""
        prior = ISGP(TrigonometricKernel(a=1.5, b=b, c=0.25, n_basis=6))
        x, y = simulate(20, noise=noise, seed=3) if noise else labels(20, seed=3)
        posterior = variational(prior, Gaussian(noise**-2) if noise else Bernoulli(), x, y)
        draws = posterior.sample(n := 20_000, torch.Generator().manual_seed(4))
        nu = prior.source(x, draws)
        of_labels = torch.nn.functional.logsigmoid((2 * y - 1) * nu)
        log_fit = Normal(nu, noise).log_prob(y) if noise else of_labels
        log_prior = Normal(prior.location, prior.precision.rsqrt()).log_prob(draws)
        flip = np.array([-1.0] * 6 + [1.0])
        m = posterior.mode.numpy()
        S = posterior.covariance.numpy()
        parts = [
            multivariate_normal(m * sign, S * np.outer(sign, sign)).logpdf(draws.numpy())
            for sign in (np.ones(7), flip)
        ]
        log_q = logsumexp(np.stack(parts), axis=0) - math.log(2)
        values = (log_fit.sum(dim=1) + log_prior.sum(dim=1)).numpy() - log_q
        error = values.std() / math.sqrt(n)
        assert posterior.log_evidence <= values.mean() + 4 * error
        # Where twins overlap, only what w tells of the half counts: all but a few hundredths.
        assert posterior.log_evidence >= values.mean() - 4 * error - 0.05

    def test_where_nu_counts_as_normal_only_less_is_certain(self):
        """Jaakkola and Jordan's bound on each label, in the place of its normal average."""
        prior = PRIORS["isgp"]
        x, y = labels(20, seed=3)
        joint = joint_of(prior, Bernoulli(), x, y)
        found, trouble = nearest(joint, find_mode(joint, prior.start(x)), with_laws=False)
        assert not trouble
        mean, variance = found.moments(x)
        nodes, weights = map(torch.from_numpy, np.polynomial.hermite_e.hermegauss(80))
        nu = mean[:, None] + variance.sqrt()[:, None] * nodes
        log_sigmoid = torch.nn.functional.logsigmoid
        sign = 2 * y - 1
        normal = log_sigmoid(sign[:, None] * nu) @ weights / math.sqrt(2 * math.pi)
        xi = (mean**2 + variance).sqrt()
        certain = log_sigmoid(xi) + (sign * mean - xi) / 2
        gap = float((normal - certain).sum())
        assert gap > 0.1
        # The bound's own average has 20 nodes, good to 1e-7 a label where nu is no wider than 2.
        assert found.log_evidence - found.evidence_bound == pytest.approx(gap, abs=2e-6)


class TestSearch:
    def test_precision_is_the_average_hessian(self):
        """S^-1 = E_q[H] where the bound is highest, by Monte Carlo over the Hessian (11)."""
        prior = PRIORS["isgp"]
        n = 4000
        joint = joint_of(prior, Gaussian(6.0), *simulate())
        posterior = usual()
        draws = posterior.sample(n, torch.Generator().manual_seed(5))
        found = posterior.root.T @ torch.func.vmap(joint.hessian)(draws) @ posterior.root
        error = found.std(dim=0) / math.sqrt(n)
        unit = torch.eye(7, dtype=torch.float64)
        # The search stops 1e-6 nats below the top: entries are exact to about 1e-3.
        assert bool(((found.mean(dim=0) - unit).abs() < 4.5 * error + 3e-3).all())

    def test_equal_inputs_and_weights_count(self):
        prior = PRIORS["isgp"]
        (x, y) = labels(20, seed=1)
        twice = torch.cat([x, x]), torch.cat([y, y])
        one = variational(prior, Bernoulli(), x, y, sample_weight=torch.full_like(x, 2.0))
        other = variational(prior, Bernoulli(), *twice)
        assert other.log_evidence == pytest.approx(one.log_evidence, abs=2e-6)

    def test_exact_for_the_gp(self):
        """A GP with Gaussian noise has a Gaussian posterior: Laplace's and this are both it."""
        x, y = simulate()
        one, other = (f(PRIORS["gp"], Gaussian(6.0), x, y) for f in (laplace, variational))
        torch.testing.assert_close(one.mode, other.mode, rtol=0, atol=1e-9)
        torch.testing.assert_close(one.covariance, other.covariance, rtol=0, atol=1e-9)
        assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-9)

    @pytest.mark.parametrize("loss", [LogLoss(), MatsushitaLoss()], ids=repr)
    def test_the_bound_never_falls(self, loss):
        prior = PRIORS["isgp"]
        (x, y) = labels(25, seed=7)
        joint = joint_of(prior, Bernoulli(loss), x, y)
        mode = find_mode(joint, prior.start(x))
        bound = GaussianBound(joint)
        values = [maximise_bound(bound, mode, k)[0].log_evidence for k in range(15)]
        assert bool((np.diff(values) >= -1e-12).all())
        assert values[-1] > values[0] + 0.05

    def test_it_is_the_highest_around(self):
        prior = PRIORS["isgp"]
        posterior = usual()
        bound = GaussianBound(joint_of(prior, Gaussian(6.0), *simulate()))
        scale = prior.precision.sqrt()
        precision = torch.linalg.inv(posterior.covariance) / torch.outer(scale, scale)
        generator = torch.Generator().manual_seed(0)
        for _ in range(50):
            noise = 0.05 * torch.randn((7, 8), dtype=torch.float64, generator=generator)
            turned = torch.eye(7, dtype=torch.float64) + noise[:, :7]
            there = turned.T @ precision @ turned
            value = bound(posterior.mode + posterior.root @ noise[:, 7], there).value
            assert float(value) < posterior.log_evidence

    def test_twins_and_weights(self):
        prior = PRIORS["isgp"]
        (x, y) = simulate()
        start = prior.start(x)
        mirrored = torch.cat([-start[:-1], start[-1:]])
        one = usual()
        other = variational(prior, Gaussian(6.0), x, y, start=mirrored)
        twice = variational(prior, Gaussian(3.0), x, y, sample_weight=torch.full_like(x, 2.0))
        assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-6)
        torch.testing.assert_close(other.mean(x), one.mean(x), rtol=0, atol=1e-3)
        # 2 data of half the precision are one datum, but for a constant that nu does not enter.
        torch.testing.assert_close(twice.mean(x), one.mean(x), rtol=0, atol=1e-3)
        torch.testing.assert_close(twice.variance(x), one.variance(x), rtol=1e-2, atol=1e-6)

    def test_it_fits_in_inference_mode(self):
        """Data, noise and prior made there, too: what is differentiated are copies."""
        with torch.inference_mode():
            x, y = (values.clone() for values in simulate())
            prior = ISGP(TrigonometricKernel(a=1.5, c=0.25, n_basis=6))
            inside = variational(prior, Gaussian(6.0), x, y)
        outside = variational(prior, Gaussian(6.0), *simulate())
        assert inside.log_evidence == outside.log_evidence
        torch.testing.assert_close(inside.mode, outside.mode, rtol=0, atol=0)

    def test_a_search_that_begins_on_a_saddle_leaves_it(self):
        """At w = 0 the gradient vanishes and the curvature is no Gaussian's."""
        prior = PRIORS["isgp"]
        (x, y) = simulate()
        joint = joint_of(prior, Gaussian(6.0), x, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            posterior = variational(prior, Gaussian(6.0), x, y, start=prior.location)
        saddle = find_mode(joint, prior.location, max_iter=0)
        assert saddle.least_curvature < 0
        reached, trouble = nearest(joint, saddle)
        assert posterior.converged and reached.log_evidence <= posterior.log_evidence + 1e-6
        assert not trouble

    def test_told_when_it_does_not_settle(self):
        with pytest.warns(ConvergenceWarning, match="did not settle in 2 steps.*max_iter=2"):
            posterior = variational(PRIORS["isgp"], Gaussian(6.0), *simulate(), max_iter=2)
        assert not posterior.converged


class TestEvidence:
    @pytest.mark.parametrize("kind", ["noise", "labels"])
    def test_gradient_by_finite_differences(self, kind):
        x, y = simulate() if kind == "noise" else labels()

        def joint_at(theta):
            kernel = TrigonometricKernel(a=1 + theta[0].exp(), c=0.25, n_basis=6)
            prior = ISGP(kernel.scaled(theta[1].exp()), mu=theta[2])
            likelihood = Gaussian(theta[3].exp()) if kind == "noise" else Bernoulli()
            return LogJoint(prior, likelihood, data)

        condense = Gaussian().condense if kind == "noise" else Bernoulli().condense
        data = condense(PRIORS["isgp"].features, x, y)
        theta = torch.tensor([-0.5, 0.2, 0.1, 1.5], dtype=torch.float64)
        start = PRIORS["isgp"].start(x)
        _, gradient, mode = evidence_gradient(theta, joint_at, start, nearest)
        for i, step in enumerate(1e-2 * torch.eye(4, dtype=torch.float64)[: 3 + (kind == "noise")]):
            up, down = (
                evidence_gradient(theta + sign * step, joint_at, mode.Gamma, nearest)[0]
                for sign in (1, -1)
            )
            # Central differences, and bounds known to 1e-6 nats.
            assert (up - down) / 2e-2 == pytest.approx(float(gradient[i]), rel=1e-3, abs=1e-3)

    def test_it_ends_above_laplaces_bound(self):
        x, y = simulate()
        by_laplace = maximise_evidence(PRIORS["isgp"], Gaussian(), x, y, smoothness=(2.0,))
        found = maximise_evidence(
            PRIORS["isgp"], Gaussian(), x, y, smoothness=(2.0,), objective=nearest
        )
        assert found.converged
        assert found.posterior.log_evidence > by_laplace.posterior.evidence_bound
        assert found.values == [pytest.approx(found.posterior.log_evidence, abs=1e-5)]


def test_steps_that_rounding_leaves_without_a_gaussian_are_cut(monkeypatch):
    """Far out S^-1 may have no Cholesky factor: it is asked for nothing, and one nearer serves."""
    x, y = labels()
    joint = joint_of(ISGP(TrigonometricKernel(a=1.5, c=0.25, n_basis=4)), Bernoulli(), x, y)
    mode = find_mode(joint, joint.prior.start(x))
    expected, _ = nearest(joint, mode)
    factorise = torch.linalg.cholesky_ex
    called = GaussianBound.__call__
    proposed = []
    asked = []

    def fails_at_first(matrix):
        proposed.append(matrix)  # after where the search begins, steps
        factor, failed = factorise(matrix)
        return factor, failed + (len(proposed) in (2, 3))

    def value(self, m, precision):
        asked.append(precision)
        return called(self, m, precision)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", fails_at_first)
    monkeypatch.setattr(GaussianBound, "__call__", value)
    found, trouble = nearest(joint, mode)
    assert not trouble
    assert len(proposed) > 3
    assert not any(each is one for each in asked for one in proposed[1:3])
    # Both searches end where the next step would gain less than 1e-6 nats.
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-5)
