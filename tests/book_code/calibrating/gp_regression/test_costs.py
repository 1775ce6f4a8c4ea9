import pytest

from bayesloss_book.calibrating.gp_regression import costs


def test_counts_have_the_orders_of_the_appendix():
    # The sum of j + 1 over the lower half, and twice n (n + 1) / 2 for the triangles.
    one = costs.count_multiplications(40, 6)
    two = costs.count_multiplications(80, 6)
    assert one["exact mean"] == 40 * 41 * 42 // 6 + 40 * 41
    # Linear in N, to the operation: each datum costs k (k + 1) / 2 + k.
    assert two["sparse KL"] - one["sparse KL"] == 40 * (6 * 7 // 2 + 6)


@pytest.mark.parametrize("method", costs.SIZES)
def test_each_method_finds_the_function(method):
    found = costs.measure(method=method, n=300, repeat=0, k=15, k_larger=60, rtol=1e-3)
    assert found["error"] < 0.02  # half the noise variance
    assert (found["n_iter"] > 0) == ("conjugate" in method)
