"""What the figures show is stored, as it was asked for."""

from pathlib import Path

import pytest

from bayesloss_book.learning.learning_curves import figure_2 as learning_curves
from bayesloss_book.learning.learning_curves import figure_9 as dress_link
from bayesloss_book.stores.results import load_provenance, load_results

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"


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
