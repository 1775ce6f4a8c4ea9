"""Tests of the priors over sources, against psi, brute force, and Monte Carlo.

The closed form of psi is itself tested against quadrature in ``test_trigonometric.py``; here it
stands for the definition nu(x) = nu_0 + w^T psi(x) w, in dense algebra that the package avoids.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from textbook_joint import nu_of, prior_of

from bayesloss import GP, ISGP, TrigonometricKernel
from bayesloss.learning.sources.priors import CentredISGP, grid_size

bounded = settings(max_examples=25, deadline=None, derandomize=True)
seeds = st.integers(0, 2**31 - 1)


def points(n, reach=2.0, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).uniform(-reach, reach, n))


def random_gaussian(prior, seed):
    """A location and a full root for Gamma: no independence anywhere."""
    generator = np.random.default_rng(seed)
    size = len(prior.precision)
    scale = prior.precision.rsqrt().numpy()
    location = generator.normal(size=size) * scale
    root = scale[:, None] * generator.normal(size=(size, size)) / math.sqrt(size)
    return torch.from_numpy(location), torch.from_numpy(root)


@pytest.mark.parametrize("kind", [ISGP, GP])
class TestBoth:
    def test_prior_of_gamma(self, kind):
        """Definition 2: w ~ N(0, Lambda), nu_0 ~ N(mu, 1/gamma), nu_0 last."""
        prior = prior_of(kind)
        variance = [*(0.9 / 1.6 ** np.array([1, 2, 3, 1, 2, 3])), 1 / 2.5]
        np.testing.assert_allclose(1 / prior.precision, variance, rtol=1e-14)
        np.testing.assert_array_equal(prior.location, [0] * 6 + [0.4])

    def test_samples_have_the_priors_mean_and_covariance(self, kind):
        prior = prior_of(kind)
        n = 20_000
        Gamma = prior.sample(n, torch.Generator().manual_seed(1)).numpy()
        scaled = (Gamma - prior.location.numpy()) * np.sqrt(prior.precision.numpy())
        # Of 7 means and 28 covariances, each within four standard errors; a variance has 2/n.
        assert np.abs(scaled.mean(axis=0)).max() < 4 / math.sqrt(n)
        errors = np.sqrt((1 + np.eye(7)) / n)
        assert np.all(np.abs(scaled.T @ scaled / n - np.eye(7)) < 4 * errors)

    def test_prior_mean_and_variance_of_nu(self, kind):
        """Theorem 5, mu + k(0, 0) x for the ISGP, and the variance: Monte Carlo at ten points."""
        prior = prior_of(kind)
        n = 20_000
        x = points(10, seed=2)
        paths = nu_of(prior, x, prior.sample(n, torch.Generator().manual_seed(3))).numpy()
        mean = paths.mean(axis=0)
        variance = paths.var(axis=0)
        assert np.all(np.abs(mean - prior.mean(x).numpy()) < 4 * np.sqrt(variance / n))
        fourth = ((paths - mean) ** 4).mean(axis=0)
        h = prior.features(x)
        root = torch.diag(prior.precision.rsqrt())
        expected = (h @ prior.covariance(prior.location, root) @ h.T).diagonal().numpy()
        assert np.all(np.abs(variance - expected) < 4 * np.sqrt((fourth - variance**2) / n))

    def test_source_is_the_definition(self, kind):
        prior = prior_of(kind)
        x = points(9)
        Gamma = prior.sample(4, torch.Generator().manual_seed(0))
        expected = nu_of(prior, x, Gamma)
        # Sums of a dozen terms of size one.
        torch.testing.assert_close(prior.source(x, Gamma), expected, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(prior.source(x, Gamma[1]), expected[1], rtol=1e-12, atol=1e-13)
        u = prior.coefficients(Gamma)
        assert u.shape == (4, prior.features(x).shape[1])
        torch.testing.assert_close(u @ prior.features(x).T, expected, rtol=1e-12, atol=1e-13)

    @pytest.mark.parametrize("shape", [(), (2,)])
    def test_derivative_by_finite_differences(self, kind, shape):
        """Eq. (13): nu' = f^2 for the ISGP; for the GP the slope of w^T phi."""
        prior = prior_of(kind)
        x = points(12, reach=1.9, seed=10)
        step = 1e-5
        Gamma = prior.sample(2, torch.Generator().manual_seed(11))
        Gamma = Gamma if shape else Gamma[0]
        ends = [nu_of(prior, x + s, Gamma.reshape(-1, 7)) for s in (step, -step)]
        slopes = ((ends[0] - ends[1]) / (2 * step)).reshape(*shape, 12)
        # Truncation step^2 and rounding 1e-16 / step, both times derivatives of size 100 at most.
        torch.testing.assert_close(prior.derivative(x, Gamma), slopes, rtol=0, atol=1e-7)

    def test_start_is_near_the_prior_mean(self, kind):
        prior = prior_of(kind, n_basis=16)
        x = torch.linspace(-1, 1, 50, dtype=torch.float64)
        start = prior.start(x)
        assert start.shape == (17,)
        gap = prior.source(x, start) - prior.mean(x)
        # The prior mean of the ISGP rises by 2 k(0, 0) = 3 here; a fifth of it is near.
        assert float(gap.abs().max()) < 0.2 * 3
        if kind is ISGP:
            assert float(start[:-1].norm()) > 0.1

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"gamma": 0.0}, "expected a finite gamma > 0, got gamma=0.0"),
            ({"gamma": math.nan}, "expected a finite gamma > 0, got gamma=nan"),
            ({"mu": math.nan}, "expected a finite mu, got mu=nan"),
        ],
    )
    def test_bad_hyper_parameters_are_refused(self, kind, settings, message):
        with pytest.raises(ValueError, match=message):
            prior_of(kind, **settings)

    def test_inputs_of_a_wrong_shape_are_refused(self, kind):
        prior = prior_of(kind)
        with pytest.raises(ValueError, match=r"expected x of shape \(n,\), got \(3, 1\)"):
            prior.source(torch.zeros((3, 1), dtype=torch.float64), prior.location)


class TestMoments:
    """Mean and covariance of nu under any Gaussian over Gamma (lemma 7 as corrected)."""

    @bounded
    @given(seeds)
    def test_isgp_against_dense_formulas(self, seed):
        """E = nu_0 + w^T psi w + tr(psi S_w); the covariance with every cross term."""
        prior = prior_of(ISGP, n_basis=4)
        location, root = random_gaussian(prior, seed)
        x = points(5, seed=seed)
        psi = prior.kernel.psi(x).numpy()
        w = location[:-1].numpy()
        nu_0 = float(location[-1])
        S = (root @ root.T).numpy()
        S_w = S[:-1, :-1]
        cross = S[:-1, -1]
        var_0 = S[-1, -1]
        mean = [nu_0 + w @ p @ w + np.trace(p @ S_w) for p in psi]
        covariance = [
            [
                2 * np.trace(p @ S_w @ q @ S_w)
                + 4 * w @ p @ S_w @ q @ w
                + var_0
                + 2 * w @ p @ cross
                + 2 * w @ q @ cross
                for q in psi
            ]
            for p in psi
        ]
        features = prior.features(x)
        got = (features @ prior.mean_coefficients(location, root)).numpy()
        by_form = features @ prior.covariance(location, root) @ features.T
        # Traces of 4 x 4 products of numbers of size ten at most.
        np.testing.assert_allclose(got, mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(by_form, covariance, rtol=1e-11, atol=1e-11)


class TestPaths:
    @bounded
    @given(seeds, st.floats(1.02, 5), st.floats(0.1, 2))
    def test_isgp_paths_never_decrease(self, seed, a, c):
        prior = prior_of(ISGP, a=a, c=c)
        x = points(200, reach=3 / c, seed=seed).sort().values
        paths = prior.source(x, prior.sample(3, torch.Generator().manual_seed(seed)))
        # Rounding: 1e-15 of the largest value, which is reached at the ends.
        assert float(paths.diff(dim=1).min()) >= -1e-13 * float(paths.abs().max())

    def test_isgp_climbs_a_repeating_staircase(self):
        """Outside [-1/c, 1/c] f repeats: nu rises by 2/c times the mean square of f a period."""
        prior = prior_of(ISGP, c=0.5)
        Gamma = prior.sample(3, torch.Generator().manual_seed(0))
        x = points(40, reach=6)
        rise = prior.source(x + 4, Gamma) - prior.source(x, Gamma)
        # By Parseval: every basis function has mean square 1/2.
        expected = 4 * 0.5 * (Gamma[:, :-1] ** 2).sum(dim=1, keepdim=True)
        torch.testing.assert_close(rise, expected.expand(-1, 40), rtol=1e-12, atol=1e-12)

    def test_gp_is_held_outside_the_period(self):
        """At the value of the near end, with slope zero there and the true slope inside."""
        prior = prior_of(GP, c=0.5)
        Gamma = prior.sample(2, torch.Generator().manual_seed(0))
        ends = nu_of(prior, torch.tensor([-2.0, 2.0], dtype=torch.float64), Gamma)
        outside = torch.tensor([-2.5, -9.0, 2.01, 30.0], dtype=torch.float64)
        got = prior.source(outside, Gamma)
        torch.testing.assert_close(got, ends.repeat_interleave(2, dim=1), rtol=1e-12, atol=1e-13)
        assert torch.equal(prior.derivative(outside, Gamma), torch.zeros_like(got))
        assert bool((prior.derivative(outside / 20, Gamma) != 0).all())


CENTRED = CentredISGP(
    TrigonometricKernel(a=1.5, c=0.2, n_basis=8).scaled(0.3), tau=0.4, mu=-0.2, gamma=2.0
)
ANY = torch.linspace(-0.7, 1.1, 10, dtype=torch.float64)


def test_centred_source_is_the_integral_of_the_squared_root():
    """nu = nu_0 + the integral of (w_0 + w^T phi)^2, by the trapezoidal rule."""
    w = ANY[:-2]
    level = ANY[-2]
    nu_0 = ANY[-1]
    z = torch.linspace(0, 2, 20_001, dtype=torch.float64)
    f = CENTRED.kernel.basis(z) @ w + level
    # The rule's error is h^2 / 12 times the range times the largest second derivative.
    expected = nu_0 + torch.trapezoid(f**2, z)
    assert CENTRED.source(z[-1:], ANY)[0] == pytest.approx(float(expected), abs=1e-7)
    torch.testing.assert_close(CENTRED.derivative(z, ANY), f**2)


def test_centred_derivatives_are_those_of_the_coefficients():
    jacobian = torch.autograd.functional.jacobian(CENTRED.coefficients, ANY)
    torch.testing.assert_close(CENTRED.jacobian(ANY), jacobian)
    s = torch.linspace(1, -2, 18, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(lambda Gamma: s @ CENTRED.coefficients(Gamma), ANY)
    torch.testing.assert_close(CENTRED.curvature(s), hessian)


def test_centred_prior_mean_is_the_line():
    x = torch.linspace(-4, 4, 5, dtype=torch.float64)
    nu = CENTRED.source(x, CENTRED.sample(40_000, torch.Generator().manual_seed(0)))
    error = nu.std(dim=0) / 200
    assert ((nu.mean(dim=0) - CENTRED.mean(x)).abs() < 4 * error).all()


def test_centred_moments_of_the_coefficients_are_those_of_draws():
    generator = torch.Generator().manual_seed(1)
    root = 0.3 * torch.randn((10, 10), dtype=torch.float64, generator=generator)
    noise = torch.randn((200_000, 10), dtype=torch.float64, generator=generator)
    rows = torch.randn((4, 18), dtype=torch.float64, generator=generator)
    values = CENTRED.coefficients(ANY + noise @ root.T) @ rows.T
    mean = rows @ CENTRED.mean_coefficients(ANY, root)
    error = values.std(dim=0) / 200_000**0.5
    assert ((values.mean(dim=0) - mean).abs() < 4 * error).all()
    scale = values.std(dim=0)
    # Correlations from 200,000 draws with heavy tails are off by about 0.005.
    wrong = (torch.cov(values.T) - rows @ CENTRED.covariance(ANY, root) @ rows.T) / torch.outer(
        scale, scale
    )
    assert wrong.abs().max() < 0.02


@pytest.mark.parametrize(("variance", "tau"), [(0.9, 0.5), (0.3, 0.0)])
def test_a_prior_that_leaves_no_level_is_refused(variance, tau):
    kernel = TrigonometricKernel(a=2.0, c=1.0, n_basis=4).scaled(variance)
    with pytest.raises(ValueError, match="expected tau > 0, variance"):
        CentredISGP(kernel, tau=tau)


@pytest.mark.parametrize(("a", "c"), [(1.2, 0.0625), (3.0, 0.3)])
@pytest.mark.parametrize("n", [10**4, 16 * 10**4, 1e15])
def test_a_grid_is_no_finer_than_a_thousandth_of_a_deviation_asks(a, c, n):
    """Steps h move the mode by n^1/2 (h / l)^2 / 12; the largest that is allowed, to a node.

    The length scale l is where the slowest wave's weight, exp(-l pi c), has fallen to 1 / a. Beyond
    1e8 data the grid is the same.
    """
    prior = ISGP(TrigonometricKernel(a=a, c=c, n_basis=32))
    length = brentq(lambda l: math.exp(-l * math.pi * c) - 1 / a, 0, 100)
    size = grid_size(prior, 16.0, n)

    def moved(nodes):
        return min(n, 1e8) ** 0.5 * (16.0 / (nodes - 1) / length) ** 2 / 12

    assert moved(size) <= 1e-3 < moved(size - 1)


def test_a_grid_has_64_nodes_at_least():
    prior = ISGP(TrigonometricKernel(a=1.2, c=0.0625, n_basis=32))
    assert grid_size(prior, 0.0, 10) == grid_size(prior, 1.0, 1) == 64
