import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, ShuffleSplit, cross_val_predict, cross_validate

from bayesloss import ReliabilityDisplay, ReliabilityPanels, reliability


def cases(n):
    rng = np.random.default_rng(0)
    p = rng.random(n)
    return (rng.random(n) < p**2).astype(int), p


def test_the_display_draws_curve_band_histogram_and_bins():
    y, p = cases(400)
    display = ReliabilityDisplay.from_predictions(
        np.array(["good", "bad"])[y], p, pos_label="bad", n_bins=10, name="mine"
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
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.array(["a", "b"])[(X[:, 0] + rng.normal(size=300) > 0).astype(int)]
    model = LogisticRegression().fit(X[:100], y[:100])
    display = ReliabilityDisplay.from_estimator(model, X[100:], y[100:])
    np.testing.assert_array_equal(display.y_prob, model.predict_proba(X[100:])[:, 1])
    assert display.y_true.mean() == (y[100:] == "b").mean()


def test_weights_count_like_copies_in_the_histogram_and_in_bins():
    y, p = cases(300)
    times = np.arange(300) % 3
    weighted = ReliabilityDisplay.from_predictions(y, p, sample_weight=times, n_bins=10)
    copies = ReliabilityDisplay.from_predictions(y.repeat(times), p.repeat(times), n_bins=10)
    both = (weighted, copies)
    heights = [[bar.get_height() for bar in each.histogram_ax_.patches] for each in both]
    np.testing.assert_allclose(*heights)
    np.testing.assert_allclose(*(each.ax_.lines[-1].get_xydata() for each in both))


def test_two_displays_on_one_axes_share_the_diagonal_and_the_histogram():
    first = ReliabilityDisplay.from_predictions(*cases(100), name="one")
    second = ReliabilityDisplay.from_predictions(*cases(300), name="two", ax=first.ax_)
    texts = [text.get_text() for text in second.ax_.get_legend().texts]
    assert [text.split(",")[0] for text in texts] == ["perfectly calibrated", "one", "two"]
    assert second.histogram_ax_ is first.histogram_ax_
    second.figure_.canvas.draw()  # a file shows legend and histogram, to a tenth of an inch
    shown = second.figure_.get_tightbbox()
    (width, height) = second.figure_.get_size_inches()
    assert min(shown.x0, shown.y0, width - shown.x1, height - shown.y1) > -0.1


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        ReliabilityDisplay.from_predictions([0, 1], [0.2, 0.7])


def test_there_is_a_bin_at_least():
    with pytest.raises(ValueError, match="expected n_bins of at least 1, got 0"):
        ReliabilityDisplay.from_predictions([0, 1, 0, 1], [0.1, 0.2, 0.6, 0.7], n_bins=0)


def blobs(n=240, n_classes=3):
    rng = np.random.default_rng(0)
    k = np.arange(n) % n_classes
    return rng.normal(k[:, None] * [1.0, -0.5], 1), np.array(["b", "c", "a"])[k]


def test_an_estimator_of_many_classes_shows_its_top_label_or_a_class():
    X, y = blobs()
    model = LogisticRegression().fit(X[:100], y[:100])
    p = model.predict_proba(X[100:])
    top = ReliabilityDisplay.from_estimator(model, X[100:], y[100:])
    np.testing.assert_array_equal(top.y_prob, p.max(axis=1))
    np.testing.assert_array_equal(top.y_true, model.predict(X[100:]) == y[100:])
    assert top.ax_.get_ylabel() == "probability of the top label"
    one = ReliabilityDisplay.from_estimator(model, X[100:], y[100:], pos_label="c")
    np.testing.assert_array_equal(one.y_prob, p[:, 2])
    np.testing.assert_array_equal(one.y_true, y[100:] == "c")
    assert one.ax_.get_ylabel() == "probability of c"


@pytest.mark.parametrize("n_classes", [2, 3])
def test_cross_validated_predictions_make_one_curve(n_classes):
    X, y = blobs(n_classes=n_classes)
    cv = KFold(4, shuffle=True, random_state=0)
    weight = np.arange(240) % 3
    found = cross_validate(
        LogisticRegression(), X, y, cv=cv, return_estimator=True, return_indices=True
    )
    display = ReliabilityDisplay.from_cv_results(
        found, X, y, sample_weight=weight, groups=np.arange(240) // 2
    )
    p = cross_val_predict(LogisticRegression(), X, y, cv=cv, method="predict_proba")
    if n_classes == 2:
        p = p[:, 1]
    by_hand = reliability(
        y,
        p,
        sample_weight=weight,
        groups=np.arange(240) // 2,
        pos_label="c" if n_classes == 2 else None,
    )
    error = display.reliability.calibration_error
    assert error.mean == pytest.approx(by_hand.calibration_error.mean, rel=1e-6)
    assert display.name == "LogisticRegression"


def test_a_case_held_out_several_times_counts_once():
    X, y = blobs(n_classes=2)
    cv = ShuffleSplit(5, test_size=0.6, random_state=0)
    found = cross_validate(
        LogisticRegression(), X, y, cv=cv, return_estimator=True, return_indices=True
    )
    display = ReliabilityDisplay.from_cv_results(found, X, y)
    rows = np.concatenate(found["indices"]["test"])
    assert len(rows) == 5 * 144
    counted = np.bincount(rows, display.sample_weight)
    np.testing.assert_allclose(counted[np.unique(rows)], 1)


def test_results_without_estimators_or_with_folds_that_know_other_classes_are_refused():
    X, y = blobs()
    with pytest.raises(ValueError, match=r"return_indices=True\), got \['fit_time'"):
        ReliabilityDisplay.from_cv_results(cross_validate(LogisticRegression(), X, y), X, y)
    sorted_rows = np.argsort(y, kind="stable")
    halves = [(sorted_rows[:120], sorted_rows[120:]), (sorted_rows[120:], sorted_rows[:120])]
    found = cross_validate(
        LogisticRegression(), X, y, cv=halves, return_estimator=True, return_indices=True
    )
    with pytest.raises(ValueError, match=r"folds that know all classes \['a' 'b'\]"):
        ReliabilityDisplay.from_cv_results(found, X, y)


def test_panels_show_each_class_of_several_models():
    X, y = blobs()
    p = cross_val_predict(LogisticRegression(), X, y, method="predict_proba")
    sure = p**3 / (p**3).sum(axis=1, keepdims=True)
    panels = ReliabilityPanels.from_predictions(y, {"plain": p, "sure": sure}, n_bins=5)
    assert list(panels.displays) == ["the top label", "a", "b", "c"]
    axes = panels.figure_.axes
    assert len(axes) == 4
    for number, (target, shown) in enumerate(panels.displays.items()):
        assert [display.ax_ for display in shown] == [axes[number]] * 2
        for display, claimed in zip(shown, (p, sure), strict=True):
            pos_label = None if number == 0 else target
            by_hand = reliability(y, claimed, pos_label=pos_label).calibration_error
            assert str(display.reliability.calibration_error) == str(by_hand)
        texts = [text.get_text() for text in axes[number].get_legend().texts]
        assert {"plain", "sure"} < {text.split(",")[0] for text in texts}
    panels.figure_.canvas.draw()
    low, high = panels.displays["a"][0].band_.get_datalim(axes[1].transData).intervaly
    assert 0 <= low < high <= 1
    chosen = ReliabilityPanels.from_predictions(y, {"plain": p}, targets=["c"])
    assert list(chosen.displays) == ["the top label", "c"]


def test_panels_leave_out_classes_without_cases_and_need_a_model():
    X, y = blobs()
    p = LogisticRegression().fit(X, y).predict_proba(X)
    some = y != "c"
    panels = ReliabilityPanels.from_predictions(y[some], {"": p[some]}, classes=["a", "b", "c"])
    assert list(panels.displays) == ["the top label", "a", "b"]
    with pytest.raises(ValueError, match="one model at least"):
        ReliabilityPanels.from_predictions(y, {})
