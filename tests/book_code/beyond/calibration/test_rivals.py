"""Calibrators under one roof, against scikit-learn and formulas called by themselves."""

import builtins
import importlib.util

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from bayesloss_book.beyond.calibration import rivals

needs_extra = pytest.mark.skipif(
    importlib.util.find_spec("probmetrics") is None, reason="needs the extra calibrators"
)


@pytest.fixture(scope="module")
def cases():
    rng = np.random.default_rng(0)
    s = rng.normal(0, 2, 400)
    return s, (rng.random(400) < expit(0.5 * s + 0.3)).astype(float), np.linspace(-5, 5, 41)


@pytest.mark.parametrize("method", rivals.STANDARD)
def test_probabilities_and_their_log_odds_are_the_same_scores(cases, method):
    s, y, t = cases
    by_margin = rivals.fit(method, s, y, False)(t)
    by_probability = rivals.fit(method, expit(s), y, True)(expit(t))
    assert by_margin.shape == t.shape
    # Log odds of probabilities lose digits; scikit-learn works in float32 where it scales.
    np.testing.assert_allclose(by_probability, by_margin, atol=2e-5)


def test_isotonic_is_isotonic_regression(cases):
    s, y, t = cases
    expected = IsotonicRegression(out_of_bounds="clip").fit(s, y).predict(t)
    np.testing.assert_allclose(rivals.fit("isotonic", s, y, False)(t), expected)


def test_beta_is_logistic_regression_on_two_logarithms(cases):
    """Kull and others 2017, section 4.2; betacal's penalty is 1/C with C = 1e14."""
    s, y, t = cases

    def inputs(x):
        return np.stack([-np.logaddexp(0, -x), np.logaddexp(0, x)], axis=1)

    model = LogisticRegression(C=1e10, tol=1e-10, max_iter=10_000).fit(inputs(s), y)
    assert (model.coef_ > 0).all()  # or betacal would drop a term
    expected = model.predict_proba(inputs(t))[:, 1]
    # Two iterative fits, betacal's at scikit-learn's default tolerance.
    np.testing.assert_allclose(rivals.fit("beta", s, y, False)(t), expected, atol=2e-3)


@needs_extra
@pytest.mark.parametrize("method", rivals.EXTRA)
def test_every_calibrator_of_calarena_runs(cases, method):
    s, y, t = cases
    p = rivals.fit(method, s, y, False)(t)
    assert p.shape == t.shape
    assert ((p >= 0) & (p <= 1)).all()
    # The truth is within reach of all of them: at 400 cases a curve's error is about 0.05.
    assert np.abs(p - expit(0.5 * t + 0.3))[10:31].mean() < 0.15


@needs_extra
def test_affine_is_logistic_regression_on_log_odds(cases):
    s, y, t = cases
    model = LogisticRegression(C=np.inf, tol=1e-8).fit(s[:, None], y)
    expected = model.predict_proba(t[:, None])[:, 1]
    found = rivals.fit("affine", s, y, False)(t)
    np.testing.assert_allclose(logit(found), logit(expected), atol=0.02)  # its default tolerance


def test_a_missing_extra_is_named(cases, monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.startswith("probmetrics"):
            raise ModuleNotFoundError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"extra `calibrators`"):
        rivals.fit("quadratic", *cases[:2], False)
