"""Tests of which rows are equal, against brute force over pairs of rows."""

import numpy as np
import pytest

from bayesloss.learning.data import inputs as copies
from bayesloss.learning.data.inputs import equal_rows, merge_duplicates


@pytest.mark.parametrize("d", [1, 3, 400])
def test_equal_rows_are_found(d, monkeypatch):
    monkeypatch.setattr(copies, "_CELLS", 100)  # many blocks
    generator = np.random.default_rng(0)
    rows = generator.integers(-1, 2, (60, d)) * 0.1
    rows = rows[generator.integers(0, 60, 200)]
    rows[rows == 0] *= generator.choice([-1, 1], (rows == 0).sum())  # some zeros are -0
    same = (rows[:, None] == rows[None]).all(2)
    codes = equal_rows(rows)
    assert ((codes[:, None] == codes[None]) == same).all()


def test_rows_of_one_hash_are_told_apart(monkeypatch):
    monkeypatch.setattr(np, "array_split", lambda rows, parts: [0 * rows])  # one hash for all
    rows = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 2.0]])
    codes = equal_rows(rows)
    assert codes[0] == codes[2] != codes[1]


def test_merged_rows():
    generator = np.random.default_rng(0)
    rows = generator.integers(0, 3, (40, 2)) / 3
    labels = generator.integers(0, 2, 40)
    weight = generator.random(40)
    kept, total = merge_duplicates(rows, weight, labels)
    keys = [(*row, label) for row, label in zip(rows, labels, strict=True)]
    assert len({keys[i] for i in kept}) == len(kept) == len(set(keys))
    for i, w in zip(kept, total, strict=True):
        assert w == pytest.approx(sum(weight[j] for j in range(40) if keys[j] == keys[i]))
    # In another order, the same to the last bit.
    order = generator.permutation(40)
    again, _ = merge_duplicates(rows[order], weight[order], labels[order])
    assert [keys[j] for j in order[again]] == [keys[i] for i in kept]


def test_without_copies_all_stays_as_it_is():
    kept, weight = merge_duplicates(np.array([[2.0], [1.0], [3.0]]), np.array([0.5, 1.0, 1.0]))
    assert kept.tolist() == [0, 1, 2]
    assert weight.tolist() == [0.5, 1, 1]
