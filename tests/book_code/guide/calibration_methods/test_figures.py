"""The figures on learned links against calibration show what is stored."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from bayesloss_book.baselines import HELD_OUT
from bayesloss_book.guide.calibration_methods import figures
from bayesloss_book.guide.calibration_methods.problems import KINDS
from bayesloss_book.guide.calibration_methods.summary import differences
from bayesloss_book.stores.results import load_results

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"


@pytest.fixture(scope="module")
def stored():
    return load_results(RESULTS, "calibration_methods")


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def test_divergence_has_a_line_for_each_method_in_each_panel(stored):
    figure = figures.draw_divergence(stored)
    kinked = next(axis for axis in figure.axes if axis.get_title() == "kinked, skewed")
    lines = {bars.get_label(): bars.lines[0] for bars in kinked.containers}
    assert set(lines) == set(figures.STYLES)
    chosen = stored[
        (stored["data"] == "kinked") & (stored["task"] == "skewed") & (stored["method"] == "ISGP")
    ]
    means = chosen.groupby("size")["divergence"].mean()
    assert lines["ISGP"].get_xdata() == pytest.approx(means.index.to_numpy())
    assert lines["ISGP"].get_ydata() == pytest.approx(means.to_numpy())


def test_real_has_a_row_for_each_problem(stored):
    axis = figures.draw_real(stored).axes[0]
    labels = [text.get_text() for text in axis.get_yticklabels()]
    real = stored[stored["data"].map(KINDS) != "simulated"]
    assert len(labels) == len(set(labels)) == len(real.groupby(["data", "task", "C"]))
    row = labels.index("kmnist, odd")
    isgp = next(bars.lines[0] for bars in axis.containers if bars.get_label() == "ISGP")
    x = isgp.get_xdata()[np.abs(isgp.get_ydata() + row).argmin()]
    expected = differences(stored).loc[("kmnist", "odd", 3_000, 1.0, "ISGP"), "mean"]
    assert x == pytest.approx(1e3 * expected)


def test_clouds_show_the_true_curve():
    figure = figures.draw_clouds("kinked", 300, 0, n_points=50)
    assert [axis.get_title() for axis in figure.axes] == ["logistic", "isotonic", HELD_OUT]
    points, curve = figure.axes[0].lines
    assert len(points.get_xdata()) == 50
    assert (np.diff(curve.get_ydata()) > 0).all()
    with pytest.raises(ValueError, match="expected a link"):
        figures.draw_clouds("wine", 0, 0)
