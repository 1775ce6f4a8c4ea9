"""Tests of the calibrated classifier: scikit-learn's checks, and what is held out."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from bayesloss import CalibratedClassifier, LinkCalibrator, SoftmaxCalibrator

X, Y = make_classification(400, 6, n_informative=3, flip_y=0.2, random_state=0)


# As for scikit-learn's own: folds depend on the order of cases and on how many there are, so that a
# case of weight zero is not the same as none, and one of weight two not the same as two.
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "folds change with the number of cases",
    "check_sample_weight_equivalence_on_sparse_data": "folds change with the number of cases",
}


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks_pass():
    model = CalibratedClassifier(LogisticRegression(C=1), cv=2)
    results = check_estimator(model, expected_failed_checks=EXPECTED, on_fail=None)
    failed = [result for result in results if result["status"] == "failed"]
    assert not [r["check_name"] + ": " + str(r["exception"])[:300] for r in failed]


def by_hand(classifier, cv, y=Y, weight=None, groups=None):
    """The calibrator of the scores that scikit-learn's cross-validation holds out."""
    params = {} if weight is None else {"sample_weight": weight}
    held_out = cross_val_predict(
        classifier, X, y, cv=cv, groups=groups, method="decision_function", params=params
    )
    return LinkCalibrator(scale="real").fit(held_out, y, weight, groups)


def test_the_calibrator_sees_scores_of_cases_held_out():
    """By hand: scikit-learn's cross-validation, then the calibrator of one score or a mean."""
    svc = LinearSVC(random_state=0)
    cv = StratifiedKFold(5)
    expected = by_hand(svc, cv)
    of_folds = [clone(svc).fit(X[rows], Y[rows]).decision_function(X) for rows, _ in cv.split(X, Y)]
    for ensemble, n_models, score in (
        ("auto", 5, np.mean(of_folds, axis=0)),
        (True, 5, np.mean(of_folds, axis=0)),
        (False, 1, clone(svc).fit(X, Y).decision_function(X)),
    ):
        model = CalibratedClassifier(svc, ensemble=ensemble).fit(X, Y)
        assert len(model.calibrated_classifiers_) == n_models
        np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(score))
        np.testing.assert_array_equal(model.predict_interval(X), expected.predict_interval(score))
        np.testing.assert_array_equal(model.sample_proba(X), expected.sample_proba(score))
    np.testing.assert_array_equal(
        CalibratedClassifier(svc).fit(X, Y).calibrated_classifiers_[2].predict_proba(X),
        expected.predict_proba(of_folds[2]),
    )
    with pytest.raises(ValueError, match="'ensemble' parameter"):
        CalibratedClassifier(svc, ensemble="always").fit(X, Y)


def test_cases_held_out_thrice_count_once():
    model = LogisticRegression()
    folds = list(StratifiedKFold(5).split(X, Y))
    once, thrice = (CalibratedClassifier(model, cv=cv).fit(X, Y) for cv in (folds, folds * 3))
    assert len(thrice.calibrated_classifiers_) == 15
    for a, b in zip(once.predict_interval(X), thrice.predict_interval(X), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_cases_held_out_more_often_than_others_count_once():
    """A fold that comes twice has the same scores both times, so the calibrator is the same."""
    folds = list(StratifiedKFold(5).split(X, Y))
    once, oftener = (
        CalibratedClassifier(LogisticRegression(), cv=cv).fit(X, Y).calibrator_
        for cv in (folds, folds + folds[:1])
    )
    np.testing.assert_allclose(oftener.class_prior_, once.class_prior_, rtol=1e-12)
    at = np.linspace(-2, 2, 5)
    for a, b in zip(once.predict_interval(at), oftener.predict_interval(at), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)  # sums in another order, and a search


def test_an_ensemble_is_pickled_with_one_calibrator():
    """Five small classifiers, and the 50 kB of one calibrator."""
    model = CalibratedClassifier(LogisticRegression()).fit(X, Y)
    packed = pickle.dumps(model)
    assert len(packed) < len(pickle.dumps(model.calibrator_)) + 10_000
    again = pickle.loads(packed)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert all(each.calibrator is again.calibrator_ for each in again.calibrated_classifiers_)


def test_a_kernel_is_cut_to_rows_and_columns_of_a_fold():
    precomputed, linear = (
        CalibratedClassifier(SVC(kernel=kernel), ensemble=False)
        for kernel in ("precomputed", "linear")
    )
    found = precomputed.fit(X @ X.T, Y).predict_proba(X @ X.T)
    np.testing.assert_allclose(found, linear.fit(X, Y).predict_proba(X), atol=1e-3)


def test_a_frozen_classifier_is_not_fitted_again():
    fitted = GaussianNB().fit(X[:200], Y[:200])
    model = CalibratedClassifier(FrozenEstimator(fitted)).fit(X[200:], Y[200:])
    expected = LinkCalibrator().fit(fitted.predict_proba(X[200:])[:, 1], Y[200:])
    np.testing.assert_array_equal(
        model.predict_proba(X), expected.predict_proba(fitted.predict_proba(X)[:, 1])
    )


def test_many_classes_labels_of_text_and_pipelines():
    digits, number = load_digits(return_X_y=True)
    y = number.astype(str)
    forest = RandomForestClassifier(50, random_state=0)
    model = CalibratedClassifier(make_pipeline(StandardScaler(), forest), cv=3)
    p = model.fit(digits[:1000], y[:1000]).predict_proba(digits[1000:])
    assert isinstance(model.calibrator_, SoftmaxCalibrator)
    raw = forest.fit(digits[:1000], y[:1000]).predict_proba(digits[1000:])
    assert log_loss(y[1000:], p) < 0.8 * log_loss(y[1000:], raw)
    assert (model.predict(digits[1000:]) == y[1000:]).mean() > 0.9
    low, high = model.predict_interval(digits[1000:])
    assert low.shape == p.shape
    assert ((low <= p) & (p <= high)).all()
    assert model.sample_proba(digits[1000:1010]).shape == (256, 10, 10)


def test_groups_are_held_out_together_and_reach_the_calibrator():
    groups = np.arange(400) // 4
    model = CalibratedClassifier(LinearSVC(random_state=0), cv=GroupKFold(4))
    model.fit(X, Y, groups=groups)
    expected = by_hand(LinearSVC(random_state=0), GroupKFold(4), groups=groups)
    assert model.calibrator_.power_ == expected.power_
    at = np.linspace(-2, 2, 5)
    np.testing.assert_array_equal(model.calibrator_.predict_proba(at), expected.predict_proba(at))


def test_more_folds_than_cases_of_a_class():
    """Fifty patients and twenty positives: every classifier sees both classes all the same."""
    rare = (Y == 1) & (np.cumsum(Y) <= 20)
    folds = list(LeaveOneGroupOut().split(X, rare, np.arange(400) % 50))
    model = CalibratedClassifier(LogisticRegression(), cv=folds).fit(X, rare)
    expected = by_hand(LogisticRegression(), folds, rare)
    at = np.linspace(-2, 2, 5)
    np.testing.assert_array_equal(model.calibrator_.predict_proba(at), expected.predict_proba(at))
    few = np.r_[0:40, np.flatnonzero(rare)]
    model = CalibratedClassifier(LogisticRegression(), cv=LeaveOneOut()).fit(X[few], rare[few])
    assert ((model.predict_proba(X) > 0) & (model.predict_proba(X) < 1)).all()


def test_folds_that_leave_a_class_out_are_refused():
    once = np.arange(30) == 7
    message = "expected cases of every class to train on, got none of True without fold 8 of 30"
    for cv in (LeaveOneOut(), list(LeaveOneOut().split(X[:30]))):
        with pytest.raises(ValueError, match=message):
            CalibratedClassifier(LogisticRegression(), cv=cv).fit(X[:30], once)


def test_weights_reach_the_classifier_and_the_calibrator():
    weight = np.random.default_rng(0).integers(1, 4, 400).astype(float)
    cv = KFold(4)
    model = CalibratedClassifier(LogisticRegression(), cv=cv, ensemble=False)
    model.fit(X, Y, sample_weight=weight)
    expected = by_hand(LogisticRegression(), cv, weight=weight)
    final = LogisticRegression().fit(X, Y, weight).decision_function(X)
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(final))
    with pytest.warns(UserWarning, match=r"KNeighborsClassifier.fit takes no sample_weight"):
        CalibratedClassifier(KNeighborsClassifier()).fit(X, Y, sample_weight=weight)


class WithoutPredict(BaseEstimator):
    def fit(self, X, y):
        self.classes_, self.model_ = np.unique(y), GaussianNB().fit(X, y)
        return self

    def predict_proba(self, X):
        return self.model_.predict_proba(X)


def test_a_classifier_needs_no_predict():
    np.testing.assert_array_equal(
        CalibratedClassifier(WithoutPredict()).fit(X, Y).predict_proba(X),
        CalibratedClassifier(GaussianNB()).fit(X, Y).predict_proba(X),
    )
    frozen = FrozenEstimator(WithoutPredict().fit(X, Y))
    expected = LinkCalibrator().fit(frozen.predict_proba(X)[:, 1], Y)
    np.testing.assert_array_equal(
        CalibratedClassifier(frozen).fit(X, Y).predict_proba(X),
        expected.predict_proba(frozen.predict_proba(X)[:, 1]),
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_class_without_weight_is_refused(n_classes):
    y = np.arange(400) % n_classes
    model = CalibratedClassifier(LogisticRegression())
    with pytest.raises(ValueError, match=f"above zero of every class, got none of {y.max()}"):
        model.fit(X, y, sample_weight=y < n_classes - 1)


class Demanding(ClassifierMixin, BaseEstimator):
    """Records what it is given."""

    def fit(self, X, y, sample_weight=None, colour=None):
        self.classes_ = np.unique(y)
        self.colour_ = colour
        self.weighted_ = sample_weight is not None
        return self

    def decision_function(self, X):
        return X[:, 0]

    def predict(self, X):
        return self.classes_[(X[:, 0] > 0).astype(int)]


def test_metadata_is_routed_to_who_asked_for_it():
    with sklearn.config_context(enable_metadata_routing=True):
        inner = Demanding().set_fit_request(colour=True, sample_weight=False)
        model = CalibratedClassifier(inner, cv=GroupKFold(3))
        model.fit(X, Y, sample_weight=np.ones(400), groups=np.arange(400) // 2, colour="red")
        for each in model.calibrated_classifiers_:
            assert (each.estimator.colour_, each.estimator.weighted_) == ("red", False)


def test_parameters_of_fit_are_cut_to_the_rows_of_a_fold():
    model = CalibratedClassifier(Demanding()).fit(X, Y, colour=np.arange(400))
    for each, (rows, _) in zip(
        model.calibrated_classifiers_, StratifiedKFold(5).split(X, Y), strict=True
    ):
        np.testing.assert_array_equal(each.estimator.colour_, rows)


@pytest.mark.parametrize(
    ("y", "message"),
    [(np.zeros(400), "one class only"), (np.arange(400) < 3, "less than 5 examples")],
)
def test_too_few_classes_or_cases_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        CalibratedClassifier(LogisticRegression()).fit(X, y)


HALF = np.arange(len(Y)) < len(Y) // 2


@pytest.mark.parametrize(
    "cv",
    [
        [(HALF, ~HALF), (~HALF, HALF)],
        [
            (np.flatnonzero(HALF), np.flatnonzero(~HALF) - len(Y)),
            (np.flatnonzero(~HALF) - len(Y), np.flatnonzero(HALF)),
        ],
    ],
    ids=["masks", "from the end"],
)
def test_splits_may_be_masks_or_count_from_the_end(cv):
    plain = [(np.flatnonzero(HALF), np.flatnonzero(~HALF))]
    plain.append(plain[0][::-1])
    expected = CalibratedClassifier(GaussianNB(), cv=plain).fit(X, Y).predict_proba(X)
    found = CalibratedClassifier(GaussianNB(), cv=cv).fit(X, Y).predict_proba(X)
    np.testing.assert_array_equal(found, expected)


def test_a_generator_of_splits_that_is_used_up_is_told():
    splits = KFold(2, shuffle=True, random_state=0).split(X)
    list(splits)
    with pytest.raises(ValueError, match="cv to give a split at least, got none: a generator"):
        CalibratedClassifier(GaussianNB(), cv=splits).fit(X, Y)


def test_a_frozen_classifier_may_know_classes_that_cases_lack():
    X, y = load_digits(return_X_y=True)
    frozen = FrozenEstimator(GaussianNB().fit(X[:500], y[:500]))
    kept = np.flatnonzero(y[500:] != 4)[:300] + 500
    model = CalibratedClassifier(frozen).fit(X[kept], y[kept])
    np.testing.assert_array_equal(model.classes_, np.arange(10))
    assert model.predict_proba(X[:3]).shape == (3, 10)
