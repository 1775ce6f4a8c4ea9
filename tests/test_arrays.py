import numpy as np
import pytest

from bayesloss.arrays import as_scores


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, int, bool])
def test_scores_keep_the_precision_of_floats(kind):
    found = as_scores(np.array([[0], [1]], dtype=kind))
    assert found.tolist() == [0.0, 1.0]
    assert found.dtype == (kind if kind in (np.float16, np.float32) else np.float64)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1j], "expected real scores, got complex ones"),
        ([], r"expected scores of shape \(n,\), got \(0,\)"),
        ([[0.2, 0.8]], "of two classes give the second column"),
        ([1.0, np.nan], "got 1 NaN of 2"),
    ],
)
def test_what_is_no_score_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        as_scores(values)
