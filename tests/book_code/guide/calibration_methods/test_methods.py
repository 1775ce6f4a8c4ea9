"""Learned links against calibration: the protocol and the measures."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from bayesloss_book.guide.calibration_methods import methods
from bayesloss_book.guide.calibration_methods.problems import BinaryProblem, problem
from bayesloss_book.rivals.baselines import calibration_error


def test_a_fit_that_knows_the_logistic_link_is_logistic_regression():
    found = problem("logistic", "Gaussian", 500, 0)
    offset, weights = methods.fit_true_link(found.X, found.y, "logistic", found.weights, 0.1)
    model = LogisticRegression(C=0.1, tol=1e-8).fit(found.X, found.y)
    # Both stop when the gradient is small: L-BFGS-B at its default tolerance.
    assert weights == pytest.approx(model.coef_[0], abs=1e-3)
    assert offset == pytest.approx(model.intercept_[0], abs=1e-3)


def test_noise_is_the_calibration_error_of_probabilities_that_are_right():
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 1.0, size=2_000)
    errors = [calibration_error(p, rng.random(len(p)) < p) for _ in range(400)]
    # Four standard errors; a sum of a few hundred Bernoulli variables is nearly normal.
    spread = 4 * np.std(errors) / np.sqrt(len(errors))
    assert np.mean(errors) == pytest.approx(methods.calibration_noise(p), abs=spread)


def test_measures_of_a_constant_by_hand():
    found = problem("iris", "virginica", 0, 0)
    rate = found.y.mean()
    share = found.truth.mean()
    got = methods.measure(data="iris", task="virginica", size=0, C=1.0, seed=0, method="base rate")
    assert got["log_loss"] == pytest.approx(-share * np.log(rate) - (1 - share) * np.log1p(-rate))
    assert got["brier"] == pytest.approx(share * (1 - rate) ** 2 + (1 - share) * rate**2)
    assert got["accuracy"] == pytest.approx(1 - share)
    assert got["calibration"] == pytest.approx(abs(share - rate))
    assert np.isnan([got["divergence"], got["square"], got["angle"]]).all()
    assert got["wrong_and_sure"] == 0


def test_the_truth_has_no_divergence(monkeypatch):
    monkeypatch.setattr(methods, "predict", lambda _, found, **__: (found.truth, None, True))
    got = methods.measure(
        data="heavy-tailed", task="skewed", size=300, C=1.0, seed=0, method="logistic"
    )
    assert got["divergence"] == pytest.approx(0, abs=1e-12)
    assert got["square"] == got["calibration"] == 0


def test_a_wrong_certainty_is_counted_and_its_loss_is_finite(monkeypatch):
    monkeypatch.setattr(methods, "predict", lambda _, found, **__: (1 - found.truth, None, True))
    got = methods.measure(data="wine", task="second cultivar", size=0, C=1.0, seed=0, method="GP")
    assert got["wrong_and_sure"] == 1
    assert got["log_loss"] == pytest.approx(52 * np.log(2))  # the machine epsilon is 2^-52


def test_beta_calibration_is_fitted_to_scores_of_data_it_did_not_see(monkeypatch):
    """Labels of pure noise and many columns: in-sample scores would look perfect."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 200))
    y = rng.random(80) < 0.5
    noise = BinaryProblem(X, y, rng.normal(size=(500, 200)), np.zeros(500), None)
    spread = {m: np.std(methods.predict(m, noise)[0]) for m in ("logistic", "beta")}
    assert spread["beta"] < spread["logistic"] / 2


def test_a_learned_link_undoes_the_penalty():
    """Against scikit-learn's own losses; the slope by two points of the source."""
    found = problem("wine", "second cultivar", 0, 0)
    path = methods.penalty_path(found, [1.0, 0.01])
    model = LogisticRegression(C=0.01).fit(found.X, found.y)
    expected = log_loss(found.truth, model.predict_proba(found.X_test))
    assert path.loc[0.01, "logistic, test"] == pytest.approx(expected)
    assert path.loc[0.01, "ISGP, slope"] > 2 * path.loc[1.0, "ISGP, slope"]
    rise = path.loc[0.01] - path.loc[1.0]
    assert rise["ISGP, training"] < rise["logistic, training"] / 4
