"""Tests of Laplace's approximation against what can be had exactly, or by another way.

The model stands here a second time, in dense textbook form with psi (`log_joint`). For the GP all
is Gaussian, and compared with the textbook's kernel formulas. For the ISGP with two basis functions
nu_0 integrates analytically, and w on a grid of two dimensions: the true evidence.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import binom, multivariate_normal
from textbook_joint import log_joint, nu_of, prior_of, simulate

from bayesloss import GP, ISGP, Gaussian, laplace
from bayesloss.learning.inference.laplace import approximate
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import Mode

bounded = settings(max_examples=25, deadline=None, derandomize=True)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def exact(prior, alpha, x, y, x_new):
    """A GP's posterior mean and variance, and log evidence, by the textbook's kernel formulas."""
    harmonics = np.arange(1, prior.kernel.n_basis // 2 + 1)
    b, a, c = (float(value) for value in (prior.kernel.b, prior.kernel.a, prior.kernel.c))
    mu = float(prior.mu)
    gamma = float(prior.gamma)

    def k(x, z):
        gap = np.subtract.outer(np.asarray(x), np.asarray(z))
        return np.cos(np.pi * c * gap[..., None] * harmonics) @ (b / a**harmonics) + 1 / gamma

    K = k(x, x) + np.eye(len(x)) / alpha
    cross = k(x_new, x)
    mean = mu + cross @ np.linalg.solve(K, y.numpy() - mu)
    variance = np.diag(k(x_new, x_new)) - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1)
    return mean, variance, multivariate_normal(np.full(len(x), mu), K).logpdf(y.numpy())


def true_log_evidence(prior, alpha, x, y, toward):
    """log p(D) of an ISGP with M = 2, by quadrature.

    Given w, y is Gaussian with mean mu + w^T psi w and covariance I/alpha + 1 1^T/gamma. That
    leaves w, in coordinates along the mode (`toward`) and across it. Half the plane is enough, for
    w and -w are alike. The grid narrows until it holds little but the mass: trapezoids then
    converge exponentially, and 200 points a side give the same twelve digits as 300.
    """
    x, y, n, size = x.numpy(), y.numpy(), len(x), 200
    eigenvalue = float(prior.kernel.eigenvalues[0])
    k = math.pi * prior.kernel.c
    mu = float(prior.mu)
    gamma = float(prior.gamma)
    F = np.stack(
        [
            x / 2 + np.sin(2 * k * x) / (4 * k),  # of w_1^2: the integral of cos^2
            np.sin(k * x) ** 2 / k,  # of w_1 w_2: that of 2 cos sin
            x / 2 - np.sin(2 * k * x) / (4 * k),  # of w_2^2: that of sin^2
        ]
    )
    residual = y - mu
    square = F @ F.T
    linear = F @ residual
    sums = F.sum(axis=1)
    log_det = -n * math.log(alpha) + math.log1p(n * alpha / gamma)
    length = np.linalg.norm(toward)
    along = toward / length if length > 0 else np.array([1.0, 0.0])

    def log_density(u, v):
        w_1 = u * along[0] - v * along[1]
        w_2 = u * along[1] + v * along[0]
        q = np.stack([w_1**2, w_1 * w_2, w_2**2], axis=-1)
        squares = residual @ residual - 2 * q @ linear + np.einsum("...i,ij,...j", q, square, q)
        total = residual.sum() - q @ sums
        quadratic = alpha * (squares - alpha * total**2 / (gamma + n * alpha))
        prior_part = (w_1**2 + w_2**2) / (2 * eigenvalue) + math.log(2 * math.pi * eigenvalue)
        return -0.5 * (n * math.log(2 * math.pi) + log_det + quadratic) - prior_part

    reach = 10 * max(math.sqrt(eigenvalue), length)
    low = np.array([0, -reach])
    high = np.array([reach, reach])
    halves = np.ones((size, 1))
    halves[0] = 0.5
    for _ in range(6):
        grids = [np.linspace(*ends, size) for ends in zip(low, high, strict=True)]
        steps = (high - low) / (size - 1)
        values = log_density(*np.meshgrid(*grids, indexing="ij"))
        rows = np.argwhere(values > values.max() - 40)
        low, high = low + (rows.min(axis=0) - 2) * steps, low + (rows.max(axis=0) + 2) * steps
        low[0] = max(low[0], 0)
    return logsumexp(values, b=halves) + np.log(steps).sum() + math.log(2)


@pytest.fixture(params=[ISGP, GP], ids=["ISGP", "GP"])
def prior(request):
    return prior_of(request.param)


class TestGPIsExact:
    """Laplace's approximation of a Gaussian posterior is the posterior."""

    @bounded
    @given(
        st.integers(1, 30), st.floats(1.1, 5), st.floats(0.1, 10), st.floats(0.05, 20),
        st.floats(0.1, 1e3), st.integers(0, 1000),
    )  # fmt: skip
    def test_against_the_kernel_formulas(self, n, a, b, gamma, alpha, seed):
        prior = prior_of(GP, a=a, b=b, gamma=gamma)
        x, y = simulate(n, seed=seed)
        x_new = torch.linspace(-1.9, 1.9, 12, dtype=torch.float64)
        mean, variance, log_evidence = exact(prior, alpha, x, y, x_new)
        posterior = laplace(prior, Gaussian(alpha), x, y)
        # The condition of K is up to 1e5 here: five of sixteen digits, and a margin of 100.
        np.testing.assert_allclose(posterior.mean(x_new), mean, atol=1e-9)
        np.testing.assert_allclose(posterior.variance(x_new), variance, atol=1e-9 * (b / a + 20))
        assert posterior.log_evidence == pytest.approx(log_evidence, rel=1e-9, abs=1e-9)
        assert posterior.evidence_bound == pytest.approx(log_evidence, rel=1e-9, abs=1e-9)
        assert posterior.converged

    def test_more_basis_functions_than_data_can_tell(self):
        """M = 64 on half a period: the Hessian alone has a condition of 1e25."""
        prior = prior_of(GP, a=3.0, n_basis=64)
        x, y = simulate(50)
        x_new = torch.linspace(-1.9, 1.9, 12, dtype=torch.float64)
        mean, variance, log_evidence = exact(prior, 25.0, x, y, x_new)
        posterior = laplace(prior, Gaussian(25.0), x, y)
        np.testing.assert_allclose(posterior.mean(x_new), mean, atol=1e-9)
        np.testing.assert_allclose(posterior.variance(x_new), variance, atol=1e-9)
        assert posterior.log_evidence == pytest.approx(log_evidence, abs=1e-8)


class TestEvidenceOfTheISGP:
    """Against the true evidence, by quadrature over w (M = 2)."""

    @bounded
    @given(
        n=st.sampled_from([1, 2, 3, 5, 10, 30, 300]),
        b=st.floats(-2, 2).map(lambda log: 10**log),
        alpha=st.floats(-1, 3).map(lambda log: 10**log),
        gamma=st.floats(-1, 1).map(lambda log: 10**log),
        seed=st.integers(0, 10_000),
    )
    def test_the_bound_is_a_bound(self, n, b, alpha, gamma, seed):
        """With few data and many, modes far apart, near each other, and merged at w = 0."""
        prior = prior_of(ISGP, a=2.0, b=b, n_basis=2, mu=0.1, gamma=gamma)
        x, y = simulate(n, noise=alpha**-0.5, seed=seed)
        posterior = laplace(prior, Gaussian(alpha), x, y)
        truth = true_log_evidence(prior, alpha, x, y, posterior.mode[:2].numpy())
        assert posterior.evidence_bound <= truth + 1e-9  # rounding of sums of 300 terms

    @pytest.mark.parametrize(("alpha", "within"), [(1.0, 0.03), (100.0, 3e-4)])
    @pytest.mark.parametrize("b", [0.1, 1.0, 10.0])
    def test_both_come_to_the_truth_with_many_data(self, alpha, within, b):
        """Errors of O(1 / (n alpha)) nats are left. The twin mode counts: it is log 2 = 0.69."""
        prior = prior_of(ISGP, a=2.0, b=b, n_basis=2, mu=0.0, gamma=1.0)
        x, y = simulate(1000, noise=alpha**-0.5)
        posterior = laplace(prior, Gaussian(alpha), x, y)
        truth = true_log_evidence(prior, alpha, x, y, posterior.mode[:2].numpy())
        assert posterior.log_evidence == pytest.approx(truth, abs=within)
        assert truth - within < posterior.evidence_bound <= truth + 1e-9

    def test_no_second_share_for_a_twin_that_is_the_mode_itself(self):
        """At w = 0 the two modes are one. Data that fall leave it there, nearly Gaussian."""
        prior = prior_of(ISGP, a=2.0, b=0.02, n_basis=2, mu=0.0)
        x, y = simulate(30, noise=1.0)
        posterior = laplace(prior, Gaussian(1.0), x, -y)
        truth = true_log_evidence(prior, 1.0, x, -y, posterior.mode[:2].numpy())
        assert float(posterior.mode[:2].norm()) < 1e-9
        assert posterior.log_evidence == pytest.approx(truth, abs=0.02)
        assert posterior.evidence_bound == pytest.approx(truth, abs=0.02)

    @pytest.mark.parametrize("short", [1e-2, 1e-4, 1e-8])
    def test_where_modes_merge_laplace_promises_too_much(self, short):
        """The prior scale b at which w = 0 turns from a mode into a saddle: there det H = 0.

        A little below, Laplace's evidence exceeds the truth by -log(det) / 2, without limit. An
        optimiser would chase what is not there; the bound of the same Gaussian turns away from it.
        """
        x, y = simulate(3, noise=0.3, seed=2)
        unit = prior_of(ISGP, a=2.0, n_basis=2, mu=0.0, gamma=1.0)
        residual = y - y.sum() / (1 + 3)  # nu_0 at w = 0: alpha sum(y) / (gamma + n alpha)
        pull = 2 * torch.einsum("n,nij->ij", residual, unit.kernel.psi(x))
        critical = 2.0 / float(torch.linalg.eigvalsh(pull)[-1])
        prior = prior_of(ISGP, a=2.0, b=critical * (1 - short), n_basis=2, mu=0.0, gamma=1.0)
        posterior = laplace(prior, Gaussian(1.0), x, y, start=prior.location)
        assert posterior.converged
        assert posterior.least_curvature == pytest.approx(short, rel=1e-4)
        truth = true_log_evidence(prior, 1.0, x, y, np.zeros(2))
        assert posterior.log_evidence - truth > -0.5 * math.log(short) - 1.5
        assert posterior.evidence_bound < truth

    @pytest.mark.parametrize(
        ("b", "noise", "slack"),
        [(0.9, 0.2, 0), (0.9, 3.0, math.log(2)), (0.05, 1.0, 0)],
        ids=["twins apart", "twins overlap", "one mode at zero"],
    )
    def test_bound_is_the_expectation_that_it_says(self, b, noise, slack):
        """E_q[log p(D, Gamma) - log q(Gamma)], q the mixture of both twins, by Monte Carlo."""
        prior = prior_of(ISGP, b=b)
        n = 10_000
        x, y = simulate(20, noise=noise, seed=3)
        alpha = noise**-2
        posterior = laplace(prior, Gaussian(alpha), x, y)
        draws = posterior.sample(n, torch.Generator().manual_seed(4))
        flip = torch.tensor([-1.0] * 6 + [1.0], dtype=torch.float64)
        mode = posterior.mode.numpy()
        S = posterior.covariance.numpy()
        twin = multivariate_normal(mode * flip.numpy(), S * np.outer(flip, flip))
        parts = np.stack([multivariate_normal(mode, S).logpdf(draws), twin.logpdf(draws)])
        log_q = logsumexp(parts, axis=0) - math.log(2)
        values = log_joint(prior, alpha, x, y, draws).numpy() - log_q
        error = values.std() / math.sqrt(n)
        # Where the twins overlap, the entropy of the mixture is only bounded, within log 2.
        assert posterior.evidence_bound <= values.mean() + 4 * error
        assert posterior.evidence_bound >= values.mean() - 4 * error - slack


class TestBernoulli:
    """Eq. (19): the labels' posterior is no Gaussian even under the GP."""

    def setup_method(self):
        generator = np.random.default_rng(10)
        self.x = torch.from_numpy(generator.uniform(-1, 1, 60))
        up = generator.uniform(size=60) < 1 / (1 + np.exp(-4 * self.x.numpy()))
        self.y = torch.from_numpy(up.astype(float))

    def log_joint(self, prior, Gamma):
        nu = nu_of(prior, self.x, Gamma)
        fit = torch.distributions.Bernoulli(logits=nu).log_prob(self.y).sum(dim=-1)
        empty = self.x[:0]
        return fit + log_joint(prior, 1.0, empty, empty, Gamma)

    def test_evidence_of_the_gp_by_quadrature(self):
        """The true evidence, by 40 Gauss-Hermite nodes for each of the three parameters."""
        prior = prior_of(GP, n_basis=2)
        posterior = laplace(prior, Bernoulli(), self.x, self.y)
        nodes, weights = np.polynomial.hermite_e.hermegauss(40)
        noise = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 3)
        log_weights = np.log(weights)
        log_weights = (log_weights[:, None, None] + log_weights[:, None] + log_weights).ravel()
        draws = posterior.mode + torch.from_numpy(noise) @ posterior.root.T
        values = self.log_joint(prior, draws).numpy() + 0.5 * (noise**2).sum(axis=1)
        truth = logsumexp(values + log_weights) + float(torch.logdet(posterior.root).real)
        # Laplace's own error, of order 1/60 for the effective number of data.
        assert posterior.log_evidence == pytest.approx(truth, abs=0.05)
        # The bound gives something away at each label, less where nu is known well.
        assert truth - 3 < posterior.evidence_bound < truth


class TestPosterior:
    def setup_method(self):
        self.x, self.y = simulate(15)
        self.x_new = torch.linspace(-2.5, 2.5, 10, dtype=torch.float64)

    def posterior(self, prior):
        return laplace(prior, Gaussian(4.0), self.x, self.y)

    def test_covariance_is_the_inverse_hessian(self, prior):
        posterior = self.posterior(prior)
        hessian = -torch.func.hessian(lambda g: log_joint(prior, 4.0, self.x, self.y, g))(
            posterior.mode
        )
        got = posterior.covariance @ hessian
        torch.testing.assert_close(got, torch.eye(7, dtype=torch.float64), rtol=0, atol=1e-10)
        least = torch.linalg.eigvalsh(
            hessian / torch.outer(prior.precision, prior.precision).sqrt()
        )[0]
        assert posterior.least_curvature == pytest.approx(float(least), rel=1e-9)

    def test_mean_and_variance_against_monte_carlo(self, prior):
        """Lemma 7 as corrected, and the variance with its cross-covariances, at ten points.

        Within four standard errors, as the issue asks.
        """
        posterior = self.posterior(prior)
        n = 40_000
        root = np.linalg.cholesky(posterior.covariance.numpy())
        noise = np.random.default_rng(5).normal(size=(n, 7))
        draws = posterior.mode + torch.from_numpy(noise @ root.T)
        # Outside the period the GP is held: the definition does not say so.
        held = self.x_new.clamp(-2, 2) if isinstance(prior, GP) else self.x_new
        nu = nu_of(prior, held, draws).numpy()
        mean = posterior.mean(self.x_new).numpy()
        variance = posterior.variance(self.x_new).numpy()
        assert np.all(np.abs(nu.mean(axis=0) - mean) < 4 * nu.std(axis=0) / math.sqrt(n))
        squares = (nu - mean) ** 2
        error = squares.std(axis=0) / math.sqrt(n)
        assert np.all(np.abs(squares.mean(axis=0) - variance) < 4 * error)

    def test_samples_have_the_posteriors_moments(self, prior):
        posterior = self.posterior(prior)
        n = 20_000
        draws = posterior.sample(n, torch.Generator().manual_seed(6))
        whitened = torch.linalg.solve(posterior.root, (draws - posterior.mode).T).numpy()
        assert np.abs(whitened.mean(axis=1)).max() < 4 / math.sqrt(n)
        errors = np.sqrt((1 + np.eye(7)) / n)  # a variance of normals has twice that of a product
        assert np.all(np.abs(whitened @ whitened.T / n - np.eye(7)) < 4 * errors)

    def test_sample_weight_is_repetition(self, prior):
        weight = torch.from_numpy(np.random.default_rng(7).integers(1, 4, 15))
        repeated = [values.repeat_interleave(weight) for values in (self.x, self.y)]
        expected = laplace(prior, Gaussian(4.0), *repeated)
        got = laplace(prior, Gaussian(4.0), self.x, self.y, sample_weight=weight.double())
        # Both modes are exact to half the digits, the evidence to all but rounding.
        torch.testing.assert_close(got.mode, expected.mode, rtol=0, atol=1e-7)
        assert got.log_evidence == pytest.approx(expected.log_evidence, rel=1e-11)


def test_bands_cover():
    """The 95 % band over 100 functions drawn from the prior, all hyper-parameters known.

    One point a function, so that the hits are independent: the binomial 1 % quantile is 89 %.
    """
    prior = prior_of(ISGP, a=2.0, b=1.0, c=0.25, n_basis=8, mu=0.0, gamma=1.0)
    n = 100
    hits = 0
    draws = prior.sample(n, torch.Generator().manual_seed(8))
    generator = np.random.default_rng(9)
    for Gamma in draws:
        x = torch.from_numpy(generator.uniform(-1, 1, 61))
        nu = nu_of(prior, x, Gamma)
        y = nu + 0.2 * torch.from_numpy(generator.normal(size=61))
        mean, variance = laplace(prior, Gaussian(25.0), x[:60], y[:60]).moments(x[60:])
        hits += bool((nu[60] - mean[0]).abs() < 1.96 * variance[0].sqrt())
    assert binom.ppf(0.01, n, 0.95) <= hits <= binom.ppf(0.99, n, 0.95)


def test_no_gaussian_at_a_saddle():
    prior = prior_of(ISGP)
    likelihood = Gaussian(25.0)
    joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, *simulate()))
    curvature = joint.curvature(prior.location)
    mode = Mode(prior.location, curvature, least_curvature=-0.5, converged=False, n_iter=0)
    with pytest.raises(ValueError, match=r"positive definite, got a least curvature of -0\.5"):
        approximate(joint, mode)


class TestBadData:
    good = torch.linspace(-1, 1, 5, dtype=torch.float64)

    @pytest.mark.parametrize(
        ("x", "y", "message"),
        [
            (good[:, None], good, r"expected x and y of one shape \(n,\) .* got \(5, 1\) and"),
            (good, good[:, None], r"expected x and y of one shape \(n,\) .* and \(5, 1\)"),
            (good, good[:4], r"expected x and y of one shape \(n,\) .* got \(5,\) and \(4,\)"),
            (good[:0], good[:0], r"expected x and y of one shape \(n,\) with n > 0, got \(0,\)"),
            (good / good, good, "expected finite x, got 1 of 5 that are not"),
            (good, 1 / good, "expected finite y, got 1 of 5 that are not"),
        ],
    )
    def test_is_refused(self, x, y, message):
        with pytest.raises(ValueError, match=message):
            laplace(prior_of(ISGP), Gaussian(1.0), x, y)

    @pytest.mark.parametrize(
        ("weight", "message"),
        [
            (good[:1] + 2, r"expected x and sample_weight of one .* got \(5,\) and \(1,\)"),
            (good[:, None] + 2, r"expected x and sample_weight of one .* got \(5,\) and \(5, 1\)"),
            (good, "expected positive finite sample_weight, got 3 of 5 that are not"),
            (1 / good.abs(), "expected positive finite sample_weight, got 1 of 5"),
        ],
    )
    def test_weights_that_are_no_weights(self, weight, message):
        with pytest.raises(ValueError, match=message):
            laplace(prior_of(ISGP), Gaussian(1.0), self.good, self.good, sample_weight=weight)
