"""Summaries of made-up cells, of which the answers are known."""

import numpy as np
import pandas as pd
import pytest

from bayesloss_book.learning.learning_curves import summary
from bayesloss_book.learning.learning_curves.figure_2 import BLOCKS, COMPARED, DATA, cells
from bayesloss_book.rivals.baselines import HELD_OUT

AHEAD = {"logistic": 0.0, "GP": -0.01, "ISGP": 0.002, HELD_OUT: 0.004}


def made_up(noise: float = 0.0) -> pd.DataFrame:
    """Cells in which the GP is one point behind logistic regression, and the ISGP 0.2 ahead.

    A part of the test set is harder than another for all methods alike.
    """
    rng = np.random.default_rng(0)
    hard = rng.normal(0, 0.02, BLOCKS)
    asked = [
        *(cell for data in DATA for size in (1_000, 60_000) for cell in cells(data, size)),
        *(cell for data in DATA for seed in (1, 2) for cell in cells(data, 1_000, seed)),
        *(cell for data in DATA for cell in cells(data, 60_000, penalty=0.0)),
    ]
    rows = []
    for cell in asked:
        level = 0.8 + AHEAD[cell["method"]] * (2 if cell["penalty"] == 0 else 1)
        level += 0.01 * cell["seed"]
        row = dict(cell)
        for whole, part in summary.WHOLE.items():
            values = level + hard + noise * rng.normal(size=BLOCKS)
            row |= {f"{part}_{b}": value for b, value in enumerate(values)}
            row[whole] = values.mean()
        rows.append(row | {"log_loss": 0.1, "converged": cell["method"] == "ISGP"})
    return pd.DataFrame(rows)


def test_curves_average_over_seeds_in_one_setting():
    results = made_up()
    curves = summary.curves(results, "accuracy")
    assert len(curves) == len(DATA) * len(COMPARED) * 2  # the cells without a penalty are left out
    plain = results[(results["penalty"] == 1) & (results["size"] == 1_000)]
    mine = plain[(plain["data"] == "mnist") & (plain["method"] == "GP")]["accuracy"]
    row = curves.loc[("mnist", "GP", 1_000)]
    assert row["mean"] == pytest.approx(mine.mean())
    # Seeds differ by 0.01: standard deviation 0.01, over the root of three.
    assert row["error"] == pytest.approx(0.01 / np.sqrt(3))
    assert np.isnan(curves.loc[("mnist", "GP", 60_000), "error"])


@pytest.mark.parametrize("measure", summary.WHOLE)
def test_gains_are_paired(measure):
    """What is hard for all and what the seed brings cancel: the error is that of the noise."""
    exact = summary.gains(made_up(), measure)
    setting = exact.xs(1.0, level="penalty")
    np.testing.assert_allclose(setting["gain"], 0.2, rtol=1e-5, atol=1e-8)
    assert (setting["error"] < 1e-9).all()
    np.testing.assert_allclose(exact.xs(0.0, level="penalty")["gain"], 0.4, rtol=1e-5, atol=1e-8)
    noisy = summary.gains(made_up(0.003), measure, "GP")
    expected = 100 * 0.003 * np.sqrt(2 / BLOCKS / noisy["seeds"])
    # The error of a standard error from ten parts is a quarter of it; nine of them.
    assert (noisy["error"] / expected).between(0.3, 2).all()
    assert (noisy["error"] / expected).mean() == pytest.approx(1, abs=0.3)
