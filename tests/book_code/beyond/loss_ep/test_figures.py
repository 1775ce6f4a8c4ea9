"""The figures on loss-calibrated EP draw what they are given."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from bayesloss_book.beyond.loss_ep import figures, table


@pytest.fixture(scope="module")
def here():
    return figures.live(6, 60, "u_05_15", 512, 0)


def test_belief(here):
    figure, measured = figures.draw_belief(here, 0.3875)
    assert measured["exact"] >= 0 and measured["ep"] >= 0
    assert len(figure.axes) == 2
    plt.close(figure)


def test_max_loss_goes_to_ep(here):
    found = figures.by_max_loss(here, 0.275, (1, 1e6))
    assert found.loc[1e6, "loss_ep"] == found.loc[1e6, "ep"] == found.loc[1e6, "table_3_ep"]
    assert found.loc[1, "table_3_ep"] >= 0


def test_stored_figures_and_bumps():
    rng = np.random.default_rng(0)
    rows = []
    for cell in [*table.cells(2), *table.map_cells()]:
        keys = [
            f"{name}_{row}_{test}"
            for name in table.METHODS
            for row in figures.THRESHOLDS
            for test in figures.TESTS
        ]
        rows.append(cell | dict(zip(keys, rng.uniform(1e-6, 1e-2, len(keys)), strict=True)))
    rows = pd.DataFrame(rows)
    summary = table.summary(rows[:2])
    drawn = figures.draw_regrets(summary), figures.draw_saved(summary)
    drawn += (figures.draw_kernels(table.regrets(rows[2:])), figures.draw_bumps(30.0, (1, 1.1, 2)))
    assert [len(figure.axes) for figure in drawn] == [3, 1, 1, 1]
    for figure in drawn:
        plt.close(figure)
