import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import isotonic_regression
from scipy.stats import norm

from bayesloss_book.learning.auto_mpg import table_1 as auto_mpg
from paperledger.stores.results import load_results

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"
QUICK = {"n_basis": 8, "period_fraction": 0.25}


@pytest.mark.parametrize(("name", "n"), [("accel", 398), ("displ", 398), ("power", 392)])
def test_rows_with_a_missing_input_are_left_out(name, n):
    x, y = auto_mpg.rows_of(name)
    assert x.shape == y.shape == (n,)
    assert np.isfinite(x).all()
    assert np.isfinite(y).all()


@pytest.mark.parametrize("size", auto_mpg.SIZES)
def test_splits_are_a_partition(size):
    n = 398
    splits = [auto_mpg.split_of(n, size, split, partition=1) for split in range(5)]
    for train, test in splits:
        assert sorted([*train, *test]) == list(range(n))
        assert (len(train) > len(test)) == (size == "large")
    once = [test if size == "large" else train for train, test in splits]
    assert sorted(np.concatenate(once)) == list(range(n))


def test_linear_is_least_squares():
    """Against the normal equations, the density written out."""
    x, y = auto_mpg.rows_of("weight")
    train, test = auto_mpg.split_of(len(x), "small", 2, 0)
    design = np.vander(x, 2)
    coefficients = np.linalg.lstsq(design[train], y[train], rcond=None)[0]
    residual = y[train] - design[train] @ coefficients
    sigma = math.sqrt(residual @ residual / (len(train) - 2))
    error = y[test] - design[test] @ coefficients
    found = auto_mpg.measure(
        input="weight", size="small", split=2, method="Linear", partition=0, **QUICK
    )
    # Both routes are exact; the normal equations lose a few digits.
    assert found["mse"] == pytest.approx(np.mean(error**2), rel=1e-9)
    assert found["nll"] == pytest.approx(-norm(0, sigma).logpdf(error).mean(), rel=1e-9)
    assert found["covered"] == np.mean(np.abs(error) < 1.959963984540054 * sigma)
    assert math.isnan(found["log_evidence"])


def test_pava_is_isotonic_regression():
    """Against SciPy's, in which equal inputs have to be pooled by hand."""
    x, y = auto_mpg.rows_of("displ")
    train, test = auto_mpg.split_of(len(x), "large", 1, 0)
    pooled = pd.DataFrame({"x": x[train], "y": y[train]}).groupby("x")["y"].agg(["mean", "size"])
    fitted = isotonic_regression(pooled["mean"], weights=pooled["size"], increasing=False).x
    predicted = np.interp(x[test], pooled.index, fitted)
    found = auto_mpg.measure(
        input="displ", size="large", split=1, method="PAVA", partition=0, **QUICK
    )
    assert found["mse"] == pytest.approx(np.mean((y[test] - predicted) ** 2), rel=1e-9)


def made_up(factor: float, noise: float) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    rows = []
    for partition in range(40):
        for (size, name, method), value in auto_mpg.printed().items():
            for split in range(5):
                mse = value / factor * (1 + noise * generator.normal())
                rows.append((size, name, split, method, partition, mse))
    return pd.DataFrame(rows, columns=["size", "input", "split", "method", "partition", "mse"])


def test_ratio_and_affine_fit_are_recovered():
    """Printed numbers that are proportional: the slope is the factor, the intercept zero."""
    results = made_up(40.0, 0.02)
    ratio, error = auto_mpg.ratio(results)
    # The noise of a mean over five splits and forty partitions is far below that of one partition.
    assert ratio == pytest.approx(40.0, abs=3 * error)
    assert error == pytest.approx(40 * 0.02 / math.sqrt(5 * 16), rel=0.2)
    slope, intercept, error = auto_mpg.affine_fit(results)
    assert slope == pytest.approx(40.0, rel=0.02)
    assert abs(intercept) < 4 * error


def test_gains_are_recovered():
    gains = auto_mpg.gains(made_up(40.0, 1e-4))
    printed = auto_mpg.printed()
    expected = 1 - printed["small", "displ", "ISGP"] / printed["small", "displ", "GP"]
    found = gains.loc[("small", "ISGP over GP", "displ")]
    assert found["mean"] == pytest.approx(expected, abs=4 * found["error"])
    every = [gains.loc[("small", "ISGP over GP", name), "mean"] for name in auto_mpg.INPUTS]
    assert gains.loc[("small", "ISGP over GP", "all"), "mean"] == pytest.approx(np.mean(every))


def test_luck_is_a_prediction_interval():
    """With 40 partitions: the 99.5 % quantile of t(39), times sqrt(1 + 1/40)."""
    summary = auto_mpg.summary(made_up(40.0, 0.05))
    assert (summary["luck"] / summary["sd"]).between(2.7, 2.8).all()


def test_stored_results_are_what_the_code_gives():
    """The cheap cells of one split, measured again: the code has not moved away from the store."""
    stored = load_results(RESULTS, "auto_mpg")
    keys = ["input", "size", "split", "method", "partition"]
    stored = stored.set_index(keys)
    for cell in auto_mpg.cells([4], ("PAVA", "Linear")):
        if cell["split"] == 3:
            found = auto_mpg.measure(**cell, n_basis=64, period_fraction=0.25)
            then = stored.loc[tuple(cell[key] for key in keys)]
            assert found["mse"] == pytest.approx(then["mse"], rel=1e-9)
            assert found["nll"] == pytest.approx(then["nll"], rel=1e-9)


def test_beside_the_print_stand_its_32_numbers_in_its_unit_and_in_ours():
    results = load_results(RESULTS, "auto_mpg")
    table = auto_mpg.beside_print(results)
    assert len(table) == 32
    first = table.loc[("large", "accel", "GP")]
    assert first["in print"] == "2,080.9"
    assert float(first["in print, mpg²"]) == pytest.approx(2080.9 / 41.8, abs=0.01)
    rows = results.query("size == 'large' and input == 'accel' and method == 'GP'")
    by_partition = rows.groupby("partition")["mse"].mean()
    assert float(first["here, mpg²"]) == pytest.approx(by_partition.mean(), abs=0.005)
    assert float(first["± here"]) == pytest.approx(by_partition.sem(), abs=0.005)
