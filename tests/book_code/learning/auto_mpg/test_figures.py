"""The figures show what they say: their lines are the predictions of the methods."""

from pathlib import Path

import numpy as np

from bayesloss_book.learning.auto_mpg import figures as auto_mpg_figures
from bayesloss_book.learning.auto_mpg import table_1 as auto_mpg

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"


def test_fits_show_four_methods_for_four_inputs():
    figure = auto_mpg_figures.draw_fits(n_basis=4, period_fraction=0.25)
    assert len(figure.axes) == 4
    for axis, name in zip(figure.axes, auto_mpg.INPUTS, strict=True):
        lines = {line.get_label(): line for line in axis.lines}
        assert set(auto_mpg.METHODS) <= set(lines)
        x, y = auto_mpg.rows_of(name)
        slope, intercept = np.polyfit(x, y, 1)
        line = lines["Linear"]
        np.testing.assert_allclose(
            line.get_ydata(), slope * line.get_xdata() + intercept, rtol=1e-5, atol=1e-8
        )
        # PAVA and the ISGP never turn, whichever way they go.
        for method in ("PAVA", "ISGP"):
            steps = np.diff(lines[method].get_ydata()) * np.sign(slope)
            assert (steps >= -1e-9).all()
