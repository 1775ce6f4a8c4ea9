"""The penalties' comparison: by scikit-learn's scorer."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import issparse
from sklearn.model_selection import GridSearchCV

from bayesloss import LinkgisticClassifier
from bayesloss_book.guide.when_to_use import penalties


def test_a_cell_is_scikit_learns_search_and_the_classifiers_choice(monkeypatch):
    monkeypatch.setattr(penalties, "CS", (1e-3, 1.0, 1e3))
    data = "straight, normal, 60x3"
    found = penalties.measure(data=data)
    X, y = penalties._rows(data)
    # Ten folds of six rows each: the mean over folds is that over rows.
    search = GridSearchCV(
        LinkgisticClassifier(), {"C": penalties.CS}, cv=10, scoring="neg_log_loss", refit=False
    )
    with warnings.catch_warnings(action="ignore"):
        search.fit(X, y)
        chosen = LinkgisticClassifier(C=penalties.CS).fit(X, y).C_
    losses = dict(zip(penalties.CS, -search.cv_results_["mean_test_score"], strict=True))
    assert found["best"] == min(losses, key=losses.get)
    assert found["least"] == pytest.approx(losses[found["best"]], rel=1e-9)
    assert found["chosen"] == chosen
    behind = losses[chosen] - losses[found["best"]]
    assert found["regret"] == pytest.approx(behind, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("data", ["wide, 60x300", "sparse, 300x1000", "noise, 60x300"])
def test_rows_that_are_drawn(data):
    X, y = penalties._rows(data)
    assert f"{X.shape[0]}x{X.shape[1]}" in data and 0.3 < y.mean() < 0.7
    assert issparse(X) == data.startswith("sparse")


def test_a_table_by_hand():
    row = {"best": 1.0, "least": 0.4, "error": 0.05, "chosen": 10.0}
    stored = pd.DataFrame([{"data": "one", **row, "regret": 0.03, "regret_error": 0.01}])
    found = penalties.by_table(stored).loc["one"]
    expected = {"best": 1, "least": 400, "error": 50, "chosen": 10}
    assert found.to_dict() == pytest.approx(expected | {"regret": 30, "regret_error": 10})


def test_an_error_is_one_standard_error():
    values = np.array([0.0, 1.0, 2.0, 5.0])
    expected = np.sqrt(((values - 2) ** 2).sum() / 3 / 4)
    assert penalties._error(values) == pytest.approx(expected)
