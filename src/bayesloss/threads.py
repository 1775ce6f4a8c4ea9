"""A fixed number of threads: fast for small matrices, and repeatable to the last digit."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def fixed_threads(threads: int) -> Iterator[None]:
    """Give BLAS, OpenMP and torch this many threads, and restore theirs after."""
    before = torch.get_num_threads()
    try:
        with threadpool_limits(limits=threads):
            torch.set_num_threads(threads)  # for the MKL in it, which threadpoolctl cannot see
            yield
    finally:
        torch.set_num_threads(before)
