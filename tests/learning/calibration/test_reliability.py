"""Tests of reliability against truths that are known."""

import sys

import numpy as np
import pytest
from scipy.special import xlogy
from sklearn.linear_model import LogisticRegression

from bayesloss import ReliabilityDisplay, reliability


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


def test_many_cases_are_thinned_without_a_difference():
    y, p = cases(n=20_000)
    weight = np.random.default_rng(0).integers(0, 3, 20_000)
    found = reliability(y, p, sample_weight=weight)
    r = found.calibrator.sample_proba(p)
    expected = np.sqrt(((r - p) ** 2) @ weight / weight.sum()).mean()
    # Thinned to 4,096 cases, evenly in mass.
    assert found.calibration_error.mean == pytest.approx(expected, abs=1e-4)


def test_the_display_draws_curve_band_histogram_and_bins():
    pytest.importorskip("matplotlib")
    y, p = cases(n=400)
    labels = np.array(["good", "bad"])[y]
    display = ReliabilityDisplay.from_predictions(
        labels, p, pos_label="bad", n_bins=10, name="mine"
    )
    x, curve = display.line_.get_data()
    np.testing.assert_array_equal(curve, display.reliability.calibrator.predict_proba(x)[:, 1])
    low, high = display.reliability.calibrator.predict_interval(x)
    edges = display.band_.get_paths()[0].vertices
    assert edges[:, 1].min() == pytest.approx(low.min())
    assert edges[:, 1].max() == pytest.approx(high.max())
    heights = [bar.get_height() for bar in display.histogram_ax_.patches]
    assert heights == [((p // 0.02) == k).sum() for k in range(50)]
    bins = display.ax_.lines[-1]
    first = p < 0.1
    assert bins.get_xdata()[0] == pytest.approx(p[first].mean())
    assert bins.get_ydata()[0] == pytest.approx(y[first].mean())
    assert any(
        "mine, calibration error" in text.get_text() for text in display.ax_.get_legend().texts
    )


def test_the_display_takes_an_estimator():
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.array(["a", "b"])[(X[:, 0] + rng.normal(size=300) > 0).astype(int)]
    model = LogisticRegression().fit(X[:100], y[:100])
    display = ReliabilityDisplay.from_estimator(model, X[100:], y[100:])
    np.testing.assert_array_equal(display.y_prob, model.predict_proba(X[100:])[:, 1])
    assert display.y_true.mean() == (y[100:] == "b").mean()


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    with pytest.raises(ImportError, match=r"bayesloss\[plot\]"):
        ReliabilityDisplay.from_predictions([0, 1], [0.2, 0.7])
