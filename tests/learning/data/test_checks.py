"""Weights and groups that no fit takes, and those that every fit takes alike."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import GaussianNB

from bayesloss import (
    CalibratedClassifier,
    GPClassifier,
    ISGPRegressor,
    LinkCalibrator,
    LinkgisticClassifier,
    PaperLink,
    ReliabilityDisplay,
    SoftmaxCalibrator,
    reliability,
)
from bayesloss.learning.data.checks import check_weights, group_numbers, times_class_weights

rng = np.random.default_rng(0)
N = 60
S = rng.normal(size=N)
X = S[:, None]
Y = (S + rng.logistic(size=N) > 0).astype(int)
P = 1 / (1 + np.exp(-S))
LOGITS = np.stack([0 * S, S, -S], axis=1)
KINDS = np.arange(N) % 3
FROZEN = FrozenEstimator(GaussianNB().fit(X, Y))

WITH_GROUPS = {
    "LinkCalibrator": lambda w, g=None: LinkCalibrator().fit(S, Y, w, g),
    "SoftmaxCalibrator": lambda w, g=None: SoftmaxCalibrator().fit(LOGITS, KINDS, w, g),
    "CalibratedClassifier": lambda w, g=None: CalibratedClassifier(FROZEN).fit(X, Y, w, g),
    "LinkgisticClassifier": lambda w, g=None: LinkgisticClassifier().fit(X, Y, w, g),
    "reliability": lambda w, g=None: reliability(Y, P, sample_weight=w, groups=g),
    "ReliabilityDisplay": lambda w, g=None: ReliabilityDisplay.from_predictions(
        Y, P, sample_weight=w, groups=g
    ),
}
WITH_WEIGHTS = {
    **WITH_GROUPS,
    "ISGPRegressor": lambda w: ISGPRegressor(n_basis=4).fit(S, S, w),
}
weighted = pytest.mark.parametrize("fit", WITH_WEIGHTS.values(), ids=WITH_WEIGHTS)
grouped = pytest.mark.parametrize("fit", WITH_GROUPS.values(), ids=WITH_GROUPS)


@pytest.mark.parametrize("size", [0.0, 1e-300, 1e15, 1e300])
@weighted
def test_weights_that_are_no_numbers_of_cases_are_refused(fit, size):
    said = "above zero, got none|at least one non-zero"  # the second is scikit-learn's own
    if size > 0:
        said = r"of a total between 1e-06 and 1e\+13, got .*: .* divide them by their mean"
    with pytest.raises(ValueError, match=said):
        fit(np.full(N, size))


WITH_LABELS = {
    "LinkCalibrator": lambda y: LinkCalibrator().fit(S, y),
    "SoftmaxCalibrator": lambda y: SoftmaxCalibrator().fit(LOGITS, y),
    "CalibratedClassifier": lambda y: CalibratedClassifier(FROZEN).fit(X, y),
    "LinkgisticClassifier": lambda y: LinkgisticClassifier().fit(X, y),
    "GPClassifier": lambda y: GPClassifier(length_scale=1.0, amplitude=1.0).fit(X, y),
    "reliability": lambda y: reliability(y, P, pos_label=1),
    "ReliabilityDisplay": lambda y: ReliabilityDisplay.from_predictions(y, P, pos_label=1),
}


@pytest.mark.parametrize("fit", WITH_LABELS.values(), ids=WITH_LABELS)
def test_labels_that_are_missing_are_refused(fit):
    missing = pd.Series(KINDS).astype("Int64").where(np.arange(N) > 4)
    for labels in (missing, missing.astype(float).to_numpy(dtype=float, na_value=np.nan)):
        with pytest.raises(ValueError, match="labels without missing values, got 5 of 60"):
            fit(labels)


@weighted
def test_weights_that_sum_to_one_are_told(fit):
    """As importance and survey weights may do: all would be left to the prior."""
    with pytest.warns(UserWarning, match="sample weights total 1, of 60 rows: .* by their mean"):
        fit(np.full(N, 1 / N))


def test_which_totals_are_in_doubt():
    """By the mean over the rows that have a weight, of which there may be few."""
    three = np.arange(N) < 3
    for few in (np.full(N, 0.05), np.full(N, 20.5), 20.5 * three):
        with pytest.warns(UserWarning, match="how many times a row counts"):
            check_weights(few, S)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for fine in (np.full(N, 1000), np.full(N, 0.5), rng.exponential(size=N), three):
            check_weights(fine, S)


def test_weights_that_cannot_be_written_are_copied():
    """As of memory maps: PyTorch would warn."""
    weight = rng.random(N)
    weight.flags.writeable = False
    found = check_weights(weight, S)
    assert found.flags.writeable
    np.testing.assert_array_equal(found, weight)
    given = torch.tensor(weight.copy(), requires_grad=True)
    np.testing.assert_array_equal(check_weights(given, S), weight)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_class_weight_is_above_zero(bad):
    with pytest.raises(ValueError, match=f"above zero and finite, got {bad} for class 0"):
        LinkgisticClassifier(class_weight={0: bad, 1: 1.0}).fit(X, Y)


def test_class_weights_are_weights():
    with pytest.raises(ValueError, match="of a total between"):
        times_class_weights(np.ones(N), {0: 1e-300, 1: 1e-300}, Y)
    found = times_class_weights(np.full(N, 2.0), {0: 0.5, 1: 3.0}, Y)
    np.testing.assert_array_equal(found, np.where(Y == 1, 6.0, 1.0))


NUMBERS = np.repeat(np.arange(20.0), 3)
MISSING = {
    "NaN": np.where(NUMBERS == 3, np.nan, NUMBERS),
    "NA": pd.Series(NUMBERS).astype("Int64").where(NUMBERS != 3),
    "None": np.where(NUMBERS == 3, None, NUMBERS.astype(str)),
}


@pytest.mark.parametrize("groups", MISSING.values(), ids=MISSING)
@grouped
def test_groups_that_are_missing_are_refused(fit, groups):
    with pytest.raises(ValueError, match="groups without missing values, got 3 of 60 .* row 9"):
        fit(None, groups)


@grouped
def test_one_group_says_nothing_and_rows_without_weight_have_none(fit):
    with pytest.raises(ValueError, match="at least two groups, got one, a"):
        fit(None, np.full(N, "a"))
    groups = np.where(np.arange(N) < 6, "b", "a")
    with pytest.raises(ValueError, match="at least two groups, got one, a"):
        fit((groups == "a").astype(float), groups)


@grouped
def test_groups_are_one_a_row(fit):
    for groups in (np.arange(N)[:, None], np.arange(N - 1)):
        with pytest.raises(ValueError, match=r"expected groups of shape \(60,\), got"):
            fit(None, groups)


def test_groups_are_numbered_among_the_rows_that_count():
    found = group_numbers(["c", "a", "b", "a"], np.array([True, True, False, True]))
    assert found.tolist() == [1, 0, 0]
    assert group_numbers(None, np.ones(3, dtype=bool)) is None


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_of_one_case_each_warn(n_classes):
    kinds = np.array(["a", "b", "c"])[:n_classes]
    fits = [
        lambda y: LinkgisticClassifier().fit(np.eye(n_classes), y),
        lambda y: LinkgisticClassifier(link=PaperLink(n_basis=4)).fit(np.eye(n_classes), y),
        lambda y: SoftmaxCalibrator(scale="real").fit(np.eye(n_classes), y),
    ]
    if n_classes == 2:
        fits.append(lambda y: LinkCalibrator().fit([0.0, 1.0], y))
    for fit in fits:
        with pytest.warns(UserWarning, match=f"each of {n_classes} classes has one case"):
            fit(kinds)


def test_a_second_case_of_one_class_silences_the_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        SoftmaxCalibrator(scale="real").fit(np.eye(4, 3), ["a", "b", "c", "a"])
