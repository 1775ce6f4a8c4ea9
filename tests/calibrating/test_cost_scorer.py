"""The mean cost as a scorer, against the folds by hand."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_validate

from bayesloss import CostMatrix


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
    turned = CostMatrix.from_array(table[:, ::-1], classes=["c", "b", "a"])
    untold = CostMatrix.from_array(table)
    for other in (turned, untold):
        found = cross_validate(model, X, y, cv=cv, scoring=other.scorer())["test_score"]
        assert found.tolist() == scores.tolist()


def test_scorer_chooses_by_cost():
    """Between a classifier that sees and one that does not, and it can be cloned and sent away."""
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
    whole, model = CostMatrix.from_array(table).scorer(), model.fit(X, y)
    assert whole(model, X, y) == costs.scorer()(model, X, y, costs=table)
    with pytest.raises(ValueError, match="of the 240 rows with costs, got 80"):
        cross_validate(model, X, y, cv=cv, scoring=whole, error_score="raise")
