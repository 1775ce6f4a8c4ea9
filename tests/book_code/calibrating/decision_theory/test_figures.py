"""The figures of the page on decisions: that they show what they are given."""

import numpy as np
import pytest
from scipy.stats import norm

from bayesloss_book.calibrating.decision_theory import figures
from bayesloss_book.power_plant import PowerPlant, approximations

PLANT = PowerPlant()
FITS = approximations(PLANT)


def test_figure_1_has_the_densities_and_their_integrals():
    top, bottom = figures.draw_figure_1(PLANT, FITS).axes
    for name, mark in figures.STYLES.items():
        density = next(line for line in top.lines if line.get_label() == figures.LABELS[name])
        below = next(line for line in bottom.lines if line.get_color() == mark[0])
        x, y = density.get_data()
        if name != "posterior":
            np.testing.assert_allclose(y, norm.pdf(x, *FITS[name]))
        # Trapezoids of a quarter of a degree.
        rise = np.diff(below.get_data()[1])
        np.testing.assert_allclose(rise, (y[1:] + y[:-1]) / 2 * np.diff(x), atol=1e-6)


def test_thresholds_show_the_plant_between_the_tails():
    for axis, name in zip(
        figures.draw_thresholds(PLANT, FITS).axes, ("min KL(q‖p)", "min KL(p‖q)"), strict=True
    ):
        dot = axis.lines[-1].get_data()
        assert (float(dot[0][0]), float(dot[1][0])) == (345, 0.05)
        label = figures.LABELS[name]
        x, tail = next(line for line in axis.lines if line.get_label() == label).get_data()
        assert float(np.interp(345, x, tail)) == pytest.approx(norm.sf(345, *FITS[name]), rel=1e-3)


def test_map_marks_the_three():
    (axis,) = figures.draw_decision_map(PLANT, FITS).axes
    marked = [tuple(float(v[0]) for v in line.get_data()) for line in axis.lines]
    assert marked == [tuple(fit) for fit in FITS.values()]


def test_finer_pays_for_the_inputs_between_the_two_means():
    for axis, inputs in zip(
        figures.draw_finer((1, 4)).axes, ([0.0], [-0.75, -0.25, 0.25, 0.75]), strict=True
    ):
        means, values = axis.lines[0].get_data()
        # By hand: of two equal costs, half the surplus of the likelier label, where they disagree.
        surplus = abs(2 * norm.cdf((np.array(inputs) - 0.103) / np.sqrt(1.25)) - 1) / 2
        wrong = (np.array(inputs) > means[:, None]) != (np.array(inputs) > 0.103)
        np.testing.assert_allclose(values, (wrong * surplus).mean(axis=1), atol=1e-12)
        assert len(np.unique(values.round(9))) == len(inputs) + 1
