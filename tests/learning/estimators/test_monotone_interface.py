"""Tests of `ISGPRegressor` as an estimator: scikit-learn's checks, warnings, errors, tools."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from monotone_fits import fit, simulate, usual
from sklearn.exceptions import ConvergenceWarning, SkipTestWarning
from sklearn.isotonic import IsotonicRegression
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from bayesloss import ISGPRegressor


class FirstFeature(ISGPRegressor):
    """Takes the first of any number of columns: lets scikit-learn's checks see (n, 1) input."""

    def _one_feature(self, X):
        return X[:, 0]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = False
        tags.input_tags.two_d_array = True
        return tags


class TestScikitLearnsChecks:
    @parametrize_with_checks(
        [FirstFeature(n_basis=2, average_hyperparameters=False, max_iter=3)],
        expected_failed_checks=lambda _: {
            "check_regressors_train": (
                "asks for R^2 > 0.5 on a target made of ten columns, of which one is seen here"
            ),
            "check_fit1d": "X of shape (n,) is one column",
            "check_fit2d_predict1d": "X of shape (n,) is one column",
        },
    )
    @pytest.mark.filterwarnings("ignore:the correlation of target and input:UserWarning")
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    @pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API:sklearn.exceptions.SkipTestWarning")
    def test_on_one_feature(self, estimator, check):
        check(estimator)

    def test_the_expected_failure_is_the_score_alone(self):
        """What `check_regressors_train` asks for, on one column that does explain the target."""
        X, y = simulate(200)
        model = fit(X.tolist(), y.tolist(), n_basis=4)
        assert model.predict(X).shape == y.shape
        assert model.score(X, y) > 0.5

    def test_one_column_is_what_it_says_that_it_takes(self):
        """As IsotonicRegression does, of which scikit-learn's checks say that they cannot test it.

        They had fed it many columns, and thirty of them failed.
        """
        tags = [get_tags(model).input_tags for model in (ISGPRegressor(), IsotonicRegression())]
        assert tags[0] == tags[1]
        with pytest.warns(SkipTestWarning, match="Can't test estimator"):
            results = check_estimator(ISGPRegressor(n_basis=4), on_fail=None)
        assert "failed" not in {result["status"] for result in results}

    @pytest.mark.parametrize("form", [np.asarray, list, pd.Series])
    def test_a_column_may_be_an_array_of_one_dimension(self, form):
        X, y = simulate()
        expected = usual()
        model = fit(form(X[:, 0]), y)
        assert model.n_features_in_ == 1
        for method in ("predict", "predict_interval"):
            np.testing.assert_array_equal(
                getattr(model, method)(form(X[:, 0])), getattr(expected, method)(X)
            )


class TestWarnings:
    def test_direction_in_doubt(self):
        generator = np.random.default_rng(8)
        X = generator.uniform(size=(40, 1))
        y = generator.normal(size=40)
        with pytest.warns(UserWarning, match=r"the correlation .* may be an accident of sampling"):
            model = fit(X, y)
        assert model.increasing_ == (np.corrcoef(X[:, 0], y)[0, 1] >= 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fit(X, y, increasing=model.increasing_)

    @pytest.mark.parametrize("prior", ["isgp", "gp"])
    def test_outside_the_period(self, prior):
        """The inputs' range, [0, 10], covers .3 of a period, 5 +- 5 / .3."""
        X, y = simulate()
        X = 10 * (X - X.min()) / np.ptp(X)
        model = fit(X, y, prior=prior, period_fraction=0.3)
        message = r"2 of 4 inputs lie outside \[-11.6667, 21.6667\]"
        with pytest.warns(UserWarning, match=message) as caught:
            model.predict([[-11.7], [-11.6], [21.6], [21.7]])
        assert caught[0].filename == __file__  # it points at the caller
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.predict([[-11.6], [21.6]])

    def test_search_not_finished(self):
        with pytest.warns(ConvergenceWarning, match="was not maximised") as caught:
            model = ISGPRegressor(n_basis=8, max_iter=1).fit(*simulate())
        assert not model.converged_
        assert caught[0].filename == __file__

    def test_the_noise_of_many_data_is_found_to_a_part_of_its_error(self):
        """A slope of 15 nats says nothing where ten million data make the top that sharp."""
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (2000, 1))
        y = np.tanh(3 * X[:, 0]) + 0.2 * rng.normal(size=2000)
        model = ISGPRegressor(n_basis=16, average_hyperparameters=False)
        model.fit(X, y, sample_weight=np.full(2000, 5e3))
        assert model.converged_
        residual = np.mean((y - model.predict(X)) ** 2)
        # The coefficients' own uncertainty adds 17 / 10^7; the standard error is (2 / 10^7)^1/2.
        assert model.noise_variance_ == pytest.approx(residual, rel=1e-4)


class TestManyData:
    def test_a_fit_part_by_part_is_that_of_all(self, monkeypatch):
        rng = np.random.default_rng(0)
        X = rng.standard_t(2, size=(1000, 1))  # the range map has far values to look at
        y = np.tanh(X[:, 0]) + np.linspace(0, 1, 1000) + 0.1 * rng.normal(size=1000)
        weight = rng.integers(1, 4, 1000).astype(float)
        model = ISGPRegressor(n_basis=16, average_hyperparameters=False)
        whole = model.fit(X, y, weight).predict(X)
        monkeypatch.setattr("bayesloss.learning.data.rows._PART", 64)
        # Only the order of summing differs; the search then stops a rounding error elsewhere.
        np.testing.assert_allclose(model.fit(X, y, weight).predict(X), whole, rtol=0, atol=1e-6)

    def test_inputs_that_may_not_be_written_to_stay_as_they_are(self, request):
        X, y = simulate(50)
        before = X.copy()
        X.flags.writeable = y.flags.writeable = False
        torch.set_warn_always(True)  # or PyTorch says it once, whoever asked first
        request.addfinalizer(lambda: torch.set_warn_always(False))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ISGPRegressor(n_basis=8).fit(X, y)
        np.testing.assert_array_equal(X, before)


class TestErrors:
    X, y = simulate(20)

    def test_shapes(self):
        two = np.hstack([self.X, self.X])
        message = r"expected X with one feature, of shape \(n, 1\), got \(20, 2\)"
        with pytest.raises(ValueError, match=message):
            fit(two, self.y)
        with pytest.raises(ValueError, match="Expected 2D array, got scalar array"):
            fit(self.X[0, 0], self.y)
        with pytest.raises(ValueError, match="2 features, but ISGPRegressor is expecting 1"):
            usual().predict(two)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            fit(self.X, self.y[:-1])
        with pytest.raises(ValueError, match="minimum of 2 is required"):
            fit(self.X[:1], self.y[:1])

    def test_data_without_information(self):
        with pytest.raises(ValueError, match="expected at least 2 distinct inputs, got 1"):
            fit(np.full((20, 1), 0.3), self.y)
        with pytest.raises(ValueError, match=r"expected a target that varies, got 20 times 4\.0"):
            fit(self.X, np.full(20, 4.0))

    def test_data_left_without_information_by_their_weights(self):
        weight = np.zeros(20)
        weight[4] = 1
        with pytest.raises(ValueError, match="expected at least 2 distinct inputs, got 1"):
            fit(self.X, self.y, weight)
        with pytest.raises(ValueError, match="[Nn]egative"):
            fit(self.X, self.y, weight - 0.5)
        with pytest.raises(ValueError, match="zero|expected at least 2 distinct inputs, got 0"):
            fit(self.X, self.y, np.zeros(20))

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"n_basis": 1}, "'n_basis' parameter .* must be an int"),
            ({"n_basis": 2.5}, "'n_basis' parameter .* must be an int"),
            ({"n_basis": 7}, "expected n_basis even and at least 2, got n_basis=7"),
            ({"increasing": "up"}, "'increasing' parameter .* must be .*{'auto'}"),
            ({"period_fraction": 0}, r"'period_fraction' parameter .* \(0.0, 1.0\]"),
            ({"period_fraction": 1.1}, r"'period_fraction' parameter .* \(0.0, 1.0\]"),
            ({"period_fraction": math.nan}, "'period_fraction' parameter .* must be a float"),
            ({"prior": "rbf"}, "'prior' parameter .* must be a str among {'isgp', 'gp'}"),
            ({"max_iter": 0}, "'max_iter' parameter .* must be an int"),
        ],
    )
    def test_parameters(self, settings, message):
        message = message.replace("{'isgp', 'gp'}", "{('isgp', 'gp'|'gp', 'isgp')}")
        with pytest.raises(ValueError, match=message):
            fit(self.X, self.y, **settings)


class TestScikitLearnsTools:
    X, y = simulate()

    def test_fits_where_gradients_are_off(self):
        expected = usual(average_hyperparameters=True).predict(self.X)
        with torch.inference_mode():
            model = fit(self.X, self.y, average_hyperparameters=True)
            assert model.predict(self.X) == pytest.approx(expected)
        with torch.no_grad():
            assert fit(self.X, self.y).predict(self.X) == pytest.approx(usual().predict(self.X))
