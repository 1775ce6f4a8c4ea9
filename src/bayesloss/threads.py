"""Fix the number of threads of a piece of work."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def fixed_threads(threads: int) -> Iterator[None]:
    """Give BLAS, OpenMP and torch this number of threads, and restore theirs afterwards.

    The numbers are the process's. Where two pieces of work overlap, in threads of one process, the
    one that began later finds the numbers of the other, and restores those.

    Parameters
    ----------
    threads : int
        One is best for small matrices, where a second thread costs more than it brings. A fixed
        number makes the last digits of a result the same whatever else the machine does.
    """
    before = torch.get_num_threads()
    try:
        with threadpool_limits(limits=threads):
            torch.set_num_threads(threads)  # for the MKL in it, which threadpoolctl cannot see
            yield
    finally:
        torch.set_num_threads(before)
