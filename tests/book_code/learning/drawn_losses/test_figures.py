"""The figures show what they say they show."""

import numpy as np
import pytest

from bayesloss_book.learning.drawn_losses import figures


def lines(axis):
    return [line.get_xydata() for line in axis.get_lines()]


def test_the_construction_gives_one_link_for_all_paths():
    figure = figures.draw_construction("logistic", n_paths=3, seed=0)
    *links, dotted = lines(figure.axes[2])
    assert len(links) == 3
    assert all(np.abs(link - dotted).max() < 1e-6 for link in links)
    canonical = lines(figure.axes[1])
    assert np.abs(canonical[0] - canonical[1]).max() > 0.1


def test_failures_in_the_figure_are_near_the_curve():
    figure = figures.draw_failure(turn=1.0, n_paths=4000, seed=0)
    exact, *dots = lines(figure.axes[0])[:7]
    for dot in dots:
        found = np.interp(np.log(dot[0, 0]), np.log(exact[:, 0]), exact[:, 1])
        assert dot[0, 1] == pytest.approx(found, abs=0.035)
