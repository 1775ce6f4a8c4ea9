"""The penalties' comparison: by scikit-learn's scorer, and a table of it by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import issparse
from sklearn.model_selection import cross_val_score

from bayesloss import LinkgisticClassifier
from bayesloss_book.guide.when_to_use import penalties


def test_a_cell_is_scikit_learns_cross_validation():
    X, y = penalties._rows("straight, normal, 60x3")
    found = penalties.measure(data="straight, normal, 60x3", C=1.0)
    each = cross_val_score(LinkgisticClassifier(C=1.0), X, y, cv=10, scoring="neg_log_loss")
    sizes = [len(fold) for fold in np.array_split(y, 10)]
    assert found["refits"] == pytest.approx(-np.average(each, weights=sizes), rel=1e-9)
    # Enough rows that a fold hardly moves the weights, and no link to learn.
    assert abs(found["path"] - found["refits"]) < found["error"]


@pytest.mark.parametrize("data", ["wide, 60x300", "sparse, 300x1000"])
def test_rows_that_are_drawn(data):
    X, y = penalties._rows(data)
    assert f"{X.shape[0]}x{X.shape[1]}" in data and 0.3 < y.mean() < 0.7
    assert issparse(X) == data.startswith("sparse")


def test_a_table_by_hand():
    rows = {"C": [0.1, 1.0, 10.0], "path": [0.9, 0.5, 0.49], "refits": [0.6, 0.4, 0.43]}
    stored = pd.DataFrame({"data": "one", **rows, "error": [0.1, 0.05, 0.04]})
    found = penalties.by_table(stored).loc["one"]
    # The path likes 10, where refits are 0.03 worse than at 1, where the path is two errors off.
    expected = {"least": 400, "error": 50, "regret": 30, "weak": 2, "strong": 3}
    assert found.to_dict() == pytest.approx(expected)
