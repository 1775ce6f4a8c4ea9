import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from paperledger.threads import fixed_threads


def limits():
    """The threads of PyTorch, OpenMP and BLAS."""
    return {torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())}


@pytest.fixture
def three():
    """The user has three threads, whatever the machine and its environment have."""
    before = torch.get_num_threads()
    with threadpool_limits(limits=3):
        torch.set_num_threads(3)
        yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("number", [1, 2])
def test_threads_are_fixed_and_restored(number, three):
    with fixed_threads(number):
        assert limits() == {number}
    assert limits() == {3}


def test_threads_are_restored_after_an_error(three):
    with pytest.raises(RuntimeError, match="on purpose"), fixed_threads(2):
        raise RuntimeError("on purpose")
    assert limits() == {3}
