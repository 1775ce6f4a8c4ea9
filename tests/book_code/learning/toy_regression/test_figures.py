"""The figures of the toy regression: every panel shows what its caption says."""

import numpy as np
import pytest

from bayesloss import GP, ISGP
from bayesloss_book.learning.toy_regression import figures
from bayesloss_book.learning.toy_regression import fits as toy


@pytest.fixture(scope="module")
def data():
    return toy.problem(30, 0)


@pytest.fixture(scope="module")
def fits(data):
    return {"GP": toy.fit(data, GP, n_basis=8), "ISGP": toy.fit(data, ISGP, n_basis=8)}


def line(axis, label):
    return next(one for one in axis.get_lines() if one.get_label() == label)


@pytest.mark.parametrize("reach", [50.0, 300.0])
def test_panels_show_source_process_and_square(data, fits, reach):
    upper, middle, lower = figures.draw_panels(fits["ISGP"], data, reach).axes
    f = line(middle, "mean of $f$").get_ydata()
    x = line(middle, "mean of $f$").get_xdata()
    assert abs(x[0]) == abs(x[-1]) == reach
    square = line(lower, "mean of $f^2$").get_ydata()
    assert (square >= f**2).all()
    roots = [one.get_ydata() for one in middle.get_lines() if one.get_linestyle() == "--"]
    np.testing.assert_allclose(roots[0], -roots[1])
    np.testing.assert_allclose(roots[0] ** 2, line(lower, r"$\nu'$, truth").get_ydata())
    assert (np.diff(line(upper, "mean").get_ydata()) > 0).all()


def test_slices_mark_the_optimum(data, fits):
    found = fits["ISGP"]
    table = toy.slices(found, data, "bound", n=5)
    axes = figures.draw_slices({"bound": table}, {"bound": found}).axes
    labels = [axis.get_xlabel() for axis in axes[:5]]
    assert labels == ["$a - 1$", "$b$", r"$\mu$", r"$\alpha$", r"$\gamma$"]
    for axis in axes[:4]:
        curve, dot = axis.get_lines()
        assert dot.get_ydata()[0] == 0
        assert dot.get_xdata()[0] == pytest.approx(curve.get_xdata()[2])
        assert curve.get_ydata()[2] == pytest.approx(0, abs=1e-7)
