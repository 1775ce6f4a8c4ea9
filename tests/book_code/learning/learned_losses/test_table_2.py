"""Table 2's experiment: problems, AUC and its standard error, each by another route."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from bayesloss_book.learning.learned_losses import table_2


def delong(first, second, truth):
    """Variance of AUC(first) - AUC(second), from the placements of DeLong et al. (1988)."""

    def placements(score):
        wins = (np.sign(score[truth][:, None] - score[~truth][None]) + 1) / 2
        return wins.mean(axis=1), wins.mean(axis=0)

    (one, zero), (one_2, zero_2) = placements(first), placements(second)
    return (
        np.var(one - one_2, ddof=1) / truth.sum() + np.var(zero - zero_2, ddof=1) / (~truth).sum()
    )


def stored_row(score, truth):
    """A row as `measure` stores it, from scores."""
    block = np.arange(len(score)) % table_2.BLOCKS
    row = {"auc": table_2.mean_auc(score[:, None], truth[:, None])}
    for b in range(table_2.BLOCKS):
        kept = block != b
        row[f"without_{b:02d}"] = table_2.mean_auc(score[kept, None], truth[kept, None])
    return pd.Series(row)


def test_the_standard_error_is_delongs():
    """Ratio of variances over 40 data sets: the jackknife's has a relative error of 1/3 in each."""
    ratios = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        truth = rng.random(1000) < 0.3
        first = rng.normal(size=1000) + 1.5 * truth
        second = first + 0.7 * rng.normal(size=1000)
        rows = stored_row(first, truth), stored_row(second, truth)
        alone = table_2.jackknife(rows[0])[1] ** 2 / delong(first, 0 * first, truth)
        gap, error = table_2.jackknife(*rows)
        assert gap == pytest.approx(rows[0]["auc"] - rows[1]["auc"])
        ratios.append([alone, error**2 / delong(first, second, truth)])
    # Standard error of each mean: 1/3 / sqrt(40) = 0.05. Without pairing the second would be ~ 3.
    assert np.abs(np.mean(ratios, axis=0) - 1).max() < 0.2


def test_auc_counts_pairs():
    rng = np.random.default_rng(0)
    odds = rng.integers(-2, 3, size=(60, 2)).astype(float)
    odds[:3] = np.inf, -np.inf
    odds[3:6] = -np.inf
    truth = rng.random((60, 2)) < 0.4
    means = []
    for o, t in zip(odds.T, truth.T, strict=True):
        means.append(np.mean([(p > n) + (p == n) / 2 for p, n in product(o[t], o[~t])]))
    assert table_2.mean_auc(odds, truth) == pytest.approx(np.mean(means), abs=1e-12)


def test_problems():
    labels = np.array([0, 8, 3, 0, 5, 8])
    keep, truth = table_2.problems("0 vs 8", labels)
    assert keep.tolist() == [True, True, False, True, False, True]
    assert truth.tolist() == [[True], [False], [True], [False]]
    keep, truth = table_2.problems("odd vs even", labels)
    assert keep.all() and truth[:, 0].tolist() == [False, False, True, False, True, False]
    keep, truth = table_2.problems("0 vs rest", labels)
    assert keep.all() and truth[:, 0].tolist() == [True, False, False, True, False, False]
    _, truth = table_2.problems("each vs rest", labels)
    assert truth.shape == (6, 10) and (truth.argmax(axis=1) == labels).all()
    with pytest.raises(ValueError, match="got '3 vs 5'"):
        table_2.problems("3 vs 5", labels)


def test_another_unit_is_another_penalty():
    """(x - m) / s with the penalty r is x with r s^2; no penalty, no difference."""
    X = table_2.problem_data("digits", "odd vs even", 0)[0]
    unit = float(np.mean([np.sqrt(np.mean((x - x.mean()) ** 2)) for x in X.T]))
    (cell,) = table_2.cells("digits", "odd vs even", ("logistic",), budget="long")
    scaled = table_2.measure(**cell, scaling="mean deviation")
    # The searches end within their tolerance of one maximum, here to some six digits.
    same = table_2.measure(**cell | {"penalty": unit**2})
    assert scaled["log_loss"] == pytest.approx(same["log_loss"], rel=1e-4)
    assert abs(table_2.measure(**cell)["log_loss"] / same["log_loss"] - 1) > 1e-2
    with pytest.raises(ValueError, match="got 'inches'"):
        table_2.measure(**cell, scaling="inches")


def test_the_unit_is_that_of_the_images_of_the_task():
    X, _, _, X_test, _ = table_2.problem_data("digits", "0 vs 8", 0, "mean deviation")
    assert np.abs(X.mean(axis=0)).max() < 1e-12
    assert X.std(axis=0).mean() == pytest.approx(1)
    raw, _, _, raw_test, _ = table_2.problem_data("digits", "0 vs 8", 0)
    moved = X_test.std(axis=0).sum() / raw_test.std(axis=0).sum()
    assert moved == pytest.approx(X.std(axis=0).sum() / raw.std(axis=0).sum())


def test_a_monotone_link_does_not_change_the_order():
    (cell,) = table_2.cells("digits", "odd vs even", ("ISGP",), budget="short")
    found = table_2.measure(**cell)
    assert found["auc"] == pytest.approx(found["auc_score"], abs=1e-12)


def test_ten_problems_are_the_mean_of_ten():
    (cell,) = table_2.cells("digits", "each vs rest", ("logistic",))
    whole = table_2.measure(**cell)["auc"]
    alone = table_2.measure(**cell | {"task": "0 vs rest"})["auc"]
    assert alone > whole > 0.98  # 0 is an easy digit
    with pytest.raises(ValueError, match="one problem for GLMTron"):
        table_2.measure(**cell | {"method": "GLMTron"})
