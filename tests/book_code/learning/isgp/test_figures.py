"""The figures show what they say they show."""

import numpy as np

from bayesloss_book.learning.isgp import figures as isgp_figures


def lines(axis):
    return [line.get_xydata() for line in axis.get_lines()]


def test_sources_rise():
    settings = ((1.2, 1.0, 1.0), (8.0, 1.0, 1.0))
    figure = isgp_figures.draw_paths(settings, seed=0, n_paths=2, n_basis=8)
    for axis in figure.axes[4:]:
        assert all((np.diff(line[:, 1]) >= 0).all() for line in lines(axis))


def test_a_constant_makes_a_straight_line_cheap():
    figure = isgp_figures.draw_cost((2.0,), n_basis=16, tolerance=0.05, constant=0.5)
    without, with_one = (line[:, 1] for line in lines(figure.axes[0]))
    assert without[-1] == np.inf
    assert with_one[-1] < 2
    reached = without[np.isfinite(without)]
    assert len(reached) > 25
    assert (np.diff(reached) > 0).all()


def test_fits_are_drawn_beside_the_truth():
    figure = isgp_figures.draw_fits("line", n=50, a=2.0, filled=(0.5, 1.0), seed=0)
    for axis in figure.axes:
        without, with_one, truth = lines(axis)
        assert np.abs(without[:, 1] - with_one[:, 1]).max() > 0.01
        np.testing.assert_allclose(truth[:, 0], truth[:, 1])
