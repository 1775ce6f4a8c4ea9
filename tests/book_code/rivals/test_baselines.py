import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from bayesloss_book.data.image_sets import inputs, one_vs_rest
from bayesloss_book.rivals.baselines import calibration_error, fit_logistic


@pytest.mark.parametrize("C", [1.0, 0.01])
def test_the_baseline_is_logistic_regression(C):
    """Against scikit-learn, both at a tight tolerance: log odds agree to three digits."""
    X, y, X_test, _ = inputs("digits", 600, "pixels", 0)
    truth = one_vs_rest(y)
    train, test, rounds, converged, _ = fit_logistic(X, truth, X_test, C, 1e-8)
    assert converged and rounds > 0
    for k in (0, 8):
        reference = LogisticRegression(C=C, tol=1e-8, max_iter=10_000).fit(X, truth[:, k])
        # The error of weights is at most the slope left over the curvature, 1 / (C n) at least.
        np.testing.assert_allclose(
            test[:, k], reference.decision_function(X_test), rtol=1e-5, atol=2e-3
        )
        np.testing.assert_allclose(
            train[:, k], reference.decision_function(X), rtol=1e-5, atol=2e-3
        )


def test_calibration_error_by_hand():
    """Two bins: in one confidence 0.1 against a frequency of 0.2, in the other 0.9 against 0.75."""
    probability = np.array([0.1] * 5 + [0.9] * 4)
    truth = np.array([1, 0, 0, 0, 0, 1, 1, 1, 0], dtype=bool)
    assert calibration_error(probability, truth) == pytest.approx((5 * 0.1 + 4 * 0.15) / 9)
