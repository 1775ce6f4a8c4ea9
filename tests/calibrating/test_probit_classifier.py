import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from wavy_labels import toy

from bayesloss import CostMatrix, GPClassifier, LossEMClassifier
from bayesloss.calibrating import gp_classification


@pytest.mark.parametrize("more", [-1e-5, 1e-5])
def test_held_out_probabilities_are_averages_over_f(more):
    """LHG (25): Phi averaged over f ~ N(m, v), by quadrature, tells just too little, or enough."""
    v = 0.5
    likelier = math.log(0.5) + gp_classification._LEAST_GAIN + more

    def told(m):
        return math.log(quad(lambda f: ndtr(f) * norm.pdf(f, m, math.sqrt(v)), -8, 8)[0])

    m = brentq(lambda m: told(m) - likelier, 0, 1)
    signs = torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64)
    fit = SimpleNamespace(held_out=lambda features: (m * signs, torch.full_like(signs, v)))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        GPClassifier()._say_if_nothing_was_learned(fit, signs, signs)
    assert len(said) == (more < 0), "probit average with variance 1 + v"


@pytest.mark.parametrize("model", [GPClassifier(), GPClassifier("laplace"), LossEMClassifier()])
def test_given_length_scales_are_units(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2)) * [1.0, 1e3]
    y = X[:, 0] + X[:, 1] / 1e3 > rng.normal(size=30)
    scales = [0.7, 2e3]
    model.set_params(length_scale=scales, amplitude=2.0)
    ours = model.fit(X, y).predict_proba(X)
    assert (model.length_scale_ == scales).all() and model.amplitude_ == 2.0
    again = model.set_params(length_scale=1.0).fit(X / scales, y).predict_proba(X / scales)
    assert ours == pytest.approx(again, abs=1e-12)


@pytest.mark.parametrize("model", [GPClassifier(), LossEMClassifier(CostMatrix(1, 3))])
def test_units_at_the_ends_of_the_numbers(model):
    """The same probabilities as in plain units; subnormal numbers have three digits."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(20, 2)), 1)
    y = X[:, 0] > rng.normal(size=20)
    expected = model.fit(X, y).predict_proba(X)
    for unit, tolerance in ((1e200, 1e-4), (1e-320, 1e-2), (1e308 / 4, 1e-4)):
        found = model.fit(X * unit, y).predict_proba(X * unit)
        assert found == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("length_scale", [1e-160, 1e-300, 1e160])
@pytest.mark.filterwarnings("ignore:the fit tells nothing")
def test_length_scales_at_the_ends_of_the_numbers(length_scale):
    """Rows that have nothing to do with each other, or are all the same; in any case a number."""
    X, y = toy()
    model = GPClassifier(length_scale=length_scale, amplitude=1.0)
    if length_scale < 1:
        with pytest.warns(UserWarning, match="the fit tells nothing"):
            model.fit(X, y)
        # A row and its own label: f has variance 1 and correlation 1 with what is asked.
        slope = math.sqrt(2 / math.pi) / math.sqrt(2)
        expected = ndtr(slope / math.sqrt(2 - slope**2))
        assert np.abs(model.predict_proba(X) - 0.5) == pytest.approx(expected - 0.5, abs=1e-9)
        assert model.predict_proba(X + 0.001) == pytest.approx(0.5)
    else:
        assert np.ptp(model.fit(X, y).predict_proba(X)[:, 1]) < 1e-9


@pytest.mark.parametrize("model", [GPClassifier(), GPClassifier("laplace"), LossEMClassifier()])
def test_a_fit_that_tells_nothing_says_so(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    y = X[:, 0] > 0.5 * rng.normal(size=30)
    model.set_params(length_scale=1.0, amplitude=1.0)
    with pytest.warns(UserWarning, match="length scale too short") as said:
        model.fit(X * 1000, y)
    assert said[0].filename == __file__  # and not a line of the package
    model.set_params(length_scale="shared", amplitude=None)
    with pytest.warns(UserWarning, match="better than chance"):
        model.fit(X, np.arange(30) % 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y)


@pytest.mark.parametrize("model", [GPClassifier(), LossEMClassifier(CostMatrix(1, 19))])
def test_columns_of_any_unit(model):
    """Breast cancer with units from 1e-3 to 1e3: as good as standardised, where 0.5 was given."""
    X, y = load_breast_cancer(return_X_y=True)
    units = 10 ** np.random.default_rng(0).uniform(-3, 3, X.shape[1])
    train = np.arange(80)
    test = np.arange(80, 400)
    p = model.fit(X[train] * units, y[train]).predict_proba(X[test] * units)
    plain = ((X - X[train].mean(0)) / X[train].std(0))[train], y[train]
    again = model.fit(*plain).predict_proba((X[test] - X[train].mean(0)) / X[train].std(0))
    assert p == pytest.approx(again, abs=1e-3)
    if isinstance(model, GPClassifier):
        assert log_loss(y[test], p) < 0.2 < log_loss(y[test], np.full(len(test), y[train].mean()))


def test_far_away_the_prior_is_left():
    X, y = toy()
    far = [[1e6], [-1e6]]
    for model in (GPClassifier(), LossEMClassifier(CostMatrix(0.2, 1))):
        model.set_params(length_scale=0.3, amplitude=3.0).fit(X, y)
        assert model.predict_proba(far) == pytest.approx(0.5)
    assert (model.predict(far) == "b").all()


@pytest.mark.filterwarnings("ignore:the fit tells nothing")
def test_duplicate_inputs():
    """A singular kernel matrix: as two data at one place, which is what they are."""
    X = [[0.0], [0.0], [1.0], [1.0], [1.0]]
    y = [0, 0, 1, 1, 0]
    near = [[0.0], [1e-6], [1.0], [1.0 + 1e-6], [1.0 - 1e-6]]
    for model in (GPClassifier(), GPClassifier("laplace"), LossEMClassifier(CostMatrix(1, 2))):
        model.set_params(length_scale=1.0, amplitude=1.0)
        once = model.fit(X, y).predict_proba([[0.3], [1.0]])
        assert model.fit(near, y).predict_proba([[0.3], [1.0]]) == pytest.approx(once, abs=1e-4)


@pytest.mark.parametrize("model", [GPClassifier("laplace"), LossEMClassifier()])
def test_arrays_of_any_layout(model):
    X, y = toy()
    expected = model.fit(X[::-1].copy(), y[::-1].copy()).predict_proba(X)
    model.fit(X[::-1], y[::-1])
    assert model.predict_proba(X) == pytest.approx(expected)
    assert model.predict_proba(X[::-1])[::-1] == pytest.approx(expected)
