import warnings

import numpy as np
import pytest
from monotone_fits import SAME, fit, simulate, usual


class TestRange:
    """The fit in heavy-tailed inputs against the fit where they are well-spread."""

    @pytest.mark.parametrize("least", [5e-324, 1e-310])
    def test_inputs_of_which_half_are_hardly_numbers(self, least):
        """A bulk whose width has few digits, or none, stays as it is: near zero, all the same."""
        X = np.linspace(0, 1, 40)[:, None]
        y = np.linspace(0, 1, 40) ** 2
        y += 0.05 * np.random.default_rng(0).normal(size=40)
        X[:21] = least * np.arange(21)[:, None]
        found = fit(X, y).predict(X)
        zero = X.copy()
        zero[:21] = 0
        np.testing.assert_allclose(found, fit(zero, y).predict(zero), **SAME)

    def test_log_normal_inputs(self):
        """The error at new inputs is within a quarter of the fit on log x: one data set."""
        generator = np.random.default_rng(3)
        log = generator.normal(size=(100, 1))
        new = np.linspace(-2, 2, 101)[:, None]
        y = np.tanh(2 * log[:, 0]) + 0.2 * generator.normal(size=100)
        truth = np.tanh(2 * new[:, 0])
        settings = {"n_basis": 16}
        expected = fit(log, y, **settings).predict(new) - truth
        for sigma in (1, 3):
            model = fit(np.exp(sigma * log), y, **settings)
            assert not model.range_map_.is_identity
            error = model.predict(np.exp(sigma * new)) - truth
            assert np.mean(error**2) ** 0.5 < 1.25 * np.mean(expected**2) ** 0.5

    def test_an_outlier(self):
        """One x of 100 among 100 in [0, 1]: unmapped, the error was seven times as large."""
        generator = np.random.default_rng(1)
        X = generator.uniform(size=(100, 1))
        new = np.linspace(0, 1, 101)[:, None]
        y = np.sqrt(X[:, 0]) + 0.1 * generator.normal(size=100)
        clean = fit(X, y, n_basis=16)
        assert clean.range_map_.is_identity
        X[0] = 100.0
        error = fit(X, y, n_basis=16).predict(new) - np.sqrt(new[:, 0])
        expected = clean.predict(new) - np.sqrt(new[:, 0])
        assert np.mean(error**2) ** 0.5 < 1.25 * np.mean(expected**2) ** 0.5

    def test_beyond_the_data(self):
        """Log-normal x, up to far beyond the largest, where tanh has levelled out.

        The paper's staircase, on the range as it is, is off by 3,000 already at the first point.
        """
        generator = np.random.default_rng(5)
        X = np.exp(2 * generator.normal(size=(100, 1)))
        y = np.tanh(np.log(X[:, 0])) + 0.1 * generator.normal(size=100)
        model = fit(X, y, n_basis=16, average_hyperparameters=True)
        far = X.max() * np.array([[1.5], [4.0], [100.0]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            error = model.predict(far) - np.tanh(np.log(far[:, 0]))
            low, high = model.predict_interval(far)
        assert np.abs(error).max() < 0.4  # four standard deviations of the noise
        assert np.all(np.diff(high - low) > 0)

    def test_the_papers_curve_has_no_straight_ends(self):
        """With the range as it is, the posterior of the plain ISGP predicts everywhere."""
        X, y = simulate()
        model = fit(X, y, robust_range=False)
        assert model.mixture_.components[0] is model.posterior_
        assert type(model.posterior_.prior).__name__ == "ISGP"
        far, _ = model.standardise(np.array([1.5, 2.5]), np.zeros(2))
        expected = y.mean() + y.std() * model.posterior_.mean(far).numpy()
        np.testing.assert_array_equal(model.predict([[1.5], [2.5]]), expected)
        assert abs(usual().predict([[2.5]])[0] - expected[1]) > 0.01

    def test_monotone_far_out(self):
        """Also beyond the data, where the map is logarithmic."""
        generator = np.random.default_rng(2)
        X = np.exp(3 * generator.normal(size=(60, 1)))
        model = fit(X, -np.log(X[:, 0]) + generator.normal(size=60), average_hyperparameters=True)
        grid = np.sort(np.concatenate([X[:, 0], np.geomspace(1e-9, 1e9, 100)]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            mean = model.predict(grid[:, None])
            paths = model.sample_source(grid[:, None], 5, 0)
        assert np.diff(mean).max() <= 1e-12 * np.abs(mean).max()
        assert np.diff(paths, axis=0).max() <= 1e-12 * np.abs(paths).max()
