"""The estimator against what its parts decide by hand, and scikit-learn's own checks."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_validate,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from bayesloss import CalibratedClassifier, CostClassifier, CostMatrix

X, Y = make_classification(400, 6, n_informative=3, flip_y=0.2, random_state=0)
X3, Y3 = make_classification(450, 6, n_informative=4, n_classes=3, random_state=0)
NAMES = np.array(["c", "a", "b"])[Y3]
REJECT = [[0, 5, 5], [9, 0, 5], [9, 5, 0], [1, 1, 1]]  # the last says nothing, for 1


def two():
    return CostMatrix(c_plus=1, c_minus=5)


def rejecting(**options):
    return CostMatrix.from_array(REJECT, **options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "model",
    [
        CostClassifier(LogisticRegression(), CostMatrix(), calibrated=True),
        CostClassifier(
            CalibratedClassifier(LogisticRegression(), cv=2), CostMatrix(), calibrated=True
        ),
    ],
    ids=["calibrated", "to be calibrated"],
)
def test_scikit_learns_checks_pass(model):
    """With equal costs, since one of the checks wants the most probable class."""
    why = "folds change with the number of cases"
    expected = {}
    if isinstance(model.estimator, CalibratedClassifier):
        expected["check_sample_weight_equivalence_on_dense_data"] = why
        expected["check_sample_weight_equivalence_on_sparse_data"] = why
    results = check_estimator(model, expected_failed_checks=expected, on_fail=None)
    failed = [result for result in results if result["status"] == "failed"]
    assert not [r["check_name"] + ": " + str(r["exception"])[:300] for r in failed]


def test_decisions_are_those_of_the_costs_under_calibrated_probabilities():
    model = CostClassifier(GaussianNB(), rejecting()).fit(X3, NAMES)
    calibrated = CalibratedClassifier(GaussianNB()).fit(X3, NAMES)
    p = calibrated.predict_proba(X3)
    np.testing.assert_array_equal(model.predict_proba(X3), p)
    by_hand = (p @ np.array(REJECT).T).argmin(axis=1)
    np.testing.assert_array_equal(model.predict(X3), by_hand)
    assert set(by_hand) == {0, 1, 2, 3}
    names = {"a": 0, "b": 1, "c": 2}
    paid = np.array(REJECT)[by_hand, [names[label] for label in NAMES]]
    assert model.score(X3, NAMES) == pytest.approx(-paid.mean())


def test_columns_are_matched_by_the_names_of_classes_without_a_warning():
    """The costs' classes in another order than scikit-learn's, and one that y lacks."""
    costs = CostMatrix.from_array(
        [[0, 9, 1, 7], [3, 0, 2, 7], [5, 5, 0, 7]], classes=["c", "a", "b", "d"]
    )
    model = CostClassifier(GaussianNB(), costs).fit(X3, NAMES)
    p = model.predict_proba(X3)[:, [2, 0, 1]]
    by_hand = (p @ costs.costs[:, :3].T).argmin(axis=1)
    np.testing.assert_array_equal(model.predict(X3), by_hand)


def test_costs_without_classes_take_those_of_y_and_keep_their_own_decisions():
    y = np.array(["no", "yes"])[Y]
    assert set(CostClassifier(GaussianNB(), two()).fit(X, y).predict(X)) == {"no", "yes"}
    named = CostMatrix(c_plus=1, c_minus=5, decisions=["leave", "treat"])
    assert set(CostClassifier(GaussianNB(), named).fit(X, y).predict(X)) == {"leave", "treat"}


def test_a_calibrated_estimator_is_asked_as_it_is():
    model = CostClassifier(GaussianNB(), two(), calibrated=True).fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(X), GaussianNB().fit(X, Y).predict_proba(X))
    fitted = CalibratedClassifier(LinearSVC()).fit(X[:200], Y[:200])
    frozen = CostClassifier(FrozenEstimator(fitted), two(), calibrated=True).fit(X[200:], Y[200:])
    np.testing.assert_array_equal(frozen.predict_proba(X), fitted.predict_proba(X))


def test_names_of_columns_are_those_of_the_last_fit():
    columns = [f"column {i}" for i in range(6)]
    model = CostClassifier(GaussianNB(), two(), calibrated=True)
    assert model.fit(pd.DataFrame(X, columns=columns), Y).feature_names_in_.tolist() == columns
    assert not hasattr(model.fit(X, Y), "feature_names_in_")


def test_weights_and_groups_reach_the_calibrated_classifier():
    weight = np.arange(400) % 3 + 0.5
    groups = np.arange(400) // 4
    model = CostClassifier(GaussianNB(), two()).fit(X, Y, weight, groups)
    by_hand = CalibratedClassifier(GaussianNB()).fit(X, Y, weight, groups)
    np.testing.assert_array_equal(model.predict_proba(X), by_hand.predict_proba(X))
    assert by_hand.calibrator_.power_ < 1
    folds = CalibratedClassifier(GaussianNB(), cv=GroupKFold(4))
    model = CostClassifier(folds, two(), calibrated=True).fit(X, Y, weight, groups)
    by_hand = clone(folds).fit(X, Y, weight, groups)
    np.testing.assert_array_equal(model.predict_proba(X), by_hand.predict_proba(X))
    given = model.score(X, Y, weight)
    assert given == pytest.approx(
        -np.average(two().of_classes([0, 1]).cost(Y, model.predict(X)), weights=weight)
    )


def test_metadata_is_routed_to_whoever_asks():
    weight = np.arange(400) % 3 + 0.5
    with sklearn.config_context(enable_metadata_routing=True):
        nb = GaussianNB().set_fit_request(sample_weight=True)
        for model in (
            CostClassifier(nb, two()),
            CostClassifier(nb, two(), calibrated=True),
        ):
            found = cross_validate(
                model, X, Y, params={"sample_weight": weight}, return_estimator=True, cv=2
            )
            train, _ = next(iter(StratifiedKFold(2).split(X, Y)))
            by_hand = clone(model).fit(X[train], Y[train], sample_weight=weight[train])
            p = found["estimator"][0].predict_proba(X)
            np.testing.assert_array_equal(p, by_hand.predict_proba(X))
            plain = clone(model).fit(X[train], Y[train]).predict_proba(X)
            assert np.abs(p - plain).max() > 1e-4


def test_groups_are_routed_to_the_calibrator():
    groups = np.arange(400) // 4
    by_hand = CalibratedClassifier(GaussianNB()).fit(X, Y, groups=groups)
    with sklearn.config_context(enable_metadata_routing=True):
        model = CostClassifier(GaussianNB(), two()).fit(X, Y, groups=groups)
    assert model.estimator_.calibrator_.power_ == by_hand.calibrator_.power_ < 1


@pytest.mark.filterwarnings("ignore:all scores are equal")
def test_it_is_searched_by_cost():
    X, y = make_classification(300, class_sep=2.0, random_state=0)
    model = CostClassifier(GaussianNB(), two())
    candidates = {"estimator": [DummyClassifier(), GaussianNB()]}
    search = GridSearchCV(model, candidates, cv=3).fit(X, y)
    assert isinstance(search.best_params_["estimator"], GaussianNB)
    train, test = next(iter(StratifiedKFold(3).split(X, y)))
    decided = model.fit(X[train], y[train]).predict(X[test])
    paid = np.where(y[test] == 1, 5 * (decided == 0), decided)
    assert search.cv_results_["split0_test_score"][1] == pytest.approx(-paid.mean())


def test_nothing_is_gained_by_tuning_the_threshold():
    """On cases that neither has seen, over 20 sets: tuned by costs, against the costs' own."""
    gained = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        y = rng.random(3300) < 0.3
        x = rng.normal(y[:, None] * [1.0, 0.5], 1)
        tuned = TunedThresholdClassifierCV(GaussianNB(), scoring=two().scorer(), cv=5)
        decided = CostClassifier(GaussianNB(), two(), calibrated=True)
        paid = [
            two().of_classes([False, True]).cost(y[300:], m.fit(x[:300], y[:300]).predict(x[300:]))
            for m in (tuned, decided)
        ]
        gained.append(np.mean(paid[0]) - np.mean(paid[1]))
    mean = np.mean(gained)
    assert mean > -2 * np.std(gained, ddof=1) / np.sqrt(20)


@pytest.mark.parametrize(
    ("model", "y", "said"),
    [
        (CostClassifier(GaussianNB(), CostMatrix.from_array(np.ones((400, 2, 2)))), Y, "all rows"),
        (CostClassifier(LinearSVC(), two(), calibrated=True), Y, "predict_proba where calibrated"),
        (
            CostClassifier(GaussianNB(), two()),
            np.arange(400) % 3,
            "the 2 classes of the costs, got 3",
        ),
        (CostClassifier(GaussianNB(), rejecting()), Y, "tell the costs their classes"),
        (CostClassifier(GaussianNB(), CostMatrix(classes=["a", "b"])), Y, "got 0 in row 0"),
        (CostClassifier(GaussianNB(), [[0, 1], [1, 0]]), Y, "costs"),
    ],
)
def test_what_does_not_fit_is_refused(model, y, said):
    with pytest.raises(ValueError, match=said):
        model.fit(X, y)
