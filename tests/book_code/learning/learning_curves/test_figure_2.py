"""Figure 2's experiment: a baseline that is scikit-learn's, nested subsets, honest measures."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import accuracy_score, log_loss

from bayesloss_book.learning.learning_curves import figure_2 as learning_curves
from bayesloss_book.learning.learning_curves.figure_2 import SETTING


def test_scikit_learns_cell_agrees_with_ours():
    cell = {"data": "digits", "size": 600, **SETTING, "seed": 1}
    ours = learning_curves.measure(method="logistic", **cell)
    theirs = learning_curves.measure(method="scikit-learn", **cell)
    # Both stop at a slope of 1e-4.
    assert ours["log_loss"] == pytest.approx(theirs["log_loss"], abs=1e-3)
    assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=0.005)
    assert ours["converged"] == theirs["converged"] == 1


def test_measures_by_other_routes():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 400)
    odds = 2 * rng.normal(size=(400, 10)) + 3 * (labels[:, None] == np.arange(10)) - 2
    found = learning_curves.measures_of(odds, labels)
    assert found["accuracy"] == pytest.approx(accuracy_score(labels, odds.argmax(1)))
    each = [accuracy_score(labels == k, odds[:, k] > 0) for k in range(10)]
    assert [found[f"class_{k}"] for k in range(10)] == pytest.approx(each)
    assert found["ovr_accuracy"] == pytest.approx(np.mean(each))
    losses = [log_loss(labels == k, expit(odds[:, k])) for k in range(10)]
    assert found["log_loss"] == pytest.approx(np.mean(losses))
    # The parts have equal sizes, so that their means are the whole.
    for whole, part in (("ovr_accuracy", "ovr_part"), ("accuracy", "part")):
        parts = [found[f"{part}_{b}"] for b in range(learning_curves.BLOCKS)]
        assert np.mean(parts) == pytest.approx(found[whole])
    assert found["part_3"] == pytest.approx((odds.argmax(1) == labels)[3::10].mean())


def test_calibration_error_by_hand():
    """Two bins: in one confidence 0.1 against a frequency of 0.2, in the other 0.9 against 1."""
    labels = np.array([0] * 2 + [1] * 8)
    odds = np.full((10, 10), -50.0)
    odds[:, 0] = np.log(0.9 / 0.1) * np.where(np.arange(10) < 1, 1, -1)
    expected = (abs(0.9 - 1) * 1 + abs(9 * 0.1 - 1)) / 10  # problem 0
    found = learning_curves.measures_of(odds, labels)["calibration"]
    # Of the other problems only number 1 errs: its probability is 0 where 8 of 10 are true.
    assert found == pytest.approx((expected + 0.8) / 10, abs=1e-9)


@pytest.mark.filterwarnings("ignore:scores reach", "ignore:.*inputs have a score")
def test_a_learned_link_is_measured_at_its_own_period_and_at_another():
    cell = {"data": "digits", "size": 150, "method": "ISGP", "seed": 0}
    plain = learning_curves.measure(**cell, **SETTING | {"budget": "short"})
    narrow = learning_curves.measure(**cell, **SETTING | {"budget": "short", "c_factor": 4.0})
    assert plain["outside"] == 0
    assert narrow["outside"] > 0.01  # the training scores reach beyond that period
    assert narrow["log_loss"] != plain["log_loss"]
    assert plain["accuracy"] > 0.8
    assert plain["train_log_loss"] < plain["log_loss"]
