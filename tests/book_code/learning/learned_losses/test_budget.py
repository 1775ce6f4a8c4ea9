"""The baseline's path is scikit-learn's."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from bayesloss_book.data.image_sets import inputs
from bayesloss_book.learning.learned_losses import budget
from bayesloss_book.learning.learned_losses.table_2 import problems


@pytest.fixture(scope="module")
def odd_digits():
    X, labels, X_test, test_labels = inputs("digits", 1_200, "pixels", 0)
    truth = problems("odd vs even", labels)[1]
    truth_test = problems("odd vs even", test_labels)[1]
    return X, truth[:, 0], X_test, truth_test[:, 0]


@pytest.mark.parametrize("penalty", [1.0, 0.0])
def test_iterates_are_scikit_learns(odd_digits, penalty):
    X, y, _, _ = odd_digits
    path = budget.logistic_path(X, y, penalty)
    assert tuple(path) == budget.ITERATIONS
    for k in (1, 2, 5, 10, 20):
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            model = LogisticRegression(C=1 / penalty if penalty else np.inf, max_iter=k)
            model.fit(X, y)
        theirs = np.append(model.coef_[0], model.intercept_)
        # The objective is the same up to a factor and rounding, which L-BFGS amplifies slowly.
        np.testing.assert_allclose(path[k], theirs, rtol=1e-3, atol=1e-4 * np.abs(theirs).max())


def test_measures(odd_digits):
    X, y, X_test, y_test = odd_digits
    found = budget.measure(data="digits", task="odd vs even", penalty=1.0, seed=0)
    weights = budget.logistic_path(X, y, 1.0)[10]
    odds = X_test @ weights[:-1] + weights[-1]
    assert found["auc_0010"] == pytest.approx(roc_auc_score(y_test, odds), abs=1e-9)
    assert found["log_loss_0010"] == pytest.approx(log_loss(y_test, 1 / (1 + np.exp(-odds))))
    model = LogisticRegression(tol=1e-8, max_iter=10_000).fit(X, y)
    end = roc_auc_score(y_test, model.decision_function(X_test))
    assert found["converged"] == 1
    assert found["auc_end"] == pytest.approx(end, abs=1e-4)
    assert found["auc_0200"] == pytest.approx(end, abs=1e-3)
