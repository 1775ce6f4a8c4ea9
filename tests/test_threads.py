import pytest
import torch
from threadpoolctl import threadpool_info

from bayesloss.threads import fixed_threads


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_fixed_and_restored(threads):
    before = torch.get_num_threads()
    with fixed_threads(threads):
        assert torch.get_num_threads() == threads
        assert all(pool["num_threads"] == threads for pool in threadpool_info())
    assert torch.get_num_threads() == before


def test_threads_are_restored_after_an_error():
    before = torch.get_num_threads()

    def fail():
        with fixed_threads(before + 1):
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert torch.get_num_threads() == before
