"""One thread of torch for the tests of `bayesloss.learning`: their matrices are small."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Where other work runs, the second thread of a small QR waits and costs ten times its gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
