import math
import warnings
from functools import cache

import numpy as np
import pytest
from monotone_fits import SAME, fit, simulate, usual
from scipy.stats import chi2, norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel, StationaryKernelMixin

from bayesloss import ISGPRegressor


class TestSymmetries:
    X, y = simulate()
    grid = np.linspace(-1, 1, 11)[:, None]

    AVERAGE = (True, False)

    def answers(self, model, grid=None):
        return np.stack(model.predict(self.grid if grid is None else grid, return_std=True))

    @classmethod
    @cache
    def base(cls):
        """What every mirrored and rescaled fit must come back to: averaged, and plugged in."""
        return [
            cls().answers(fit(cls.X, cls.y, n_basis=4, average_hyperparameters=average))
            for average in cls.AVERAGE
        ]

    @pytest.mark.parametrize(
        ("x_scale", "x_shift", "y_scale", "y_shift"),
        [(-700.0, 300.0, 0.003, -20.0), (0.02, -900.0, -500.0, 40.0)],
    )
    def test_affine_equivariance(self, x_scale, x_shift, y_scale, y_shift):
        """In any units, and mirrored in either axis: the same fit in those units.

        Of the average, which climbs to its maxima, rounding changes 1e-8; of the plug-in more, see
        above.
        """
        tolerances = ({"rtol": 1e-5, "atol": 1e-6}, SAME)
        for base, average, tolerance in zip(self.base(), self.AVERAGE, tolerances, strict=True):
            there = fit(
                x_shift + x_scale * self.X,
                y_shift + y_scale * self.y,
                increasing=x_scale * y_scale > 0,
                n_basis=4,
                average_hyperparameters=average,
            )
            got, got_std = self.answers(there, x_shift + x_scale * self.grid)
            answers = np.stack([(got - y_shift) / y_scale, got_std / abs(y_scale)])
            np.testing.assert_allclose(answers, base, **tolerance)

    @pytest.mark.parametrize("prior", ["isgp", "gp"])
    def test_evidence_and_noise_are_in_the_targets_units(self, prior):
        """Minus ten times the target: n log 10 nats less, a hundred times the noise variance."""
        one, ten = (usual(s, prior=prior) for s in (1, -10))
        assert (one.increasing_, ten.increasing_) == (True, False)
        for name in ("log_evidence_", "evidence_bound_"):
            shift = getattr(ten, name) - getattr(one, name)
            assert shift == pytest.approx(-60 * math.log(10), abs=0.01)
        assert ten.noise_variance_ == pytest.approx(100 * one.noise_variance_, rel=1e-3)

    def test_evidence_counts_weights(self):
        weight = np.random.default_rng(1).uniform(0.5, 2, 60)
        one, ten = (fit(self.X, s * self.y, weight) for s in (1, 10))
        shift = ten.log_evidence_ - one.log_evidence_
        assert shift == pytest.approx(-weight.sum() * math.log(10), abs=0.01)


class TestFit:
    def test_everything_is_monotone(self):
        grid = np.linspace(-6, 6, 300)[:, None]
        for sign in (1, -1):
            model = usual(sign, average_hyperparameters=True)
            with pytest.warns(UserWarning, match="lie outside"):
                mean = model.predict(grid)
            with pytest.warns(UserWarning, match="lie outside"):
                paths = model.sample_source(grid, 20, random_state=0)
            assert paths.shape == (300, 20)
            scale = np.abs(paths).max()  # values of this size are rounded
            assert np.diff(sign * mean).min() >= -1e-12 * scale
            assert np.diff(sign * paths, axis=0).min() >= -1e-12 * scale

    def test_sampled_sources_have_the_predicted_moments(self):
        model = usual(-1, average_hyperparameters=True)
        n = 5000
        grid = np.linspace(-1, 1, 10)[:, None]
        mean, std = model.predict(grid, return_std=True)
        paths = model.sample_source(grid, n, random_state=1)
        assert np.all(np.abs(paths.mean(axis=1) - mean) < 4 * std / math.sqrt(n))
        squares = (paths - mean[:, None]) ** 2
        error = squares.std(axis=1) / math.sqrt(n)
        assert np.all(np.abs(squares.mean(axis=1) - std**2) < 4 * error)

    def test_sampling_repeats_with_its_seed(self):
        model = usual()
        grid = np.linspace(-1, 1, 5)[:, None]
        one, two, other = (model.sample_source(grid, 3, random_state=s) for s in (0, 0, 1))
        np.testing.assert_array_equal(one, two)
        assert not np.allclose(one, other)
        assert model.sample_source(grid).shape == (5, 1)
        with pytest.raises(ValueError, match="expected n_samples of at least 0, got -1"):
            model.sample_source(grid, -1)

    def test_recovers_the_function(self):
        """The error of the mean is that of a fit with few degrees of freedom."""
        X, y = simulate(400, noise=0.2, seed=5)
        mean = fit(X, y).predict(X)
        # The mean square is noise^2 k / n; monotone curves like this one have k < 8 or so.
        assert np.mean((mean - np.tanh(2 * X[:, 0])) ** 2) < 0.04 * 8 / 400

    def test_bands_cover(self):
        """Errors over eight functions drawn from the prior, in standard deviations.

        Of one point a function their squares add up to a chi square of eight, times 1.2: in 140
        such functions the 95 % band covers 93 %. The mean of seven points varies less. Below the
        99.9 % quantile, where half the band would not be.
        """
        generator = np.random.default_rng(6)
        squares = 0.0
        fine = np.linspace(-1, 1, 2001)
        at = np.linspace(-0.9, 0.9, 7)
        angle = np.pi * 0.25 * np.multiply.outer(fine, [1, 2])
        basis = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
        deviations = np.sqrt([0.5, 0.25, 0.5, 0.25])
        widths = []
        for _ in range(8):
            square = (basis @ (deviations * generator.normal(size=4))) ** 2
            source = np.cumsum(square) * (fine[1] - fine[0])  # the integral of f^2, by a sum
            x = generator.uniform(-1, 1, 60)
            y = np.interp(x, fine, source) + 0.2 * generator.normal(size=60)
            model = fit(x[:, None], y, increasing=True, n_basis=4, average_hyperparameters=True)
            mean, std = model.predict(at[:, None], return_std=True)
            squares += np.mean(((np.interp(at, fine, source) - mean) / std) ** 2)
            widths += std.tolist()
        assert squares < 1.2 * chi2.ppf(0.999, 8)
        assert np.median(widths) < 0.2 / 2  # and no wonder: the bands are narrow

    @pytest.mark.parametrize("prior", ["isgp", "gp"])
    def test_new_data_fall_where_they_should(self, prior):
        """95 % within 1.96 standard deviations of nu and noise together, given one fit."""
        X, y = simulate(1300, seed=11)
        model = fit(X[:300], y[:300], prior=prior, average_hyperparameters=True)
        mean, std = model.predict(X[300:], return_std=True)
        deviation = np.abs(y[300:] - mean) / np.sqrt(std**2 + model.noise_variance_)
        # Binomial for the thousand, and a relative error of 4 % in the one noise estimate, which
        # moves the share by 1 %.
        assert np.mean(deviation < 1.96) == pytest.approx(0.95, abs=0.02 + 0.01)

    def test_gp_is_scikit_learns_at_the_same_hyper_parameters(self):
        """`prior="gp"` against GaussianProcessRegressor with the Mercer sum as its kernel."""
        X, y = simulate(50, seed=7)
        model = fit(3 + 2 * X, 5 * y - 1, prior="gp")
        prior = model.posterior_.prior
        theta = (prior.kernel.a, prior.kernel.b, prior.gamma, prior.mu)
        a, b, gamma, mu = (float(value) for value in theta)
        alpha = float(model.likelihood_.alpha)

        class Trigonometric(StationaryKernelMixin, Kernel):
            def __init__(self):
                """It has no parameters that scikit-learn should know of."""

            def __call__(self, X, Y=None, eval_gradient=False):
                gap = np.subtract.outer(X[:, 0], (X if Y is None else Y)[:, 0])
                m = np.arange(1, 5)
                return np.cos(np.pi * 0.25 * gap[..., None] * m) @ (b / a**m) + 1 / gamma

            def diag(self, X):
                return np.diag(self(X))

        # Standardised as the estimator says: inputs span [-1, 1], targets have mean 0 and sd 1.
        center = (X.max() + X.min()) / 2
        half = np.ptp(X) / 2
        z = (y - y.mean()) / y.std()
        other = GaussianProcessRegressor(Trigonometric(), alpha=1 / alpha, optimizer=None)
        other.fit((X - center) / half, z - mu)
        grid = np.linspace(-1.5, 1.5, 20)[:, None]
        mean, std = other.predict((grid - center) / half, return_std=True)
        got, got_std = model.predict(3 + 2 * grid, return_std=True)
        # Two exact solutions of one linear system.
        np.testing.assert_allclose(got, 5 * (y.mean() + y.std() * (mean + mu)) - 1, rtol=1e-7)
        np.testing.assert_allclose(got_std, 5 * y.std() * std, rtol=1e-6)
        expected = other.log_marginal_likelihood_value_ - 50 * math.log(5 * y.std())
        assert model.log_evidence_ == pytest.approx(expected, abs=1e-7)
        assert model.evidence_bound_ == pytest.approx(expected, abs=1e-7)
        assert model.noise_variance_ == pytest.approx((5 * y.std()) ** 2 / alpha, rel=1e-12)

    def test_the_direction_can_be_given(self):
        """Against the data: the fit is flat, and says that all is noise."""
        X, y = simulate()
        model = fit(X, y, increasing=False)
        assert model.increasing_ is False
        assert np.ptp(model.predict(X)) < 0.05
        assert model.noise_variance_ == pytest.approx(y.var(), rel=0.1)

    @pytest.mark.parametrize("prior", ["isgp", "gp"])
    def test_two_points_are_enough(self, prior):
        model = fit([[0.0], [1.0]], [0.0, 1.0], prior=prior, average_hyperparameters=True)
        mean, std = model.predict([[0.0], [1.0]], return_std=True)
        assert np.all(np.isfinite([mean, std]))
        assert mean[0] <= mean[1]

    def test_data_without_noise_come_to_an_end(self):
        """Rounding hides what Newton's method would still gain: it must stop, not halve on.

        It once took 200 steps of 30 halvings for each of a hundred evaluations.
        """
        X, _ = simulate(50)
        y = np.exp(5 * X[:, 0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = fit(X, y, average_hyperparameters=True)
        assert model.posterior_.n_iter < 50
        np.testing.assert_allclose(model.predict(X), y, atol=0.01 * np.ptp(y))

    @pytest.mark.parametrize(
        ("prior", "n", "slope", "n_basis"), [("gp", 30, 2.0, 16), ("isgp", 20, -3.0, 64)]
    )
    def test_an_exact_line(self, prior, n, slope, n_basis):
        """The first thing that people try: the evidence takes the noise to where rounding begins.

        Hessians have a condition number of 1e16 there, so the curve is right to its root, 1e-8.
        """
        x = np.linspace(0, 1, n)
        model = ISGPRegressor(n_basis=n_basis, prior=prior).fit(x[:, None], slope * x)
        between = np.linspace(0.02, 0.98, 40)
        low, high = model.predict_interval(between[:, None], of="observation")
        assert model.converged_
        np.testing.assert_allclose(model.predict(between[:, None]), slope * between, atol=1e-6)
        assert np.all((low < high) & (high - low < 1e-5))

    def test_period_fraction_sets_the_period(self):
        """In the units of the fit the inputs span [-1, 1], a period 2 / c."""
        X, y = simulate()
        for fraction in (0.3, 1.0):
            kernel = fit(5 * X, y, period_fraction=fraction).posterior_.prior.kernel
            assert kernel.c == fraction
            assert kernel.n_basis == 8


class TestAverage:
    X, y = simulate()
    grid = np.linspace(-0.9, 0.9, 7)[:, None]  # within the inputs: beyond them lines go on straight

    def test_plugged_in_hyper_parameters(self):
        """Without the average the posterior alone predicts, and its bands are narrower."""
        plain = usual()
        averaged = usual(average_hyperparameters=True)
        x, _ = plain.standardise(self.grid[:, 0], self.grid[:, 0])
        mean, variance = plain.posterior_.moments(x)
        got, std = plain.predict(self.grid, return_std=True)
        np.testing.assert_array_equal(got, self.y.mean() + self.y.std() * mean.numpy())
        np.testing.assert_allclose(std, self.y.std() * variance.sqrt().numpy(), rtol=1e-12)
        wider, wider_std = averaged.predict(self.grid, return_std=True)
        assert np.mean(wider_std) > np.mean(std)
        assert np.all(np.abs(wider - got) < std)
        assert averaged.log_evidence_ == plain.log_evidence_

    def test_the_noise_is_the_components_by_their_weights(self):
        """Of twenty rows, where components differ by so much that their weights count."""
        X, y = simulate(20)
        model = fit(X, y, average_hyperparameters=True)
        noise = np.array([1 / float(q.likelihood.alpha) for q in model.mixture_.components])
        found = model.noise_variance_ / y.var()
        assert found == pytest.approx(np.average(noise, weights=model.mixture_.weights), rel=1e-9)
        assert abs(found / noise.mean() - 1) > 0.01

    @pytest.mark.parametrize("sign", [1, -1])
    def test_intervals(self, sign):
        """Of the plug-in: mean and normal quantiles; of the mixture: nested, low below high."""
        plain = usual(sign)
        mean, std = plain.predict(self.grid, return_std=True)
        for of, extra in (("curve", 0.0), ("observation", plain.noise_variance_)):
            low, high = plain.predict_interval(self.grid, 0.9, of)
            half = norm.ppf(0.95) * np.sqrt(std**2 + extra)
            np.testing.assert_allclose(low, mean - half, rtol=1e-9)
            np.testing.assert_allclose(high, mean + half, rtol=1e-9)
        averaged = usual(sign, average_hyperparameters=True)
        ends = [averaged.predict_interval(self.grid, level) for level in (0.5, 0.95)]
        ordered = np.stack([ends[1][0], ends[0][0], ends[0][1], ends[1][1]])
        assert np.all(np.diff(ordered, axis=0) > 0)
        with pytest.raises(ValueError, match=r"expected a level in \(0, 1\), got 95"):
            averaged.predict_interval(self.grid, 95)
        with pytest.raises(ValueError, match='expected of to be "curve" or "observation"'):
            averaged.predict_interval(self.grid, of="noise")
