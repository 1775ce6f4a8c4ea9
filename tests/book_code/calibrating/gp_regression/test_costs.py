import numpy as np
import pytest

from bayesloss_book.calibrating.gp_regression import costs


def test_loops_solve_and_count():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    matrix, right = root @ root.T + np.eye(6), rng.normal(size=6)
    solution, steps = costs.solve_by_hand(matrix.tolist(), right.tolist())
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, right), rtol=1e-10)
    # The sum of j + 1 over the lower half, and twice n (n + 1) / 2 for the triangles.
    assert steps == 6 * 7 * 8 // 6 + 6 * 7


def test_counts_have_the_orders_of_the_appendix():
    one, two = costs.count_multiplications(40, 6), costs.count_multiplications(80, 6)
    assert one["exact mean"] == 40 * 41 * 42 // 6 + 40 * 41
    # Linear in N, to the operation: each datum costs k (k + 1) / 2 + k.
    assert two["sparse KL"] - one["sparse KL"] == 40 * (6 * 7 // 2 + 6)


@pytest.mark.parametrize("method", costs.SIZES)
def test_each_method_finds_the_function(method):
    found = costs.measure(method=method, n=300, repeat=0, k=15, k_larger=60, rtol=1e-3)
    assert found["error"] < 0.02  # half the noise variance
    assert (found["n_iter"] > 0) == ("conjugate" in method)
