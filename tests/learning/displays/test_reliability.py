"""Tests of reliability against truths that are known."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import xlogy

from bayesloss import reliability


def cases(n=3000, power=2.0, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return (rng.random(n) < p**power).astype(int), p


def test_functionals_are_near_the_truth_and_within_their_intervals():
    y, p = cases()
    r = p**2
    truth = {
        "calibration_error": np.sqrt(np.mean((r - p) ** 2)),
        "calibration_brier": np.mean((r - p) ** 2),
        "calibration_log_loss": np.mean(xlogy(r, r / p) + xlogy(1 - r, (1 - r) / (1 - p))),
        "refinement_brier": np.mean(r * (1 - r)),
        "refinement_log_loss": np.mean(-xlogy(r, r) - xlogy(1 - r, 1 - r)),
    }
    found = reliability(y, p, level=0.99)
    for name, value in truth.items():
        credible = getattr(found, name)
        assert credible.low < value < credible.high
        assert credible.low < credible.mean < credible.high


def test_intervals_leave_out_as_many_curves_as_their_level_says():
    y, p = cases()
    for level in (0.5, 0.9):
        found = reliability(y, p, level=level)
        brier = ((found.calibrator.sample_proba(p) - p) ** 2).mean(axis=1)
        ends = found.calibration_brier
        for share in (np.mean(brier < ends.low), np.mean(brier > ends.high)):
            assert share == pytest.approx((1 - level) / 2, abs=1.01 / len(brier))


@pytest.mark.parametrize("kind", ["log_loss", "brier"])
def test_the_two_parts_add_up_to_the_loss(kind):
    """Of 3,000 cases, up to the noise of the labels: a standard error of the mean loss."""
    y, p = cases(power=1.4)
    losses = (y - p) ** 2 if kind == "brier" else -xlogy(y, p) - xlogy(1 - y, 1 - p)
    found = reliability(y, p)
    parts = getattr(found, f"calibration_{kind}").mean + getattr(found, f"refinement_{kind}").mean
    assert abs(parts - losses.mean()) < 2 * losses.std() / np.sqrt(len(y))


def test_a_calibrated_classifier_has_an_error_near_zero():
    y, p = cases(power=1.0, n=5000)
    assert reliability(y, p).calibration_error.high < 0.04
    few = reliability(y[:100], p[:100]).calibration_error
    assert few.high > 0.06  # a hundred cases cannot tell


@pytest.mark.filterwarnings("error")
def test_a_probability_of_zero_costs_without_end():
    y, p = cases(n=300)
    found = reliability(y, np.where(p < 0.1, 0.0, p))
    lost = found.calibration_log_loss
    assert lost.mean == lost.low == lost.high == np.inf
    assert found.calibration_error.high < 1


@pytest.mark.parametrize("by_score", [False, True])
def test_many_cases_are_thinned_without_a_difference(by_score):
    """To 4,096, evenly in mass: where weights go with the predictions, too."""
    y, p = cases(n=20_000)
    p, y = (v[np.random.default_rng(1).permutation(20_000)] for v in (p, y))
    weight = 5 * p**3 if by_score else np.random.default_rng(0).integers(0, 3, 20_000)
    found = reliability(y, p, sample_weight=weight)
    r = found.calibrator.sample_proba(p)
    for name, values in {
        "calibration_brier": (r - p) ** 2,
        "refinement_brier": r * (1 - r),
    }.items():
        means = values @ weight / weight.sum()
        assert getattr(found, name).mean == pytest.approx(means.mean(), rel=2e-3)
    assert found.calibration_error.mean == pytest.approx(
        np.sqrt((r - p) ** 2 @ weight / weight.sum()).mean(), abs=1e-4
    )


def test_probabilities_in_the_place_of_labels_are_told():
    with pytest.raises(ValueError, match="labels of two kinds first, then .* got 300 kinds$"):
        reliability(np.linspace(0, 1, 300), np.arange(300) % 2)


def test_it_is_shown_in_one_line():
    y, p = cases(n=100)
    found = reliability(y, p)
    error = found.calibration_error
    shown = f"{error.mean:.4f} [{error.low:.4f}, {error.high:.4f}]"
    assert repr(found) == f"Reliability(calibration_error={shown}, level=0.95)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y, p: (pd.Series(y).astype("Int64").where(y == 1), p), "labels without missing"),
        (lambda y, p: (np.where(y == 1, 1.0, np.nan), p), "labels without missing values"),
        (lambda y, p: (y, np.stack([1 - p, p], axis=1)), "of two classes give the second column"),
        (lambda y, p: (y[1:], p), "inconsistent numbers of samples"),
        (lambda y, p: (y + 1, p), "expected pos_label among .1, 2., got 3"),
        (lambda y, p: (y, p + 0.5), r"probabilities in \[0, 1\], got 1"),
        (lambda y, p: (0 * y + 3, p), "cases of two classes, got only 1"),
    ],
)
def test_what_calibrators_refuse_is_refused(change, message):
    y, p = change(*cases(n=100))
    pos_label = 3 if np.max(y) >= 2 else 1
    with pytest.raises(ValueError, match=message):
        reliability(y, p, pos_label=pos_label)


def test_levels_are_in_the_unit_interval():
    for level in (0, 1, 95):
        with pytest.raises(ValueError, match=f"a level in .0, 1., got {level}"):
            reliability(*cases(n=100), level=level)


def test_a_column_of_probabilities_and_rounded_ones_are_probabilities():
    y, p = cases(n=300)
    expected = reliability(y, p).calibration_error
    assert reliability(y, p[:, None]).calibration_error == expected
    p[0] = 1.0
    off = np.where(p == 1.0, 1.001, p)
    assert reliability(y, off).calibration_error == reliability(y, p).calibration_error


def test_labels_are_counted_where_weights_are():
    y, p = cases(n=300)
    weight = np.ones(300)
    weight[:10] = 0
    marked = np.where(weight == 0, 7, y)
    found = reliability(marked, p, sample_weight=weight, pos_label=1)
    assert found.calibration_error == reliability(y, p, sample_weight=weight).calibration_error


# ------------------------------------------------------------------------------ many classes


def softmax_cases(n=600, seed=0):
    """Probabilities of three classes, overconfident, and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1.5, (n, 3))
    truth = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    k = (rng.random((n, 1)) > truth.cumsum(axis=1)).sum(axis=1)
    claimed = np.exp(2 * logits) / np.exp(2 * logits).sum(axis=1, keepdims=True)
    return np.array(["b", "c", "a"])[k], claimed, k


def test_the_top_label_is_whether_the_most_probable_class_is_right():
    y, p, k = softmax_cases()
    found = reliability(y, p, classes=["b", "c", "a"])
    by_hand = reliability(p.argmax(axis=1) == k, p.max(axis=1))
    assert str(found) == str(by_hand)
    assert found.calibration_error.low > 0.05  # overconfident


@pytest.mark.parametrize("name", ["b", "c", "a"])
def test_each_class_is_told_from_the_others(name):
    y, p, k = softmax_cases()
    weight = np.arange(600) % 3
    code = ["b", "c", "a"].index(name)
    found = reliability(y, p, classes=["b", "c", "a"], pos_label=name, sample_weight=weight)
    by_hand = reliability(k == code, p[:, code], sample_weight=weight)
    assert str(found) == str(by_hand)
    ordered = reliability(y, p[:, [2, 0, 1]], pos_label=name, sample_weight=weight)
    assert str(ordered) == str(by_hand)


def test_probabilities_and_truths_that_are_the_same_are_covered():
    """Drawn from the claimed probabilities, an error of zero: intervals come near it."""
    rng = np.random.default_rng(1)
    p = rng.dirichlet([1, 1, 1], 3000)
    k = (rng.random((3000, 1)) > p.cumsum(axis=1)).sum(axis=1)
    for label in (None, 0, 1, 2):
        assert reliability(k, p, pos_label=label).calibration_error.low < 0.02


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"classes": None, "y": slice(0, 5)},
            r"expected 3 classes, as many as columns.*by classes=",
        ),
        ({"classes": ["a", "b"]}, r"expected 3 classes, as many as columns, got shape \(2,\)"),
        ({"classes": ["a", "b", "b"]}, "3 different classes"),
        ({"classes": ["a", "b", "d"]}, r"labels among \['a', 'b', 'd'\], got 'c'"),
        ({"pos_label": "d"}, r"expected pos_label among \['b', 'c', 'a'\]"),
        ({"p": 2.0}, "expected probabilities"),
        ({"y": "missing"}, "without missing"),
        ({"y": "short"}, "inconsistent"),
    ],
)
def test_columns_that_do_not_fit_are_refused(change, said):
    y, p, _ = softmax_cases(60)
    options = {"classes": ["b", "c", "a"], "pos_label": None} | change
    p = p * options.pop("p", 1.0)
    kind = options.pop("y", None)
    if kind == "missing":
        y = np.where(y == "a", None, y)
    elif kind == "short":
        y = y[:-1]
    elif kind is not None:
        y = np.where(y == "a", "b", y)
    with pytest.raises(ValueError, match=said):
        reliability(y, p, **options)


def test_a_class_without_cases_says_so():
    y, p, _ = softmax_cases(60)
    with pytest.raises(ValueError, match="some cases of class a and some not, got 0 of"):
        reliability(y[y != "a"], p[y != "a"], classes=["b", "c", "a"], pos_label="a")
    with pytest.raises(ValueError, match="most probable class right and some not, got 60 of 60"):
        reliability(p.argmax(axis=1), p)


def test_of_two_columns_the_second_is_asked_for():
    with pytest.raises(ValueError, match="give the second column"):
        reliability([0, 1, 0, 1], np.full((4, 2), 0.5))


def test_the_divergence_from_a_tiny_probability_is_finite():
    """A ratio of probabilities would overflow."""
    rng = np.random.default_rng(0)
    p = rng.random(400)
    y = rng.random(400) < p
    p[:2] = 1e-320
    found = reliability(np.r_[y], p).calibration_log_loss
    assert 0 < found.mean < 10
