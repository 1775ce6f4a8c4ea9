"""What a new length scale costs: the trigonometric kernel and the Nyström basis, in seconds."""

import pytest

from bayesloss_book.learning.nystrom import new_smoothness


@pytest.mark.parametrize("name", new_smoothness(2, 2))
@pytest.mark.parametrize("n_data", [400, 2000])
def test_new_smoothness(benchmark, name, n_data):
    benchmark(new_smoothness(n_data, 32)[name])
