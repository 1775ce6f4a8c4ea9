from subprocess import CompletedProcess
from traceback import format_exception

import numpy as np
import pytest
from scipy.sparse.linalg import norm

from bayesloss_book.data.data_sets import DataError
from bayesloss_book.learning.em_cost import fits


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
    assert found["data_mb"] == np.empty((1_000, 10)).nbytes / 2**20
    assert found["converged"]
    # With ten weights of 2 / 10^1/2 the labels' own noise leaves 0.45 or so; guessing, log 2.
    assert 0.3 < found["loss"] < 0.6
    assert found["cpu_seconds"] > 0
    assert found["beyond_mb"] < found["peak_mb"]


@pytest.mark.parametrize(
    ("raised", "seen", "said"),
    [
        (DataError("no images"), DataError, "^no images$"),
        (ValueError("got 'best'"), RuntimeError, "(?s)^1,000 x 10, best: .*got 'best'"),
    ],
)
def test_data_that_cannot_be_had_are_told_from_fits_that_fail(monkeypatch, raised, seen, said):
    """By what is raised in the process of the fit, of which the traceback is all there is."""
    trace = "Traceback (most recent call last):\n" + "".join(format_exception(raised))
    ended = CompletedProcess([], 1, stdout="", stderr=trace)
    monkeypatch.setattr(fits.subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(seen, match=said):
        fits.measure(problem="1,000 x 10", method="best", repeat=0)
