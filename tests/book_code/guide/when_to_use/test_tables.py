"""The tables of the comparison: finite, without what gives the label away, with the truth told."""

import math

import numpy as np
import pytest

from bayesloss_book.guide.when_to_use import tables


@pytest.mark.parametrize("data", tables.CLASSIFICATION)
def test_no_column_says_the_label(data):
    found = tables.labels(data, 0)
    assert np.isfinite(found.X).all() and np.isfinite(found.X_test).all()
    assert len(np.unique(found.y)) == found.truth.shape[1] >= 2
    assert found.truth.sum(axis=1) == pytest.approx(1)
    for column in found.X.T:
        seen = {}
        for value, label in zip(column, found.y, strict=True):
            seen.setdefault(value, set()).add(label)
        if len(seen) < len(found.y) / 10:  # else values hardly repeat
            assert max(map(len, seen.values())) > 1


@pytest.mark.parametrize("data", tables.REGRESSION)
def test_the_target_rises_or_falls(data):
    found = tables.values(data, 0)
    assert found.X.shape[1] == 1 and np.isfinite(found.X).all()
    assert 20 <= len(found.X) <= 300
    assert abs(np.corrcoef(found.X[:, 0].argsort().argsort(), found.y)[0, 1]) > 0.3


@pytest.mark.parametrize("link", tables.LINKS)
@pytest.mark.parametrize("inputs", ["normal", "log-normal"])
def test_simulated_labels_have_their_probabilities(link, inputs):
    found = tables.labels(f"{link}, {inputs}, 20000x3", 5)
    p = found.truth[:, 1]  # of other cases than the labels', from the same distribution
    error = math.sqrt(p.mean() * (1 - p.mean()) / 20_000 + p.var() / 5_000)
    assert abs(found.y.mean() - p.mean()) < 4 * error


@pytest.mark.parametrize("curve", tables.CURVES)
def test_simulated_targets_scatter_about_a_rising_curve(curve):
    found = tables.values(f"{curve}, 300", 1)
    assert (np.diff(found.curve[found.X_test[:, 0].argsort()]) >= 0).all()
    noise = found.truth - found.curve
    assert abs(noise.mean()) < 4 * noise.std() / math.sqrt(len(noise))


def test_splits_are_the_seed_s():
    one, same, other = (tables.labels("iris", seed) for seed in (1, 1, 2))
    assert np.array_equal(one.X, same.X) and not np.array_equal(one.X, other.X)
