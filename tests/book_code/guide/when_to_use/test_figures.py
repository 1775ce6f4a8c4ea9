"""The figure on what to use when shows what is stored."""

from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from bayesloss_book.guide.when_to_use import figures, summary
from bayesloss_book.stores.results import load_results

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"


def test_every_table_has_its_row():
    stored = load_results(RESULTS, "when_to_use")
    left, right = figures.draw_contest(stored).axes
    lines = {line.get_label(): line for line in left.lines}
    of_labels = stored[stored["task"] == "classification"]
    expected = summary.contest(of_labels)["mean"]
    assert lines["linkgistic"].get_xdata() == pytest.approx(1e3 * expected.to_numpy())
    assert [text.get_text() for text in left.get_yticklabels()] == [
        name.replace("_", " ") for name in of_labels["data"].unique()
    ]
    assert (
        len(right.get_yticklabels()) == stored.loc[stored["task"] == "regression", "data"].nunique()
    )
    plt.close("all")
