"""Tests of which rows are held out together."""

from itertools import combinations

import numpy as np
import pytest
from scipy.special import expit

from bayesloss.learning.data.folds import (
    MANY_FOLDS,
    NEVER,
    ONE_BY_ONE,
    agreement,
    content_folds,
    group_folds,
    no_folds,
)
from bayesloss.learning.data.inputs import equal_rows


def drawn(n, d=3, seed=0, levels=None):
    """Rows, classes, and the probabilities of a model that is right about them."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d))
    if levels is not None:
        X = generator.integers(0, levels, (n, d)) / 3
    p = expit(1.7 * X[:, 0] - 0.4)
    classes = (generator.random(n) < p).astype(np.int64)
    return X, classes, np.stack([1 - p, p], axis=1)


def folds_of(X, classes, p, weight=None, groups=None):
    weight = np.ones(len(X)) if weight is None else weight
    if groups is not None:
        return group_folds(groups, classes, weight)
    return content_folds(equal_rows(X), classes, weight, p)


@pytest.mark.parametrize("n", [150, 900])
def test_the_order_of_rows_does_not_matter(n):
    X, classes, p = drawn(n)
    order = np.random.default_rng(1).permutation(n)
    found = folds_of(X, classes, p)
    again = folds_of(X[order], classes[order], p[order])
    assert (found.fold[found.rows.argsort()][order] == again.fold[again.rows.argsort()]).all()


def test_each_fold_has_its_share_of_every_class():
    X, classes, p = drawn(903)
    found = folds_of(X, classes, p)
    assert found.n_folds == MANY_FOLDS
    counts = np.array([np.bincount(classes[found.fold == k], minlength=2) for k in range(10)])
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()


def test_each_fold_has_its_share_of_easy_and_hard_rows():
    X, classes, p = drawn(2000)
    found = folds_of(X, classes, p)
    means = [p[found.fold == k, 1].mean() for k in range(MANY_FOLDS)]
    # Of folds drawn at random the means differ by sd(p) / sqrt(200), about 0.02.
    assert np.std(means) < 0.002


@pytest.mark.parametrize(("n", "one_by_one"), [(ONE_BY_ONE, True), (ONE_BY_ONE + 1, False)])
def test_few_rows_are_held_out_one_by_one(n, one_by_one):
    found = folds_of(*drawn(n))
    assert found.n_folds == (n if one_by_one else MANY_FOLDS)
    assert (np.bincount(found.fold).max() == 1) == one_by_one


def test_copies_are_one_part_and_count_once():
    X, classes, p = drawn(300)
    thrice = [np.repeat(values, 3, axis=0) for values in (X, classes, p)]
    found = folds_of(*thrice)
    assert len(found.rows) == 300
    assert (found.weight == 3).all()
    assert found.power == pytest.approx(1 / 3)


def test_weights_are_copies():
    X, classes, p = drawn(300, levels=4)
    times = np.random.default_rng(2).integers(1, 4, 300)
    repeated = folds_of(*(np.repeat(values, times, axis=0) for values in (X, classes, p)))
    weighted = folds_of(X, classes, p, weight=times.astype(float))
    assert repeated.power == pytest.approx(weighted.power)
    np.testing.assert_array_equal(repeated.fold, weighted.fold)
    np.testing.assert_allclose(repeated.weight, weighted.weight)
    np.testing.assert_array_equal(np.repeat(X, times, axis=0)[repeated.rows], X[weighted.rows])


def test_rows_equal_by_nature_lie_in_all_folds():
    X, classes, p = drawn(3000, d=1, levels=5)
    found = folds_of(X, classes, p)
    assert found.power > 0.9
    for kind in np.unique(X):
        for label in (0, 1):
            those = (X[found.rows, 0] == kind) & (classes[found.rows] == label)
            assert sorted(found.fold[those]) == list(range(MANY_FOLDS))
            assert np.ptp(found.weight[those]) < 1e-12
    assert found.weight.sum() == pytest.approx(3000)


@pytest.mark.parametrize("n_groups", [40, 700])
def test_groups_stay_whole_and_classes_are_spread(n_groups):
    X, classes, p = drawn(2100)
    groups = np.random.default_rng(3).integers(0, n_groups, 2100)
    groups = np.unique(groups, return_inverse=True)[1]
    found = folds_of(X, classes, p, groups=groups)
    for group in range(groups.max() + 1):
        assert len(set(found.fold[groups == group])) == 1
    if n_groups > ONE_BY_ONE:
        counts = np.array([np.bincount(classes[found.fold == k], minlength=2) for k in range(10)])
        assert (counts.max(axis=0) - counts.min(axis=0) <= 6).all()  # two groups of three rows


@pytest.mark.parametrize("seed", range(5))
def test_a_rare_class_is_spread_as_evenly_as_a_frequent_one(seed):
    """In 37 groups of 300, one row each: no fold has two more than another."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(20, 60, 300)
    groups = np.repeat(np.arange(300), sizes)
    classes = np.zeros(len(groups), dtype=np.int64)
    first = sizes.cumsum() - sizes
    classes[first[generator.choice(300, 37, replace=False)]] = 1
    found = group_folds(groups, classes, np.ones(len(groups)))
    assert np.ptp(np.bincount(found.fold[classes == 1], minlength=MANY_FOLDS)) <= 1


def test_the_only_row_of_a_class_is_never_held_out():
    X, classes, p = drawn(300)
    classes[:] = 0
    classes[7] = 1
    found = folds_of(X, classes, p)
    assert found.fold[found.rows == 7] == [NEVER]
    assert (found.fold[found.rows != 7] != NEVER).all()
    groups = np.arange(300) // 3
    classes[6:9] = 1  # one group
    found = folds_of(X, classes, p, groups=groups)
    assert (found.fold[6:9] == NEVER).all()


def test_nothing_held_out():
    found = no_folds(np.ones(5))
    assert found.n_folds == 0
    assert (found.fold == NEVER).all()


def agreement_by_pairs(kinds, classes, p, strength=10.0):
    """Over all pairs of rows, with the mixed rates of each kind."""
    differ = 0.0
    expected = 0.0
    for i, j in combinations(range(len(kinds)), 2):
        if kinds[i] != kinds[j]:
            continue
        same = kinds == kinds[i]
        shares = np.array([(classes[same] == k).mean() for k in range(p.shape[1])])
        rate = (same.sum() * shares + strength * p[same].mean(axis=0)) / (same.sum() + strength)
        differ += classes[i] != classes[j]
        expected += 1 - np.square(rate).sum()
    return 1 - differ / expected


@pytest.mark.parametrize("n_classes", [2, 3])
def test_agreement_is_that_of_all_pairs(n_classes):
    generator = np.random.default_rng(4)
    kinds = np.unique(np.repeat(generator.integers(0, 30, 80), 2), return_inverse=True)[1]
    p = generator.dirichlet(np.ones(n_classes), 30)[kinds]
    classes = (generator.random(160)[:, None] > p.cumsum(axis=1)).sum(axis=1)
    classes[1::2] = classes[::2]  # each row twice
    classes[:20] = generator.permutation(classes[:20])
    expected = agreement_by_pairs(kinds, classes, p)
    assert 0.05 < expected < 0.95
    assert agreement(kinds, classes, np.ones(160), p) == pytest.approx(expected, rel=1e-12)


def test_copies_merged_into_one_row_that_weighs_as_much_are_the_same_data():
    generator = np.random.default_rng(4)
    kinds = np.unique(generator.integers(0, 30, 80), return_inverse=True)[1]
    p = generator.dirichlet(np.ones(3), 30)[kinds]
    classes = (generator.random(80)[:, None] > p.cumsum(axis=1)).sum(axis=1)
    merged = agreement(kinds, classes, np.full(80, 3.0), p)
    arrays = [np.repeat(values, 3, axis=0) for values in (kinds, classes, np.ones(80), p)]
    assert 0.05 < merged < 0.95
    assert agreement(*arrays) == pytest.approx(merged, abs=1e-12)


def test_rows_that_never_differ_are_copies():
    kinds = np.repeat(np.arange(50), 3)
    classes = np.repeat(np.arange(50) % 2, 3)
    assert agreement(kinds, classes, np.ones(150), np.full((150, 2), 0.5)) == 1


@pytest.mark.parametrize(("times", "rho"), [(1, 0.0), (3, 12 / 66)])
def test_agreement_tells_copies_from_nature(times, rho):
    """Four rows of a kind by nature, each so many times: of 66 pairs of twelve 12 are copies."""
    generator = np.random.default_rng(5)
    found = []
    for _ in range(40):
        kinds = np.repeat(np.arange(60), 4)
        p = generator.uniform(0.2, 0.8, 60)[kinds]
        classes = (generator.random(240) < p).astype(int)
        arrays = [np.repeat(values, times) for values in (kinds, classes)]
        chances = np.repeat(np.stack([1 - p, p], axis=1), times, axis=0)
        found.append(agreement(*arrays, np.ones(240 * times), chances))
    assert np.mean(found) == pytest.approx(rho, abs=0.08)


@pytest.mark.parametrize("n", [150, 900])
def test_fewer_folds_are_unions_of_these_and_as_balanced(n):
    X, classes, p = drawn(n)
    classes[0] = 7  # the only one of its class
    p = np.pad(p, ((0, 0), (0, 6)))
    found = folds_of(X, classes, p)
    few = found.in_fewer(5)
    assert few.n_folds == 5
    assert (few.fold[found.fold == NEVER] == NEVER).all()
    assert (found.fold == NEVER).sum() == 1
    for fold in range(found.n_folds):
        assert len(np.unique(few.fold[found.fold == fold])) <= 1
    counts = np.bincount(few.fold[few.fold != NEVER])
    assert counts.max() - counts.min() <= 2


def test_rows_that_are_not_spread_tell_a_curve_of_their_probabilities():
    """Wiggles fitted to labels that have none gain nothing on independent folds.

    Spread by the probabilities, each fold has the accidents of the others, and gains are promised.
    """
    promised = {True: [], False: []}
    for seed in range(40):
        generator = np.random.default_rng(seed)
        p = generator.uniform(0.2, 0.8, 300)
        classes = (generator.random(300) < p).astype(np.int64)
        place = (40 * p).astype(int)
        for spread, losses in promised.items():
            kinds = equal_rows(p[:, None])
            both = np.stack([1 - p, p], axis=1)
            found = content_folds(kinds, classes, np.ones(300), both, spread=spread)
            gain = 0.0
            for k in range(MANY_FOLDS):
                out = found.fold == k
                # Shares of labels in cells of p, with four cases of the truth's.
                n = np.bincount(place[~out], minlength=40)
                hits = np.bincount(place[~out], classes[~out], minlength=40)
                q = (hits[place[out]] + 4 * p[out]) / (n[place[out]] + 4)
                own, true = (np.where(classes[out] == 1, v, 1 - v) for v in (q, p[out]))
                gain += np.log(own / true).sum()
            losses.append(gain)
    # Twenty-four cells of 12 cases: what they learn of chance costs about ten nats.
    error = np.std(promised[False]) / np.sqrt(40)
    assert np.mean(promised[False]) < -5 * error
    assert np.mean(promised[True]) > np.mean(promised[False]) + 5 * error
