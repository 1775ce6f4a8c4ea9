import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import PredefinedSplit, cross_val_predict

from bayesloss import LinkgisticClassifier
from bayesloss_book.beyond.multiclass import benchmark


@pytest.fixture(scope="module")
def iris():
    X, y, X_test, y_test = benchmark.problem("iris", 0, 3)
    return X, y, X_test, y_test, benchmark.Cases.of(X, y, 1.0)


def test_problems():
    X, y, X_test, y_test = benchmark.problem("wine", 0, 1)
    np.testing.assert_allclose(X.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(X.std(0), 1)
    assert len(X) == len(y) == 118 and len(X_test) == len(y_test) == 60
    assert benchmark.problem("digits", 0, 1)[0].max() == 1


def test_temperature_is_scikit_learns(iris, monkeypatch):
    X, y, X_test, _, _ = iris
    monkeypatch.setattr(benchmark, "_TOL", 1e-7)
    cases = benchmark.Cases.of(X, y, 1.0)
    plain, scaled, factor = benchmark.tempered(cases, X_test)
    model = LogisticRegression(C=1.0, tol=1e-8, max_iter=10_000)
    split = PredefinedSplit(cases.folds.fold)  # each case by itself
    held_out = cross_val_predict(model, X, y, cv=split, method="decision_function")
    best = minimize_scalar(
        lambda t: log_loss(y, np.exp(log_softmax(t * held_out, axis=1))), bounds=(0.1, 20)
    ).x
    odds = model.fit(X, y).decision_function(X_test)
    assert factor == pytest.approx(best, rel=1e-3)
    np.testing.assert_allclose(np.exp(plain), np.exp(log_softmax(odds, axis=1)), atol=1e-4)
    np.testing.assert_allclose(np.exp(scaled), np.exp(log_softmax(best * odds, axis=1)), atol=1e-3)


def test_joint_model_is_the_classifiers(iris):
    X, y, X_test, _, cases = iris
    fit = benchmark.joint_fit(cases)
    model = LinkgisticClassifier(C=1.0, tol=1e-4, multi_class="joint").fit(X, y)
    np.testing.assert_allclose(
        benchmark.log_probabilities(fit, cases, X_test), model.predict_log_proba(X_test), atol=1e-9
    )


def test_the_joint_model_is_chosen_where_it_is_better(iris):
    X, y, X_test, y_test, _ = iris
    losses = benchmark.choices(data="iris", seed=3)
    assert losses["auto"] == losses["joint"] < losses["ovr"]
    for way, loss in losses.items():
        p = LinkgisticClassifier(multi_class=way).fit(X, y).predict_proba(X_test)
        assert loss == pytest.approx(log_loss(y_test, p), rel=1e-9)


def test_straight_lines_are_straight(iris):
    *_, cases = iris
    fit = benchmark.joint_fit(cases, lines=True)
    x = torch.linspace(-5, 5, 11, dtype=torch.float64)
    sources = fit.best.fit.model
    for mode in sources.mode:
        np.testing.assert_allclose(sources.prior.derivative(x, mode), 1, atol=5e-3)
