"""Whole fits are measured on what the page says, and shown beside the right rival."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse.linalg import norm

from bayesloss_book.data import DataError
from bayesloss_book.learning.em_cost import fits
from bayesloss_book.stores.results import load_results

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"


@pytest.mark.parametrize("make", [fits.text, fits.topics])
def test_documents(make):
    """Of unit length, with as many words as asked for, and labels that can be told."""
    X, y, X_test, y_test = make(n=300, d=4000)
    assert X.shape == (300, 4000)
    assert X_test.shape[1] == 4000
    np.testing.assert_allclose(norm(X, axis=1), 1.0)
    assert X.has_canonical_format
    assert set(y) == set(y_test) == {0, 1}


def test_a_fit_tells_its_costs():
    found = fits.measure(problem="1,000 x 10", method="lbfgs", repeat=0)
    X = np.empty((1_000, 10))
    assert found["data_mb"] == X.nbytes / 2**20
    assert found["converged"]
    # With ten weights of 2 / 10^1/2 the labels' own noise leaves 0.45 or so; guessing, log 2.
    assert 0.3 < found["loss"] < 0.6
    assert found["cpu_seconds"] > 0
    assert found["beyond_mb"] < found["peak_mb"]


def test_what_fails_says_why():
    with pytest.raises(RuntimeError, match="expected a method that is known, got 'best'"):
        fits.measure(problem="1,000 x 10", method="best", repeat=0)


def test_data_that_cannot_be_had_are_told_from_fits_that_fail(tmp_path, monkeypatch):
    """A damaged file is refused in the process of the fit, and by the same name here."""
    (tmp_path / "fashion-mnist").mkdir()
    for each in ("train-labels-idx1-ubyte.gz", "train-images-idx3-ubyte.gz"):
        (tmp_path / "fashion-mnist" / each).write_bytes(b"no images")
    monkeypatch.setenv("BAYESLOSS_DATA", str(tmp_path))
    with pytest.raises(DataError, match="^(?s:(?!Traceback).)*$"):
        fits.measure(problem="Fashion-MNIST, class 0 of ten", method="lbfgs", repeat=0)


def test_table_has_medians_beside_the_rivals():
    rows = [
        {"problem": "1,000 x 10", "method": method, "cpu_seconds": seconds, "loss": 0.5}
        for method, times in (("linkgistic", (1.0, 2.0, 9.0)), ("lbfgs", (0.5, 4.0, 4.0)))
        for seconds in times
    ]
    rows.append(
        {"problem": "Fashion-MNIST, ten classes", "method": "one against the rest"}
        | {"cpu_seconds": 3.0, "loss": 0.4}
    )
    found = fits.table(pd.DataFrame(rows).assign(beyond_mb=7.0)).set_index("problem")
    ours = found.loc["1,000 x 10"]
    assert (ours["seconds"], ours["others' seconds"], ours["ratio"]) == (2.0, 4.0, 0.5)
    alone = found.loc["Fashion-MNIST, ten classes, one by one"]
    assert alone["seconds"] == 3.0
    shown = fits.readable(found.reset_index())
    assert shown.loc[alone.name, "others' seconds"] == "not measured"


@pytest.mark.parametrize("name", fits.STORES)
def test_stored_fits(name):
    stored = load_results(RESULTS, name)
    known = pd.DataFrame(fits.cells())
    assert len(stored.merge(known)) == len(stored)
    # Repetitions differ in their times alone.
    assert (stored.groupby(["problem", "method"])[["loss", "rounds"]].nunique() == 1).all(axis=None)
