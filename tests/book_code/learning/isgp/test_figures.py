"""The figures show what they say they show."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from bayesloss_book.learning.isgp import figures as isgp_figures
from bayesloss_book.learning.isgp import losses as isgp_losses


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def lines(axis):
    return [line.get_xydata() for line in axis.get_lines()]


def test_sources_rise():
    figure = isgp_figures.draw_paths(seed=0, n_paths=2, n_basis=8)
    for axis in figure.axes[8:]:
        assert all((np.diff(line[:, 1]) >= 0).all() for line in lines(axis))


def test_the_construction_gives_one_link_for_all_paths():
    figure = isgp_figures.draw_construction("logistic", n_paths=3, seed=0)
    *links, dotted = lines(figure.axes[2])
    assert len(links) == 3
    assert all(np.abs(link - dotted).max() < 1e-6 for link in links)
    canonical = lines(figure.axes[1])
    assert np.abs(canonical[0] - canonical[1]).max() > 0.1


def test_a_constant_makes_a_straight_line_cheap():
    figure = isgp_figures.draw_cost((2.0,), n_basis=16, tolerance=0.05, constant=0.5)
    without, with_one = (line[:, 1] for line in lines(figure.axes[0]))
    assert without[-1] == np.inf
    assert with_one[-1] < 2
    reached = without[np.isfinite(without)]
    assert len(reached) > 25
    assert (np.diff(reached) > 0).all()


def test_failures_in_the_figure_are_near_the_curve():
    figure = isgp_figures.draw_failure(turn=1.0, n_paths=4000, seed=0)
    exact, *dots = lines(figure.axes[0])[:7]
    for dot in dots:
        found = np.interp(np.log(dot[0, 0]), np.log(exact[:, 0]), exact[:, 1])
        assert dot[0, 1] == pytest.approx(found, abs=0.035)


def test_the_other_figures_are_drawn():
    assert len(isgp_figures.draw_flat_spot(seed=0).axes) == 3
    assert len(isgp_figures.draw_origin(r=-1.0, reach=4.0, seed=0).axes) == 3
    assert len(isgp_figures.draw_universality(np.ones_like, reach=3.0, sizes=(2, 4)).axes) == 1
    table = isgp_losses.slack_table((1.0,), n_paths=20, seed=0)
    assert len(isgp_figures.draw_slack(table).axes) == 3
