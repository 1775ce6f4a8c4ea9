"""The figures on what to use when show what is stored."""

from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from bayesloss_book.guide.when_to_use import figures, summary
from bayesloss_book.stores.results import load_results

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"


@pytest.fixture
def stored():
    yield dict(list(load_results(RESULTS, "when_to_use").groupby("task", sort=False)))
    plt.close("all")


def named_lines(axis):
    return {line.get_label(): line for line in axis.lines}


def names(axis):
    return [text.get_text() for text in axis.get_yticklabels()]


def tables(results):
    return [name.replace("_", " ") for name in results["data"].unique()]


def test_every_table_has_its_row_of_log_losses(stored):
    (axis,) = figures.draw_probabilities(stored["classification"]).axes
    expected = summary.contest(stored["classification"])["mean"].to_numpy()
    assert named_lines(axis)["linkgistic"].get_xdata() == pytest.approx(1e3 * expected)
    assert names(axis) == tables(stored["classification"])


def test_every_table_has_its_row_of_errors(stored):
    (axis,) = figures.draw_curves(stored["regression"]).axes
    errors = stored["regression"].groupby(["method", "data"], sort=False)["rmse"].mean()
    expected = (errors["GP"] / errors["isotonic"]).to_numpy()
    assert named_lines(axis)["GP"].get_xdata() == pytest.approx(expected)
    assert names(axis) == tables(stored["regression"])


def test_seconds_are_medians_over_tables_of_one_size(stored):
    results = stored["classification"]
    top, _ = figures.draw_seconds(load_results(RESULTS, "when_to_use")).axes
    line = named_lines(top)["boosting"]
    at = results[(results["method"] == "boosting") & (results["rows"] == 1_000)]["seconds"]
    shown = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
    assert shown[1_000] == pytest.approx(at.median())
