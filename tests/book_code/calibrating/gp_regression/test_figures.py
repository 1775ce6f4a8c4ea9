"""The figures of the page on GP regression: that they show what they are given."""

import numpy as np

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
