"""What all calibrators refuse, and which cases count for them."""

import numpy as np
import pytest

from bayesloss import CalibratedClassifier, LinkCalibrator, SoftmaxCalibrator

RNG = np.random.default_rng(0)
Y = np.arange(60) % 3
THREE = RNG.dirichlet([1.0] * 3, 60)
PROBLEMS = [
    (LinkCalibrator(), THREE[:, 0], Y == 0),
    (SoftmaxCalibrator(sources=False), THREE, Y),
    (CalibratedClassifier(cv=2), THREE, Y == 0),
]


@pytest.mark.parametrize(("model", "X", "y"), PROBLEMS)
@pytest.mark.parametrize(
    ("labels", "weight", "message"),
    [
        (slice(59), None, "inconsistent numbers of samples"),
        (slice(None), -np.ones(60), "[Nn]egative"),
        (slice(None), np.ones(59), "sample_weight"),
        (None, None, "Unknown label type: continuous"),
    ],
)
def test_labels_and_weights_that_do_not_fit_are_refused(model, X, y, labels, weight, message):
    y = RNG.normal(size=60) if labels is None else y[labels]
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, sample_weight=weight)


@pytest.mark.parametrize(("model", "X", "y"), PROBLEMS[:2])
def test_cases_of_weight_zero_are_left_out_with_their_groups(model, X, y):
    weight, groups = np.repeat([1.0, 0.0], [48, 12]), np.arange(60) // 4
    found = model.fit(X, y, weight, groups).predict_proba(X)
    only = model.fit(X[:48], y[:48], None, groups[:48])
    np.testing.assert_array_equal(found, only.predict_proba(X))


@pytest.mark.parametrize(("model", "X", "y"), PROBLEMS)
@pytest.mark.parametrize("level", [0, 1, 95])
@pytest.mark.filterwarnings("ignore:scores run the wrong way")
def test_levels_outside_zero_and_one_are_refused(model, X, y, level):
    with pytest.raises(ValueError, match=r"a level in \(0, 1\), got"):
        model.fit(X, y).predict_interval(X, level=level)
