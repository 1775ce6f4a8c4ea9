import numpy as np
import pandas as pd
import pytest
import torch

from bayesloss.arrays import (
    as_array,
    as_scores,
    different_names,
    may_be_probabilities,
    positions,
    read_distributions,
    read_labels,
    read_probabilities,
)


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


def test_tensors_of_any_kind_are_arrays():
    """With a gradient, and in the format that NumPy lacks, whose numbers single precision has."""
    values = [0.5, -1.25]
    for tensor in (torch.tensor(values, requires_grad=True), torch.tensor(values).bfloat16()):
        assert as_array(tensor).tolist() == values
    assert as_scores(torch.tensor(values).bfloat16()).dtype == np.float32


P = np.random.default_rng(0).dirichlet([0.3] * 5, 1000)
ONE_ROW = np.where((np.arange(1000) == 7)[:, None], 1.0002, 1.0)


@pytest.mark.parametrize(
    "rounded",
    [
        P.astype(np.float16),
        P.astype(np.float16).astype(float),
        torch.tensor(P).bfloat16().float().numpy(),
        P.round(3),
        P * ONE_ROW,
        P - 1e-9 * (P < 0.01),
    ],
    ids=["float16", "was float16", "bfloat16", "three decimals", "one row", "below 0"],
)
@pytest.mark.filterwarnings("error")
def test_what_rounding_leaves_is_a_distribution(rounded):
    found = read_distributions(rounded)
    assert found.dtype == rounded.dtype
    # Half a unit of the format in each number; sums off by less than 1e-6 are left as they are.
    close = np.finfo(rounded.dtype).eps * 5 + 1e-6
    np.testing.assert_allclose(found.sum(axis=1, dtype=float), 1, atol=close)
    assert (found >= 0).all()
    np.testing.assert_allclose(found, P, atol=0.005)


def test_exact_probabilities_are_left_as_they_are():
    for exact in (P, P.astype(np.float32), np.eye(5)):
        assert read_distributions(exact) is exact


def test_what_is_in_doubt_warns_and_is_scaled():
    two_decimals = np.array([[0.33, 0.33, 0.33], [0.5, 0.25, 0.25]])
    with pytest.warns(UserWarning, match="1 of 2 rows of prob.*sum.* 0.99 in row 0: they are sca"):
        found = read_distributions(two_decimals)
    np.testing.assert_allclose(found[0], 1 / 3, rtol=1e-15)
    np.testing.assert_array_equal(found[1], two_decimals[1])
    # Errors of ten numbers cancel: they are allowed .01 together, and not the ten of each.
    with pytest.warns(UserWarning, match="1 of 1 rows of prob.*sum.* 1.015 in row 0: they are sca"):
        np.testing.assert_allclose(read_distributions(np.full((1, 10), 0.1015)), 0.1, rtol=1e-15)
    with pytest.warns(UserWarning, match=r"1 of 3 probabilities .* such as 1.004: they count"):
        found = read_probabilities(np.array([0.5, 1.004, 1.001]))
    assert found.tolist() == [0.5, 1.0, 1.0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0.5, 0.5], [0.5, 0.6]], "sum to 1, got a sum of 1.1 in row 1, see$"),
        ([[0.5, 0.5], [0.0, 0.0]], "sum to 1, got a sum of 0 in row 1, see$"),
        ([[0.5, 0.5], [1.1, -0.1]], r"in \[0, 1\], got 1.1 in row 1, see$"),
        ([[0.5, 0.5], [np.nan, 0.5]], r"in \[0, 1\], got nan in row 1, see$"),
    ],
)
def test_what_is_no_distribution_is_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        read_distributions(np.array(rows), ", see")


def test_small_numbers_about_zero_are_no_probabilities():
    """Scores in small units leave [0, 1] by little, but not beside their range."""
    assert may_be_probabilities(-1e-9, 0.003)
    assert may_be_probabilities(0.3, 0.3)
    assert not may_be_probabilities(-1e-3, 1e-3)
    assert not may_be_probabilities(-np.inf, 1.0)


@pytest.mark.parametrize(
    "y",
    [
        [1.0, 0.0, np.nan],
        np.array(["a", "b", None], dtype=object),
        pd.Series([1, 0, pd.NA], dtype="Int64"),
        pd.Series(["a", "b", pd.NA], dtype="string"),
        pd.Series(["a", "b", None], dtype="category"),
        np.array(["2026-01-01", "2026-01-02", "NaT"], dtype="datetime64[D]"),
    ],
    ids=["NaN", "None", "Int64", "string", "category", "dates"],
)
def test_labels_that_are_missing_are_refused(y):
    with pytest.raises(ValueError, match="labels without missing values, got 1 of 3 .* in row 2"):
        read_labels(y)


@pytest.mark.parametrize("form", [list, np.array, torch.tensor, pd.Series, pd.Categorical])
def test_labels_come_in_many_forms(form):
    np.testing.assert_array_equal(read_labels(form([1, 0, 1])), [1, 0, 1])


def test_names_are_different_and_cannot_be_written_to():
    names = different_names(["b", "a"], 2, "classes")
    assert not names.flags.writeable
    with pytest.raises(ValueError, match="expected 2 different classes, got \\['a', 'a'\\]"):
        different_names(["a", "a"], 2, "classes")
    with pytest.raises(ValueError, match="expected 3 different classes"):
        different_names(["b", "a"], 3, "classes")


def test_positions_are_those_of_the_names():
    names = np.array(["b", "c", "a"])
    assert positions(names, np.array(["a", "c", "a", "b"]), "labels").tolist() == [2, 1, 2, 0]
    with pytest.raises(
        ValueError, match=r"expected labels among \['b', 'c', 'a'\], got 'd' in row 1"
    ):
        positions(names, np.array(["a", "d"]), "labels")
