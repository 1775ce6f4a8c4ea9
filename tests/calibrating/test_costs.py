"""Costs of decisions: against enumeration in exact arithmetic, and scikit-learn's own tools."""

import math
import operator
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_validate,
)
from sklearn.naive_bayes import GaussianNB

from bayesloss import CostMatrix

TRIAGE = [[0, 19], [4, 1], [1, 2]]


def exact_problem(seed, n, n_decisions, n_classes, by_row=False):
    """Small whole costs and eighths of probability: sums without rounding, and many ties."""
    rng = np.random.default_rng(seed)
    shape = (n, n_decisions, n_classes) if by_row else (n_decisions, n_classes)
    costs = rng.integers(-2, 4, shape)
    return costs, rng.multinomial(8, np.full(n_classes, 1 / n_classes), n) / 8


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize(("n_decisions", "n_classes"), [(2, 2), (3, 3), (5, 3), (2, 4)])
def test_risks_and_decisions_by_enumeration(n_decisions, n_classes, by_row):
    n_ties = 0
    for seed in range(20):
        table, p = exact_problem(seed, 20, n_decisions, n_classes, by_row)
        costs = CostMatrix.from_array(table, decisions=np.arange(n_decisions))
        risk = costs.risk(p)
        decided = costs.decide(p)
        for i, row in enumerate(p.tolist()):
            own = (table[i] if by_row else table).tolist()
            expected = [sum(map(operator.mul, line, map(Fraction, row))) for line in own]
            assert risk[i].tolist() == [float(value) for value in expected]
            assert decided[i] == expected.index(min(expected))  # of several the first
            n_ties += expected.count(min(expected)) > 1
    assert n_ties > 0


def test_two_errors_are_a_matrix():
    two = CostMatrix(c_plus=3, c_minus=5)
    general = CostMatrix.from_array([[0, 5], [3, 0]], classes=[-1, 1])
    assert two.costs.tolist() == general.costs.tolist() == [[0, 5], [3, 0]]
    assert (general.c_plus, general.c_minus) == (two.c_plus, two.c_minus) == (3, 5)
    assert general.threshold == two.threshold == pytest.approx(3 / 8, rel=1e-15)
    p = np.arange(65) / 64  # 3/8 is among them, and a tie
    expected = np.where(p > 3 / 8, 1, -1)
    for costs in (two, general):
        assert (costs.decide(p) == expected).all()
        assert (costs.decide(np.stack([1 - p, p], axis=1)) == expected).all()
    assert two.decide(p).dtype == np.int64


@pytest.mark.parametrize(
    "table", [[[0, -1], [1, 0]], [[1, 2], [3, 0]], np.ones((2, 2, 2)), 1 - np.eye(3)]
)
def test_other_costs_have_no_two_errors(table):
    for name in ("c_plus", "c_minus", "threshold", "probit_threshold"):
        with pytest.raises(AttributeError, match="expected positive costs of two errors"):
            getattr(CostMatrix.from_array(table), name)


def test_decisions_in_the_users_own_words():
    sick = CostMatrix(c_plus=1, c_minus=19, classes=["healthy", "sick"])
    assert sick.decide([0.04, 0.06]).tolist() == ["healthy", "sick"]
    act = CostMatrix(c_plus=1, c_minus=19, decisions=["home", "ward"])
    assert act.decide([0.04, 0.06]).tolist() == ["home", "ward"]
    triage = CostMatrix.from_array(TRIAGE, decisions=["home", "treat", "test"])
    assert triage.decide([0.02, 0.1, 0.9]).tolist() == ["home", "test", "treat"]
    assert CostMatrix.from_array(TRIAGE).decide([0.02, 0.1, 0.9]).tolist() == [0, 2, 1]
    named = CostMatrix.from_array(1 - np.eye(3), classes=["b", "a", "c"])
    for p in (np.eye(3), pd.DataFrame(np.eye(3), columns=["b", "a", "c"])):
        with pytest.warns(
            UserWarning, match=r"are read as \['b', 'a', 'c'\]; .* \['a', 'b', 'c'\]"
        ):
            assert named.decide(p).tolist() == ["b", "a", "c"]


def test_a_scorer_sorts_columns_itself():
    X = np.arange(40.0)[:, None]
    y = np.repeat(["stays", "leaves"], 20)
    model = LogisticRegression().fit(X, y)
    table = [[0, 300], [20, 0]]
    turned = CostMatrix.from_array(table, classes=["stays", "leaves"]).scorer()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert turned(model, X, y) == CostMatrix(300, 20, classes=["leaves", "stays"]).scorer()(
            model, X, y
        )


@pytest.mark.parametrize("by_row", [False, True])
def test_cost_and_regret_of_each_row(by_row):
    table, _ = exact_problem(2, 50, 4, 3, by_row)
    costs = CostMatrix.from_array(table, classes=list("xyz"), decisions=list("abcd"))
    rng = np.random.default_rng(3)
    k = rng.integers(3, size=50)
    d = rng.integers(4, size=50)
    y = np.array(list("xyz"))[k]
    taken = np.array(list("abcd"))[d]
    for i in range(50):
        own = (table[i] if by_row else table).tolist()
        paid = own[d[i]][k[i]]
        assert costs.cost(y, taken)[i] == paid
        assert costs.regret(y, taken)[i] == paid - min(line[k[i]] for line in own)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([[0.5, 0.5, 0.0], [0.2, 0.3, 0.4]], r"sum to 1, got a sum of 0.9 in row 1"),
        ([[0.5, 0.5, 0.0], [0.2, 1.1, -0.3]], r"in \[0, 1\], got 1.1 in row 1"),
        ([[0.5, 0.5, np.nan]], r"in \[0, 1\], got nan in row 0"),
        ([[0.5, 0.5 + 0j, 0.0]], "real numbers, got complex128"),
        ([["0.5", "0.5", "0.0"]], "real numbers, got <U3"),
        ([[0.5, 0.5]], r"shape \(n, 3\), got \(1, 2\)"),
        ([0.5, 0.5, 0.0], r"shape \(n, 3\), got \(3,\)"),
        (0.5, r"shape \(n, 3\), got \(\)"),
    ],
)
def test_what_is_no_probability_is_refused(bad, said):
    costs = CostMatrix.from_array(1 - np.eye(3))
    for call in (costs.decide, costs.risk):
        with pytest.raises(ValueError, match=said):
            call(bad)


def test_two_classes_must_sum_to_one_too():
    with pytest.raises(ValueError, match="got a sum of 1.2 in row 0"):
        CostMatrix().decide([[0.6, 0.6]])
    with pytest.raises(ValueError, match="got complex128"):
        CostMatrix().decide([0.5j])


def test_single_precision_passes():
    scores = np.random.default_rng(5).normal(size=(500, 100)).astype(np.float32)
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert p.dtype == np.float32
    decided = CostMatrix.from_array(1 - np.eye(100)).decide(p)
    assert (decided == p.argmax(axis=1)).all()


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: CostMatrix.from_array([1.0, 2.0]), r"got \(2,\)"),
        (lambda: CostMatrix.from_array(np.ones((3, 1))), r"got \(3, 1\)"),
        (lambda: CostMatrix.from_array([[0, np.inf], [1, 0]]), "finite costs, got inf"),
        (lambda: CostMatrix.from_array([[0, 1j], [1, 0]]), "real numbers, got complex128"),
        (lambda: CostMatrix.from_array(TRIAGE, classes=["a"]), "expected 2 different classes"),
        (lambda: CostMatrix.from_array(TRIAGE, classes=["a", "a"]), "2 different classes"),
        (lambda: CostMatrix.from_array(TRIAGE, decisions=[0, 1]), "3 different decisions"),
        (lambda: CostMatrix(classes=["a", "b", "c"]), "expected 2 different classes"),
        (lambda: CostMatrix().cost([1, 0], [1, 1]), r"among \[-1, 1\], got .*0.* in row 1"),
        (lambda: CostMatrix().cost([1, 1], [1, 2]), r"decisions among .*2.* in row 1"),
        (lambda: CostMatrix().cost([1, 1], [1]), r"got \(2,\), \(1,\)"),
        (lambda: CostMatrix.from_array(np.ones((3, 2, 2))).decide([0.5]), "3 rows with costs"),
        (lambda: CostMatrix.from_array(np.ones((3, 2, 2))).cost([0], [0]), "3 rows with costs"),
        (lambda: CostMatrix().columns_of(["a", "b", "c"]), "expected 2 classes"),
        (lambda: CostMatrix(classes=["a", "b"]).columns_of(["a", "c"]), "classes among"),
    ],
)
def test_bad_costs_and_labels_are_refused(build, said):
    with pytest.raises(ValueError, match=said):
        build()


def test_a_value_that_stays_as_it_is():
    table = np.array(TRIAGE, dtype=float)
    costs = CostMatrix.from_array(table, classes=["a", "b"])
    table[0, 0] = 7.0
    assert costs.costs[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        costs.costs[0, 0] = 7.0
    with pytest.raises(AttributeError, match="cannot assign"):
        costs.costs = table
    again = pickle.loads(pickle.dumps(costs))
    assert again == costs and hash(again) == hash(costs)
    assert costs != CostMatrix.from_array(TRIAGE) != CostMatrix()
    assert CostMatrix(1, 2) == CostMatrix(1.0, 2.0) != CostMatrix(2, 1)
    assert CostMatrix(classes=["a", "b"]) != CostMatrix(classes=["b", "a"]) != CostMatrix()
    for one in (costs, CostMatrix(0.1), CostMatrix(classes=["a", "b"], decisions=[0, 1])):
        assert eval(repr(one)) == one


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_costs_that_make_no_sense(bad):
    with pytest.raises(ValueError, match="c_plus"):
        CostMatrix(bad, 1.0)
    with pytest.raises(ValueError, match="c_minus"):
        CostMatrix(1.0, bad)


def test_threshold_and_its_probit():
    assert CostMatrix(1, 1).probit_threshold == pytest.approx(0, abs=1e-15)
    assert CostMatrix(1, 19).threshold == pytest.approx(0.05)
    assert CostMatrix(1, 19).probit_threshold == pytest.approx(-1.6448536269514729)
    assert CostMatrix(1e200, 1e-100).probit_threshold == pytest.approx(
        -CostMatrix(1e-100, 1e200).probit_threshold
    )
    assert math.isfinite(CostMatrix(1e200, 1e-100).probit_threshold)


def three_classes(seed=6, n=240):
    rng = np.random.default_rng(seed)
    y = np.array(["a", "b", "c"])[rng.integers(3, size=n)]
    means = {"a": (0, 0), "b": (1.5, 0), "c": (0, 1.5)}
    return rng.normal([means[label] for label in y]), y


def test_scorer_in_cross_validation():
    X, y = three_classes()
    table = np.array([[0, 1, 5], [2, 0, 1], [1, 1, 0], [0.4, 0.4, 0.4]])
    costs = CostMatrix.from_array(table, classes=["a", "b", "c"], decisions=["a", "b", "c", "ask"])
    cv = KFold(4, shuffle=True, random_state=0)
    model = LogisticRegression()
    scores = cross_validate(model, X, y, cv=cv, scoring=costs.scorer())["test_score"]
    p = cross_val_predict(model, X, y, cv=cv, method="predict_proba")
    for score, (_, test) in zip(scores, cv.split(X), strict=True):
        paid = [table[(table @ p[i]).argmin(), "abc".index(y[i])] for i in test]
        assert score == pytest.approx(-np.mean(paid))
    # Columns are matched by label, not by place; without labels by place.
    turned = CostMatrix.from_array(table[:, [1, 2, 0]], classes=["b", "c", "a"])
    untold = CostMatrix.from_array(table)
    for other in (turned, untold):
        found = cross_validate(model, X, y, cv=cv, scoring=other.scorer())["test_score"]
        assert found.tolist() == scores.tolist()


def test_scorer_chooses_by_cost():
    X, y = three_classes()
    costs = CostMatrix.from_array(1 - np.eye(3))
    search = GridSearchCV(LogisticRegression(), {"C": [1e-6, 1.0]}, scoring=costs.scorer())
    assert clone(search).fit(X, y).best_params_ == {"C": 1.0}
    scorer = pickle.loads(pickle.dumps(costs.scorer()))
    assert scorer(search.fit(X, y), X, y) == pytest.approx(-np.mean(search.predict(X) != y))


def test_scorer_where_a_fold_lacks_a_class():
    X, y = three_classes()
    model = LogisticRegression().fit(X[y != "c"], y[y != "c"])
    table = 1 - np.eye(3)
    scorer = CostMatrix.from_array(table, classes=["a", "b", "c"]).scorer()
    assert scorer(model, X, y) == pytest.approx(-np.mean(model.predict(X) != y))
    with pytest.raises(ValueError, match="expected 3 classes, as many as have costs, got 2: tell"):
        CostMatrix.from_array(table).scorer()(model, X, y)


def test_scorer_with_weights_and_costs_by_row():
    """What scikit-learn's routing splits with the rows, against the folds by hand."""
    X, y = three_classes()
    rng = np.random.default_rng(7)
    weights = rng.uniform(size=len(y))
    table = rng.uniform(size=(len(y), 2, 3))
    cv = KFold(3)
    costs = CostMatrix.from_array(table[0], classes=["a", "b", "c"])
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = costs.scorer().set_score_request(sample_weight=True)
        scorer.set_score_request(costs=True)
        model = LogisticRegression().set_fit_request(sample_weight=False)
        params = {"sample_weight": weights, "costs": table}
        found = cross_validate(model, X, y, cv=cv, scoring=scorer, params=params)["test_score"]
    p = cross_val_predict(model, X, y, cv=cv, method="predict_proba")
    for score, (_, test) in zip(found, cv.split(X), strict=True):
        paid = [table[i][(table[i] @ p[i]).argmin(), "abc".index(y[i])] for i in test]
        assert score == pytest.approx(-(weights[test] @ paid) / weights[test].sum())
    # Costs of all rows serve where all rows are scored, and say so where they are not.
    whole = CostMatrix.from_array(table).scorer()
    model = model.fit(X, y)
    assert whole(model, X, y) == costs.scorer()(model, X, y, costs=table)
    with pytest.raises(ValueError, match="of the 240 rows with costs, got 80"):
        cross_validate(model, X, y, cv=cv, scoring=whole, error_score="raise")


def test_probabilities_as_rounding_leaves_them():
    """Scaled, so that risks are those of probabilities; what is in doubt is told."""
    p = np.random.default_rng(0).dirichlet([1, 1, 1], 50)
    costs = CostMatrix.from_array([[0, 19, 1], [4, 1, 0]])
    for rounded in (p.round(3), p.astype(np.float16)):
        exact = rounded / rounded.sum(axis=1, keepdims=True, dtype=float)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # Single and half precision have so many digits.
            np.testing.assert_allclose(costs.risk(rounded), costs.risk(exact), rtol=2e-3)
    with pytest.warns(UserWarning, match="1 of 1 rows .* 0.99 in row 0: they are scaled to 1"):
        risk = costs.risk([[0.33, 0.33, 0.33]])
    np.testing.assert_allclose(risk, [[20 / 3, 5 / 3]], rtol=1e-14)
    np.testing.assert_array_equal(CostMatrix().risk([1.0000001]), CostMatrix().risk([1.0]))


def test_columns_of_an_estimator_are_matched_by_its_classes():
    costs = CostMatrix(19, 1, classes=["sick", "healthy"])
    p = np.array([[0.9, 0.1], [0.02, 0.98]])
    np.testing.assert_array_equal(
        costs.decide(p[:, ::-1], classes=["healthy", "sick"]), ["sick", "healthy"]
    )
    with pytest.warns(UserWarning, match="columns of probabilities are read as"):
        np.testing.assert_array_equal(costs.decide(p), ["sick", "healthy"])
    three = CostMatrix.from_array(TRIAGE_3, classes=["a", "b", "c"])
    np.testing.assert_array_equal(
        three.decide(p, classes=["c", "a"]), three.decide(np.c_[p[:, 1], [0, 0], p[:, 0]])
    )
    with pytest.raises(ValueError, match=r"2 columns, got shape \(2, 3\)"):
        three.decide(np.ones((2, 3)) / 3, classes=["c", "a"])


TRIAGE_3 = [[0, 5, 5], [9, 0, 5], [9, 5, 0], [1, 1, 1]]


@pytest.mark.parametrize("named", [{}, {"classes": [0, 1]}, {"decisions": ["leave", "treat"]}])
def test_a_tuned_threshold_takes_the_scorer(named):
    """The tuned threshold is the one that is cheapest on held-out probabilities."""
    X, y = make_classification(300, random_state=0, flip_y=0.3)
    costs = CostMatrix(c_plus=1, c_minus=5, **named)
    tuned = TunedThresholdClassifierCV(
        GaussianNB(), scoring=costs.scorer(), cv=3, store_cv_results=True
    ).fit(X, y)
    by_hand = TunedThresholdClassifierCV(
        GaussianNB(), cv=3, scoring=make_scorer(lambda y, d: -np.mean(np.where(y, 5 * (d == 0), d)))
    ).fit(X, y)
    assert tuned.best_threshold_ == by_hand.best_threshold_ < 0.5
    assert tuned.best_score_ == pytest.approx(by_hand.best_score_)


def test_a_tuned_threshold_is_weighted():
    """Where a case of the first kind counts nine times, fewer of these are decided wrongly."""
    X, y = make_classification(300, random_state=0, flip_y=0.3)
    weight = np.where(y, 1.0, 9.0)

    def by_hand(y, decided, sample_weight=None):
        return -np.average(np.where(y, 5 * (decided == 0), decided), weights=sample_weight)

    tuned = []
    with sklearn.config_context(enable_metadata_routing=True):
        model = GaussianNB().set_fit_request(sample_weight=False)
        for scorer in (CostMatrix(c_plus=1, c_minus=5).scorer(), make_scorer(by_hand)):
            scorer.set_score_request(sample_weight=True)
            search = TunedThresholdClassifierCV(model, scoring=scorer, cv=3)
            tuned.append(search.fit(X, y, sample_weight=weight))
            plain = clone(search).fit(X, y)
    assert tuned[0].best_threshold_ == tuned[1].best_threshold_ > plain.best_threshold_
    assert tuned[0].best_score_ == pytest.approx(tuned[1].best_score_)


def test_more_decisions_than_a_threshold_tells_apart_are_refused():
    X, y = make_classification(300, random_state=0)
    tuned = TunedThresholdClassifierCV(
        GaussianNB(), scoring=CostMatrix.from_array(TRIAGE, classes=[0, 1]).scorer()
    )
    with pytest.raises(ValueError, match=r"shape \(3, 2\): a CostClassifier decides without"):
        tuned.fit(X, y)
