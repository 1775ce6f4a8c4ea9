"""Figures show what they say."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from bayesloss_book.beyond.calibration import figures, rivals, summary


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture
def rows():
    wide = pd.DataFrame(
        [
            {"data": data, "task": "curve", "model": "curve", "n": n, "number": 0, "seconds": 1.0}
            | {f"{m}: log_loss": 0.3 + 0.01 * i / n for i, m in enumerate(rivals.METHODS)}
            | {"link: coverage": 0.95}
            for data in ("votes", "concave")
            for n in (200, 1_000)
        ]
    )
    return summary.long(wide)


def test_a_method_has_a_style():
    assert set(figures.STYLES) == {*rivals.METHODS, *rivals.MANY}
    assert len(set(figures.STYLES.values())) == len(figures.STYLES)


def test_benchmark_has_a_line_a_method(rows):
    axis = figures.draw_benchmark(rows).axes[0]
    lines = {container.get_label(): container for container in axis.containers}
    assert len(lines) == len(rivals.METHODS) - 1
    heights = lines["isotonic"].lines[0].get_ydata().astype(float)
    # The second is 0.03, drawn at the floor.
    np.testing.assert_allclose(heights, [1e3 * 0.03 / 200, 0.1], rtol=1e-6)


def test_coverage_has_a_dot_a_curve_and_size(rows):
    axis = figures.draw_coverage(summary.coverage(rows)).axes[0]
    assert [line.get_xdata().tolist() for line in axis.lines] == [[95.0, 95.0]] * 2


def test_idea_shows_band_and_truth():
    figure = figures.draw_idea("concave", (30, 60), 0)
    for axis in figure.axes:
        assert len(axis.collections) == 1
        assert len(axis.lines) == 5


def test_bound_has_means_over_draws():
    a = [1.1, 50.0]
    judged = pd.DataFrame(
        [
            {"number": k, "a": v, "evidence": -k, "bound": -2.0 * k, "loss": 0.001 * k}
            for k in (0, 1)
            for v in a
        ]
    )
    axes = figures.draw_bound(judged).axes
    assert axes[2].lines[-1].get_ydata().tolist() == [0.5, 0.5]


def test_where_shows_the_worst_data_at_the_top():
    gaps = pd.DataFrame({1_000: [0.002, -0.003], 20_000: [0.001, np.nan]}, index=["a", "b"])
    axis = figures.draw_where(gaps, "spline").axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["b", "a"]
    np.testing.assert_allclose(axis.lines[1].get_xdata(), [-3, 2])


def test_reliability_is_of_predictions_that_are_too_sure():
    p, y = figures.too_sure(20_000, 0)
    sure = p > 0.9  # E sigmoid(0.7 logit p) there is about 0.89, below the mean prediction 0.95
    assert p[sure].mean() - y[sure].mean() > 0.04  # its standard error is below 0.01
    axes = figures.draw_reliability((60, 200), 0).axes
    assert [axis.get_title() for axis in axes[:2]] == ["60 cases", "200 cases"]
    assert all(len(axis.collections) == 1 for axis in axes[:2])
