"""The figures show what the stored cells say."""

from pathlib import Path

import numpy as np
import pytest

from bayesloss_book.learning.learning_curves import figure_2 as learning_curves
from bayesloss_book.learning.learning_curves import figure_9 as dress_link
from bayesloss_book.learning.learning_curves import figures
from bayesloss_book.learning.learning_curves.figure_2 import COMPARED, DATA, METHODS, SIZES
from bayesloss_book.learning.learning_curves.summary import curves, gains
from bayesloss_book.stores.results import load_provenance, load_results

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"


@pytest.fixture(scope="module")
def stored():
    return load_results(RESULTS, "learning_curves")


@pytest.fixture(scope="module")
def dress():
    return load_results(RESULTS, "dress_link")


def test_curves_show_every_method_and_size(stored):
    figure = figures.draw_curves(stored)
    assert [axis.get_ylabel() for axis in figure.axes[::2]] == list(DATA)
    line = figure.axes[1 + 2 * DATA.index("mnist")].containers[COMPARED.index("ISGP")].lines[0]
    table = 100 * curves(stored, "accuracy")["mean"].loc["mnist", "ISGP"]
    np.testing.assert_allclose(line.get_ydata(), table, rtol=1e-5, atol=1e-8)
    assert len(table) == len(SIZES)


def test_gains_show_differences(stored):
    figure = figures.draw_gains(stored)
    line = figure.axes[2 * DATA.index("kmnist")].containers[0].lines[0]
    table = gains(stored, "ovr_accuracy", "GP").loc["kmnist"]
    assert line.get_ydata()[-1] == pytest.approx(table.loc[(60_000, 1.0), "gain"].iloc[0])


def test_losses_show_training_and_test(stored):
    figure = figures.draw_losses(stored)
    assert all(len(axis.lines) == 2 * len(COMPARED) for axis in figure.axes)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == list(COMPARED)


def test_dress_shows_links_and_frequencies(dress):
    figure = figures.draw_dress(dress)
    assert [axis.get_ylabel() for axis in figure.axes[::2]] == list(METHODS)
    for axis in figure.axes[::2]:
        link = axis.lines[0].get_ydata()
        assert len(link) == dress_link.POINTS and (link >= 0).all() and (link <= 1).all()
        assert axis.collections  # the band


@pytest.mark.parametrize(
    ("name", "module", "cells", "needed"),
    [
        (
            "learning_curves",
            "figure_2",
            [*learning_curves.curve_cells(), *learning_curves.setting_cells()],
            [cell for cell in learning_curves.curve_cells() if cell["seed"] == 0],
        ),
        ("dress_link", "figure_9", dress_link.cells(), dress_link.cells()),
    ],
)
def test_stored_results_are_what_was_asked(name, module, cells, needed):
    """Nothing else, and at least what the figures show: the settings may be a part."""
    table, provenance = load_results(RESULTS, name), load_provenance(RESULTS, name)
    asked = {tuple(cell.values()) for cell in cells}
    there = set(table[list(cells[0])].itertuples(index=False, name=None))
    assert {tuple(cell.values()) for cell in needed} <= there <= asked
    assert provenance["function"] == f"bayesloss_book.learning.learning_curves.{module}:measure"
    assert all(run["commit"] and "dirty" not in run["commit"] for run in provenance["runs"])
