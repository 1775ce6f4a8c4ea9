"""The figures of the page on GP regression: that they show what they are given."""

import numpy as np
import pandas as pd
import pytest

from bayesloss_book.calibrating.gp_regression import covariate_shift as page
from bayesloss_book.calibrating.gp_regression import figures
from bayesloss_book.shifted_regression import SMOOTHNESS

PROBLEM = page.covariate_shift(2, n=40, k=5)


def lines(axis):
    return {line.get_label(): line.get_data() for line in axis.lines}


def test_shift_has_the_three_decisions_and_their_risks():
    curves, bars = figures.draw_shift(PROBLEM).axes
    x, y = lines(curves)["posterior mean"]
    kernel = np.exp(-0.5 * SMOOTHNESS * (np.asarray(x)[:, None] - PROBLEM.model.x.numpy()) ** 2)
    np.testing.assert_allclose(y, kernel @ PROBLEM.model.mean.numpy(), atol=1e-10)
    assert not np.allclose(lines(curves)["min KL"][1], lines(curves)["min d_L"][1])
    heights = [patch.get_height() for patch in bars.patches]
    np.testing.assert_allclose(heights, page.risks(PROBLEM)["posterior risk"])


def test_sweep_draws_the_table():
    table = pd.DataFrame({"min KL": [0.1, 0.4], "min d_L": [0.0, 0.2]}, index=[0.0, 2.0])
    (axis,) = figures.draw_sweep(table).axes
    for name in table:
        np.testing.assert_allclose(lines(axis)[name], [table.index, table[name]])


def test_routes_draw_both():
    by_cg = pd.DataFrame({"excess": [3.0, 1.0], "bound": [4.0, 1.1]}, index=[1, 2])
    left, right = figures.draw_routes(by_cg, pd.Series({7: 2.0, 14: 1.0})).axes
    np.testing.assert_allclose(lines(left)["sparse mean"][1], [3, 1])
    np.testing.assert_allclose(lines(left)["bound"][1], [4, 1.1])
    np.testing.assert_allclose(right.lines[0].get_data(), [[7, 14], [2, 1]])


def test_costs_draw_the_fastest():
    rows = [
        {"method": name, "n": n, "repeat": r, "seconds": n * (r + 1) / 1000}
        for name in figures._COSTS
        for n in (500, 4000)
        for r in (0, 1)
    ]
    (axis,) = figures.draw_costs(pd.DataFrame(rows)).axes
    assert lines(axis)["KL"][1].tolist() == pytest.approx([0.5, 4.0])
