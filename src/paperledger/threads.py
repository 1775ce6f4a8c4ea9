"""A fixed number of threads, so that results are the same to the last digit."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def fixed_threads(threads: int) -> Iterator[None]:
    """Work on so many threads, in all libraries that are loaded; then on as many as before.

    Of PyTorch's own threads, and those of the MKL in it, threadpoolctl does not know.
    """
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else threads
    with threadpool_limits(limits=threads):
        try:
            if torch:
                torch.set_num_threads(threads)
            yield
        finally:
            if torch:
                torch.set_num_threads(before)
