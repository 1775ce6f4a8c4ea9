"""The rounds that the page shows are the classifier's."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import xlogy
from sklearn.linear_model import LogisticRegression

from bayesloss import CalibratedClassifier, LinkgisticClassifier
from bayesloss_book.learning.linkgistic import alternation
from bayesloss_book.learning.linkgistic.rounds import kinked

SMALL = kinked(300, 0, n_test=500)
C = 0.1


@pytest.fixture(scope="module")
def watched():
    return alternation.rounds(SMALL, 3, C=C)


def test_last_round_is_the_classifiers(watched):
    model = LinkgisticClassifier(C=C).fit(SMALL.X, SMALL.y)
    evidence = model.history_["log_evidence"][:, 0]
    assert evidence == pytest.approx([found.log_evidence for found in watched[: len(evidence)]])
    last = watched[len(evidence) - 1]
    p = last.curve.predict_proba(last.test_scores)[:, 1]
    np.testing.assert_allclose(model.predict_proba(SMALL.X_test)[:, 1], p, atol=1e-6)


def test_round_0_is_a_calibrated_regression(watched):
    regression = LogisticRegression(C=C, tol=1e-8, max_iter=10_000)
    folds = alternation.folds(SMALL)
    model = CalibratedClassifier(regression, cv=folds, ensemble=False).fit(SMALL.X, SMALL.y)
    p = watched[0].curve.predict_proba(watched[0].test_scores)[:, 1]
    # Regressions end at tolerances of their own.
    np.testing.assert_allclose(model.predict_proba(SMALL.X_test)[:, 1], p, atol=1e-3)


def test_held_out_scores_are_those_of_refits(watched):
    """But for a constant, which is the intercept of all rows."""
    shifts = []
    for rest, fold in alternation.folds(SMALL):
        assert not set(rest) & set(fold)
        model = LogisticRegression(C=C, tol=1e-8, max_iter=10_000).fit(SMALL.X[rest], SMALL.y[rest])
        shifts.append(model.decision_function(SMALL.X[fold]) - watched[0].held_out[fold])
    shifts = np.concatenate(shifts)
    np.testing.assert_allclose(shifts, shifts[0], atol=1e-3)
    assert len(shifts) == len(SMALL.y)


def test_by_round(watched):
    table = alternation.by_round(SMALL, watched)
    p = watched[2].curve.predict_proba(watched[2].held_out)[:, 1]
    loss = -(xlogy(SMALL.y, p) + xlogy(1 - SMALL.y, 1 - p)).mean()
    assert table["held-out log loss"][2] == pytest.approx(loss)
    p = watched[2].curve.predict_proba(watched[2].test_scores)[:, 1]
    loss = -(xlogy(SMALL.y_test, p) + xlogy(1 - SMALL.y_test, 1 - p)).mean()
    assert table["test log loss"][2] == pytest.approx(loss)
    assert table["log evidence"].tolist() == [found.log_evidence for found in watched]


def test_copies_are_refused():
    copies = replace(SMALL, X=np.repeat(SMALL.X, 2, axis=0), y=np.repeat(SMALL.y, 2))
    with pytest.raises(ValueError, match="expected rows that are all different"):
        alternation.folds(copies)
