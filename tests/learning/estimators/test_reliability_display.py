import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from bayesloss import ReliabilityDisplay


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
    shown, (width, height) = second.figure_.get_tightbbox(), second.figure_.get_size_inches()
    assert min(shown.x0, shown.y0, width - shown.x1, height - shown.y1) > -0.1


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        ReliabilityDisplay.from_predictions([0, 1], [0.2, 0.7])


def test_there_is_a_bin_at_least():
    with pytest.raises(ValueError, match="expected n_bins of at least 1, got 0"):
        ReliabilityDisplay.from_predictions([0, 1, 0, 1], [0.1, 0.2, 0.6, 0.7], n_bins=0)
