import numpy as np
import pandas as pd
import pytest

from bayesloss_book.beyond.loss_ep import table
from bayesloss_book.calibrating.asymmetric_losses import table_4
from bayesloss_book.references.probit_references import TESTS, THRESHOLDS

SMALL = {"n_sets": 2, "n_test": 30, "n_chains": 2, "n_draws": 60, "n_points": 512}


@pytest.fixture(scope="module")
def cell():
    return table.measure(**table.KERNEL, repetition=1, **SMALL)


def test_a_cell_has_the_regrets_of_all_methods(cell):
    assert all(np.isfinite(list(cell.values())))
    regrets = [v for k, v in cell.items() if k.endswith(tuple(TESTS))]
    assert len(regrets) == len(table.METHODS) * len(TESTS) * len(THRESHOLDS)
    assert all(0 <= v <= 1 for v in regrets)
    assert cell["ep_0.38_u_02_12_over"] == 0


def test_the_same_data_and_methods_as_table_4(cell):
    """Laplace's and EP's regret, from the other page's experiment."""
    theirs = table_4.measure(repetition=1, test="u_05_15", threshold=0.275, **table.KERNEL, **SMALL)
    # Theirs is by a spline over the same draws, exact to 1e-6, and has means over hard data sets
    # as well; this one is over all.
    for name in ("laplace", "ep"):
        assert cell[f"{name}_0.38_u_05_15"] == pytest.approx(theirs[f"{name}_all"], abs=1e-5)


def test_regrets_and_summary(cell):
    rows = [table.KERNEL | {"repetition": r} | cell for r in range(3)]
    for row, shift in zip(rows, (0.0, 1.0, 2.0), strict=True):
        for key in list(cell):
            if key.startswith("loss_ep_0.38_u_02_12"):
                row[key] = cell["ep_0.38_u_02_12"] + shift
    found = table.summary(pd.DataFrame(rows))
    assert found["over"]["loss_ep"]["0.38", "u_02_12"] == pytest.approx(1.0)
    assert found["over_error"]["loss_ep"]["0.38", "u_02_12"] == pytest.approx(1 / 3**0.5)
    assert found["error"]["ep"].max() == pytest.approx(0, abs=1e-15)
    by_hmc = table.summary(pd.DataFrame(rows), "_hmc")
    assert by_hmc["mean"]["laplace"]["0.05", "u_00_10"] == cell["laplace_0.05_u_00_10_hmc"]
