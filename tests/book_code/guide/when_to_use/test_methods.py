"""The comparison's measures, by scikit-learn's; the estimators have tests of their own."""

import math

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from sklearn.model_selection import train_test_split

from bayesloss_book.guide.when_to_use import methods, tables


def test_measures_of_a_classifier():
    X, y = load_iris(return_X_y=True)
    train, test, y_train, y_test = train_test_split(
        X, y, train_size=100, test_size=50, random_state=3, stratify=y
    )
    mean = train.mean(axis=0)
    scale = train.std(axis=0)
    model = LogisticRegression(max_iter=2_000).fit((train - mean) / scale, y_train)
    p = model.predict_proba((test - mean) / scale)
    found = methods.measure(task="classification", data="iris", method="logistic", seed=3)
    assert (found["rows"], found["columns"]) == (100, 4)
    assert found["log_loss"] == pytest.approx(log_loss(y_test, p), rel=1e-9)
    assert found["accuracy"] == pytest.approx(accuracy_score(y_test, p.argmax(axis=1)))
    assert found["brier"] == pytest.approx(brier_score_loss(y_test, p), rel=1e-9)
    assert found["entropy"] == 0 and math.isnan(found["rmse"])


def test_expected_loss_is_that_of_many_labels():
    """Labels drawn from the known probabilities: the mean loss is the expected one, to chance."""
    cell = {"data": "bent, normal, 300x3", "seed": 4}
    found = methods.measure(task="classification", method="logistic", **cell)
    problem = tables.labels(**cell)
    p = methods.classifier("logistic", 4).fit(problem.X, problem.y).predict_proba(problem.X_test)
    drawn = np.random.default_rng(0).random((200, len(p))) < problem.truth[:, 1]
    losses = -np.where(drawn, np.log(p[:, 1]), np.log(p[:, 0])).mean(axis=1)
    assert abs(losses.mean() - found["log_loss"]) < 4 * losses.std() / math.sqrt(200)
    assert found["entropy"] < found["log_loss"]


def test_measures_of_a_regressor():
    problem = tables.values("mammals", 1)
    mean = IsotonicRegression(out_of_bounds="clip").fit(problem.X, problem.y)
    error = mean.predict(problem.X_test) - problem.truth
    found = methods.measure(task="regression", data="mammals", method="isotonic", seed=1)
    assert found["rmse"] == pytest.approx(np.sqrt((error**2).mean()) / problem.truth.std())
    assert math.isnan(found["coverage"]) and math.isnan(found["log_loss"])


def test_bands_of_an_easy_curve():
    """About 95 %: binomial with 1,000 targets, and what a fit to 300 data may miss."""
    found = methods.measure(task="regression", data="sigmoid, 300", method="GP", seed=0)
    assert 0.92 < found["coverage"] < 0.98
    assert found["rmse"] < 0.15
