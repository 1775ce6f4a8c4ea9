"""Tests of the likelihoods, on data as they condense them, against SciPy's on the raw data."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import bernoulli, norm

from bayesloss import GP, ISGP, Gaussian, SkewedLogLoss, SquareLoss, TrigonometricKernel
from bayesloss.learning.inference.likelihoods import Bernoulli

bounded = settings(max_examples=30, deadline=None, derandomize=True)


def polynomials(x):
    """Four features that are nothing special: F = 4."""
    return x[:, None] ** torch.arange(4, dtype=x.dtype)


def simulate(n, seed, weighted=False):
    generator = np.random.default_rng(seed)
    x = torch.from_numpy(generator.uniform(-1, 1, n))
    y = torch.from_numpy(np.tanh(3 * x.numpy()) + 0.3 * generator.normal(size=n))
    weight = torch.from_numpy(generator.integers(1, 5, n).astype(float)) if weighted else None
    return x, y, weight


def textbook(features, u, x, y, weight, alpha):
    """Eq. (17), datum by datum: the log density of y, each repeated as often as its weight."""
    each = norm.logpdf(y.numpy(), loc=(features(x) @ u).numpy(), scale=1 / math.sqrt(alpha))
    return each.sum() if weight is None else each @ weight.numpy()


def condensed(likelihood, features, u, x, y, weight):
    data = likelihood.condense(features, x, y, weight)
    return float(likelihood.log_density(data.features @ u, data)), data


class TestCondensedData:
    # One datum, fewer data than features, as many, more, exactly one block of rows, more than two.
    @pytest.mark.parametrize("n", [1, 3, 4, 5, 4096, 4097, 9000])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_log_density_is_that_of_the_raw_data(self, n, weighted):
        """Eq. (17) with all constants, at coefficients anywhere."""
        x, y, weight = simulate(n, n, weighted)
        generator = np.random.default_rng(0)
        for alpha in (0.01, 11.0):
            for scale in (0.1, 10.0):
                u = torch.from_numpy(scale * generator.normal(size=4))
                got, data = condensed(Gaussian(alpha), polynomials, u, x, y, weight)
                expected = textbook(polynomials, u, x, y, weight, alpha)
                # A sum of n terms, of which each route rounds each: far below 1e-12 of the largest.
                assert got == pytest.approx(expected, rel=1e-11, abs=1e-11)
        assert len(data.targets) == len(data.features) <= min(n, 4) + 1
        total = n if weight is None else float(weight.sum())
        assert float(data.weights.sum()) == pytest.approx(total, rel=1e-15)

    @bounded
    @given(st.integers(1, 30), st.integers(0, 10_000), st.sampled_from([ISGP, GP]))
    def test_log_density_with_the_features_of_the_priors(self, n, seed, kind):
        """On half a period, where a third of the features' directions do not count."""
        prior = kind(TrigonometricKernel(a=1.5, c=0.5, n_basis=8), gamma=0.1)
        x, y, weight = simulate(n, seed, weighted=bool(seed % 2))
        u = prior.coefficients(prior.sample(1, torch.Generator().manual_seed(seed))[0])
        got, data = condensed(Gaussian(4.0), prior.features, u, x, y, weight)
        expected = textbook(prior.features, u, x, y, weight, 4.0)
        # Directions of relative size below 2e-16 are left out: they move nu by less than 1e-14.
        assert got == pytest.approx(expected, rel=1e-11, abs=1e-11)
        assert len(data.features) <= min(n, len(u)) + 1

    def test_many_equal_inputs_make_one_row_each(self):
        """Two distinct inputs: two rows, and what is left of the targets has no features."""
        x = torch.tensor([0.2, 0.7], dtype=torch.float64).repeat(50)
        y = torch.from_numpy(np.random.default_rng(1).normal(size=100))
        u = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
        got, data = condensed(Gaussian(2.0), polynomials, u, x, y, None)
        assert data.features.shape == (3, 4)
        assert not data.features[2].any()
        groups = y.reshape(50, 2)
        within = float(((groups - groups.mean(dim=0)) ** 2).sum())
        assert float(data.targets[2]) ** 2 == pytest.approx(within, rel=1e-12)
        assert got == pytest.approx(textbook(polynomials, u, x, y, None, 2.0), rel=1e-12)


@pytest.mark.parametrize(
    "likelihood", [Gaussian(2.5), Bernoulli(), Bernoulli(SkewedLogLoss(3))], ids=repr
)
def test_derivatives_against_automatic_differentiation(likelihood):
    """Eqs. (18) and (19), the Hessian being diagonal."""
    x, y, weight = simulate(30, 9, weighted=True)
    data = likelihood.condense(
        polynomials, x, y if likelihood.hyper_parameters else (y > 0) * 1.0, weight
    )
    nu = 3 * torch.from_numpy(np.random.default_rng(8).normal(size=len(data.targets)))
    slope, bend = (
        of(lambda nu: likelihood.log_density(nu, data), nu)
        for of in (torch.autograd.functional.jacobian, torch.autograd.functional.hessian)
    )
    # PyTorch's own second derivative of log sigma takes 1 - sigma: 1e-16 absolute.
    first, second = likelihood.derivatives(nu, data)
    torch.testing.assert_close(first, slope, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(torch.diag(second), bend, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf, torch.tensor(-1.0)])
def test_a_bad_noise_precision_is_refused(alpha):
    with pytest.raises(ValueError, match=r"expected a finite alpha > 0, got alpha=(0|-1|nan|inf)"):
        Gaussian(alpha)


class TestBernoulli:
    """Eq. (19) with the logistic link."""

    likelihood = Bernoulli()

    def setup_method(self):
        generator = np.random.default_rng(11)
        self.x = torch.from_numpy(generator.uniform(-1, 1, 30))
        self.y = torch.from_numpy(generator.integers(0, 2, 30).astype(float))
        self.weight = torch.from_numpy(generator.integers(1, 4, 30).astype(float))
        self.nu = torch.from_numpy(3 * generator.normal(size=30))

    @pytest.mark.parametrize("weighted", [False, True])
    def test_log_density_is_that_of_the_labels(self, weighted):
        weight = self.weight if weighted else None
        u = torch.tensor([0.5, -2.0, 1.0, 4.0], dtype=torch.float64)
        got, data = condensed(self.likelihood, polynomials, u, self.x, self.y, weight)
        each = bernoulli.logpmf(self.y, expit((polynomials(self.x) @ u).numpy()))
        expected = each.sum() if weight is None else each @ weight.numpy()
        assert got == pytest.approx(expected, rel=1e-12)
        assert float(data.weights.sum()) == (30 if weight is None else float(weight.sum()))

    @pytest.mark.parametrize("nu", [-700.0, -40.0, -1e-3, 0.0, 5.0, 40.0, 700.0])
    def test_keeps_its_digits_however_large_nu_is(self, nu):
        """log sigma(nu) = -log1p(exp(-nu)), and both derivatives, to relative accuracy."""
        x = torch.zeros(2, dtype=torch.float64)
        y = torch.tensor([0.0, 1.0], dtype=torch.float64)
        data = self.likelihood.condense(polynomials, x, y)
        values = torch.full((2,), nu, dtype=torch.float64)
        expected = -np.logaddexp(0, nu) - np.logaddexp(0, -nu)
        assert float(self.likelihood.log_density(values, data)) == pytest.approx(expected)
        first, second = self.likelihood.derivatives(values, data)
        assert first.tolist() == pytest.approx([-expit(nu), expit(-nu)], rel=1e-12, abs=0)
        assert second.tolist() == pytest.approx([-expit(nu) * expit(-nu)] * 2, rel=1e-12, abs=0)

    @pytest.mark.parametrize("label", [-1.0, 0.5, 2.0])
    def test_other_labels_are_refused(self, label):
        self.y[4] = label
        with pytest.raises(ValueError, match=f"expected labels 0 and 1, got {label} among 30"):
            self.likelihood.condense(polynomials, self.x, self.y)

    def expected(self, mean, variance, label):
        x = torch.zeros(1, dtype=torch.float64)
        y = torch.tensor([label], dtype=torch.float64)
        return float(
            self.likelihood.expected_log_density(
                torch.tensor([mean], dtype=torch.float64),
                torch.tensor([variance], dtype=torch.float64),
                self.likelihood.condense(polynomials, x, y),
            )
        )

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(
        st.lists(st.tuples(st.floats(-30, 30), st.floats(0.01, 1)), min_size=1, max_size=6),
        st.sampled_from([0.0, 1.0]),
    )
    def test_bound_holds_for_any_distribution(self, points, label):
        """A discrete nu with up to six values, whose expectation is a sum."""
        nu, weight = np.array(points).T
        weight = weight / weight.sum()
        mean = weight @ nu
        truth = -weight @ np.logaddexp(0, -(2 * label - 1) * nu)
        got = self.expected(mean, weight @ (nu - mean) ** 2, label)
        assert got <= truth + 1e-12 * (1 + abs(truth))  # rounding of sums of six terms

    @pytest.mark.parametrize("label", [0.0, 1.0])
    def test_bound_is_attained(self, label):
        """Where nu is known, and where it is as likely to be 3 as -3."""
        assert self.expected(2.0, 0.0, label) == pytest.approx(-np.logaddexp(0, 2 - 4 * label))
        even = -(np.logaddexp(0, 3) + np.logaddexp(0, -3)) / 2
        assert self.expected(0.0, 9.0, label) == pytest.approx(even)

    def test_bound_counts_each_datum_by_its_weight(self):
        variance = torch.ones(30, dtype=torch.float64)
        weighted = self.likelihood.condense(polynomials, self.x, self.y, self.weight)
        got = self.likelihood.expected_log_density(self.nu, variance, weighted)
        times = self.weight.to(torch.int64)
        parts = [v.repeat_interleave(times) for v in (self.x, self.y, self.nu, variance)]
        repeated = self.likelihood.condense(polynomials, *parts[:2])
        expected = self.likelihood.expected_log_density(*parts[2:], repeated)
        assert float(got) == pytest.approx(float(expected), rel=1e-12)


class TestBernoulliWithAnotherLoss:
    likelihood = Bernoulli(SkewedLogLoss(3))
    x = torch.linspace(-2, 2, 40, dtype=torch.float64)
    y = (torch.arange(40) % 3 == 0).double()

    def test_log_density_is_that_of_the_link(self):
        data = self.likelihood.condense(polynomials, self.x, self.y)
        nu = 3 * self.x
        u = SkewedLogLoss(3).inverse_canonical_link(nu)
        expected = torch.where(self.y == 1, u, 1 - u).log().sum()
        torch.testing.assert_close(self.likelihood.log_density(nu, data), expected)

    def test_bounded_links_are_refused(self):
        with pytest.raises(ValueError, match="all real numbers"):
            Bernoulli(SquareLoss())


class TestSpread:
    """Data on a grid: every function of x is replaced by its linear interpolation."""

    x = torch.rand(500, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 4 - 2
    weight = torch.arange(1, 501, dtype=torch.float64) % 4 + 0.5
    y = (torch.arange(500) % 3 == 0).double()

    def spread(self, size):
        nodes = torch.linspace(-2, 2, size, dtype=torch.float64)
        shares = Bernoulli().shares(self.x, self.y, self.weight, nodes)
        return Bernoulli().on_grid(lambda t: t[:, None], nodes, shares)

    def test_error_falls_with_the_square_of_the_spacing(self):
        likelihood = Bernoulli()

        def value(data):
            return float(likelihood.log_density(torch.sinh(data.features[:, 0]), data))

        exact = value(likelihood.condense(lambda t: t[:, None], self.x, self.y, self.weight))
        coarse, fine = (abs(value(self.spread(size)) - exact) for size in (41, 81))
        # h^2 / 8 times the largest second derivative of log p in x, about 5, a datum.
        assert fine < float(self.weight.sum()) * 0.05**2 / 8 * 5
        assert coarse / fine == pytest.approx(4, rel=0.1)

    def test_nodes_without_data_are_left_out(self):
        data = self.spread(100_001)
        assert len(data.weights) <= 1000
        assert bool((data.weights > 0).all())
