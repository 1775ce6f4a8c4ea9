"""The classifier's features in pairs; how, says ``feature_pairs``."""

import numpy as np
import pytest
from feature_pairs import (
    Feature,
    Request,
    best_penalty_alone,
    both_on,
    class_weight_as_weights,
    class_weight_on,
    classes_renamed,
    copies_as_weights,
    copies_on,
    dask_as_array,
    dask_on,
    groups_on,
    groups_renamed,
    many_classes_on,
    near_copies,
    no_folds_on,
    pairs,
    penalties_on,
    sparse_as_dense,
    sparse_on,
    weighted_groups_on,
    weights_as_copies,
    weights_on,
)
from scipy.special import expit

from bayesloss import LinkgisticClassifier

pytestmark = pytest.mark.filterwarnings(
    "ignore:not converged", "ignore:the alternation", "ignore:.*rounds", "ignore:the best penalty"
)

N = 120


LINKGISTIC = {
    "copies": Feature(copies_on, copies_as_weights, place=2),
    "many classes": Feature(many_classes_on, classes_renamed, place=0),
    "sample_weight": Feature(weights_on, weights_as_copies),
    "class_weight": Feature(class_weight_on, class_weight_as_weights),
    "groups": Feature(groups_on, groups_renamed),
    "weighted groups": Feature(weighted_groups_on, near_copies),
    "several C": Feature(penalties_on, best_penalty_alone),
    "sparse": Feature(sparse_on, sparse_as_dense, place=3),
    "Dask": Feature(dask_on, dask_as_array, place=3),
    "many rows a column": Feature(no_folds_on),
}
# One form of X at a time; groups of Dask's rows are refused; and what weighted groups have already.
APART = {
    frozenset(pair)
    for pair in (
        ("sparse", "Dask"),
        ("groups", "Dask"),
        ("weighted groups", "Dask"),
        ("weighted groups", "groups"),
        ("weighted groups", "sample_weight"),
        ("weighted groups", "copies"),
    )
}


def asked():
    generator = np.random.default_rng(3)
    X = generator.normal(size=(N, 3)) + 2
    odds = np.where(X[:, 0] > 2, 2.5, 0.4) * (X[:, 0] - 2) + 0.6 * (X[:, 1] - 2)
    y = (generator.random(N) < expit(odds)).astype(int)
    return Request(
        X,
        y,
        generator.normal(size=(50, 3)) + 2,
        LinkgisticClassifier,
        {"C": 0.5, "max_iter": 1, "tol": 1e-6},
    )


@pytest.mark.parametrize(("said", "beside"), pairs(LINKGISTIC, APART))
def test_linkgistic(said, beside):
    request = both_on(LINKGISTIC, asked(), said, beside)
    otherwise = LINKGISTIC[said].otherwise(request)
    # Where searches for weights and for modes may end, with tol=1e-6.
    np.testing.assert_allclose(request.predicted(), otherwise.predicted(), rtol=0, atol=1e-4)
