"""Counted multiplications: the loops do what the library does, and count what they do."""

import torch

from bayesloss_book.beyond.sparse_means.counts import by_hand, count
from bayesloss_book.models.sparse_means import sparse_mean_targeted
from bayesloss_book.references.multiplications import problem


def test_loops_find_the_mean_of_the_library():
    model, points = problem(20, 12)
    _, (kept, mean) = by_hand(model, points, k=3, size=6)
    inputs, expected = sparse_mean_targeted(model, points, k=3, n_moves=0)
    torch.testing.assert_close(points[kept], inputs, rtol=0, atol=0)
    torch.testing.assert_close(torch.from_numpy(mean), expected, rtol=0, atol=1e-9)


def test_counts_are_those_of_the_formulas():
    """n k (k + 1) / 2 + n k + k (k + 1) for (34) before its solve; n (k'^2 + ...) for FITC."""
    n = 30
    k = 3
    m = 12
    parts = count(n, k, m)
    solve = k * (k + 1) * (k + 2) // 6 + k * (k + 1)  # a factor, and two substitutions
    assert parts["least KL"] == n * k * (k + 1) // 2 + n * k + k * k + solve
    size = 2 * k
    solve = size * (size + 1) * (size + 2) // 6 + size * (size + 1)
    # by datum: substitution, its square, a weight, weighted row, half a Gram matrix, right side
    each = size * (size + 1) // 2 + size + 1 + size + size * (size + 1) // 2 + size
    assert parts["teacher"] == n * each + size * size + solve
    assert count(2 * n, k, m)["spread"] == parts["spread"]
    assert parts["moves, at most"] == 100 * parts["fit"]
