"""One writer at a time to a store, among all processes and threads.

The lock is the system's own, on a file beside the table: it ends with the process that holds it,
however that ends. It is a record lock, which the children of a process do not inherit.
"""

import fcntl
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Record locks are between processes; these are between the threads of one.
_THREADS: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)


def lock_of(table: Path) -> Path:
    """Return the file that is there while somebody writes to a store."""
    return table.with_name(f".{table.name}.lock")


@contextmanager
def writing(table: Path) -> Iterator[None]:
    """Be the only one to write to a store; wait for another who is, and say so on stderr."""
    path = lock_of(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _THREADS[path.absolute()]:
        file = _locked(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(file)


def _locked(path: Path) -> int:
    """Return the file, open and locked."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                print(f"{path} is held by another run: waiting for it to end", file=sys.stderr)
                fcntl.lockf(file, fcntl.LOCK_EX)
            # Who held it before has removed the file, perhaps, and somebody made a new one.
            if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)
