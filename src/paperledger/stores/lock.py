"""One writer at a time to a store, among all processes and threads."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


def lock_of(table: Path) -> Path:
    """Return the file that is locked while somebody writes to a store."""
    return table.with_name(f".{table.name}.lock")


@contextmanager
def writing(table: Path) -> Iterator[None]:
    """Be the only one to write to a store; wait for another who is, and say so on stderr.

    The lock is the system's own, on a file beside the table: it ends with the process that holds
    it, however that ends. The file stays, for to remove it would let two in.
    """
    path = lock_of(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        print(f"{path} is held by another run: waiting for it to end", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
