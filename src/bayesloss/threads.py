"""How many threads numerical libraries get: one for small matrices, the user's for large ones.

Small matrices on several threads wait for each other, beside other work ten times as long as they
compute. So what is public works on one thread (:func:`one_thread`), whatever the environment says,
and within it large products on as many as the user has (:func:`threads_for`, :func:`in_parts`).

The limits of PyTorch and OpenMP are each Python thread's own, but those of a BLAS the process's.
Where several Python threads work here at once, it has the smallest number that one of them asks
for; the first saves what the BLAS had, and the last restores it. A Python thread that meets PyTorch
meanwhile inherits a limit from the others, so what the first had in PyTorch is restored in each.

OpenMP's threads do not survive a fork, and a child that needs them waits for ever. So in a forked
child PyTorch has one thread. :mod:`bayesloss` imports this module, which does not import PyTorch.
"""

import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

P = TypeVar("P")
T = TypeVar("T")
_TORCH = "torch"

# Beside four busy processes on two cores, two threads took so many times as long as one: for m x m
# matrices 77, 2.0, 1.2, 1.1 and 1.0 times at m = 256, 426, 700, 1024 and 1500; for a matrix of
# 2^22 to 2^24 numbers times a vector 9, 0.9 and 0.9 times. Cholesky factors and triangular solves
# are like products. Eigenvectors and inverses took 17 times as long at m = 1024 and still 5 to 16
# times at 2048: they stay on one thread.
_MULTIPLICATIONS = 2**30  # m = 1024; 60 milliseconds on one thread
_NUMBERS = 2**23  # in the largest matrix; 3 milliseconds, as the memory is fast


@dataclass(frozen=True)
class _PyTorch:
    """PyTorch and the MKL in it, which threadpoolctl cannot see, like a library that it can."""

    torch: Any
    filepath: str = _TORCH
    user_api: str = "torch"

    @property
    def num_threads(self) -> int:
        return int(self.torch.get_num_threads())

    def set_num_threads(self, num_threads: int) -> None:
        self.torch.get_num_threads()  # a new Python thread inherits a limit when it first asks
        self.torch.set_num_threads(num_threads)


@dataclass(frozen=True)
class _Found:
    """The threads that a library had before."""

    library: Any
    threads: int


class _Here(threading.local):
    """What is known of this Python thread alone."""

    def __init__(self) -> None:
        self.n_modules = 0  # that were imported when limits were last set
        self.found: dict[str, _Found] = {}  # of OpenMP, by path, while it works here


_here = _Here()
_lock = threading.RLock()  # of both below
_found: dict[str, _Found] = {}  # of the others, by path, while any Python thread works here
_asked: dict[int, int | None] = {}  # by Python thread; None for those found


@contextmanager
def one_thread() -> Iterator[None]:
    """Work on one thread, except for large products; a decorator, too."""
    with _limited(1):
        yield


def threads_for(rows: int, inner: int, columns: int) -> AbstractContextManager[None]:
    """The user's threads for (rows, inner) times (inner, columns) if that is large."""
    return _limited(None) if _is_large(rows, inner, columns) else nullcontext()


def in_parts(
    work: Callable[[P], T], parts: Iterable[P], rows: int, inner: int, columns: int
) -> list[T]:
    """The work on each part of such a product, shared out over the user's threads if it is large.

    Each part has one thread, so that none waits for another, and the results are the same.
    """
    workers = 1
    if _is_large(rows, inner, columns):
        workers = _found[_TORCH].threads
    if workers == 1:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one_thread()(work), parts))


def _is_large(rows: int, inner: int, columns: int) -> bool:
    """Whether a product is large, and threads were taken away that can be given back."""
    if threading.get_ident() not in _asked:
        return False
    largest = max(rows * inner, inner * columns, rows * columns)
    return largest >= _NUMBERS or rows * inner * columns >= _MULTIPLICATIONS


def on_one_thread(cls: type[T]) -> type[T]:
    """Decorate a class: its public methods work as :func:`one_thread` says."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, one_thread()(method))
    return cls


@contextmanager
def _limited(threads: int | None) -> Iterator[None]:
    """Within, so many threads are what this Python thread asks for; None for those found."""
    me = threading.get_ident()
    outermost = me not in _asked
    before = _asked.get(me)
    if not outermost and (before, _here.n_modules) == (threads, len(sys.modules)):
        yield
        return
    _here.n_modules = len(sys.modules)
    with _lock:
        _remember()
        _asked[me] = threads
        _apply()
    try:
        yield
    finally:
        with _lock:
            _asked[me] = before
            if outermost:
                del _asked[me]
            _apply()


def _remember() -> None:
    """Save the threads of libraries that are new."""
    for path, library in _libraries(len(sys.modules)).items():
        found = _here.found if library.user_api == "openmp" else _found
        if path not in found and library.num_threads is not None:
            found[path] = _Found(library, library.num_threads)


@lru_cache(maxsize=1)
def _libraries(n_modules: int) -> dict[str, Any]:
    """The libraries by path, looked for again once more modules are imported: that takes 9 ms."""
    from threadpoolctl import ThreadpoolController

    libraries: dict[str, Any] = {
        each.filepath: each for each in ThreadpoolController().lib_controllers
    }
    if "torch" in sys.modules:
        torch = _PyTorch(sys.modules["torch"])
        libraries[_TORCH] = torch
    return libraries


def _apply() -> None:
    """Set what this Python thread asks for and, in a BLAS, the least that any asks for."""
    me = threading.get_ident()
    least = min((each for each in _asked.values() if each is not None), default=None)
    for found in (*_here.found.values(), *_found.values()):
        threads = least if found.library.user_api == "blas" else _asked.get(me)
        found.library.set_num_threads(found.threads if threads is None else threads)
        if hasattr(found.library, "clear_controlling_thread"):
            found.library.clear_controlling_thread()  # or no other Python thread may set it
    if me not in _asked:
        _here.found.clear()
    if not _asked:
        _found.clear()


def _after_fork() -> None:
    """Forget the Python threads that did not come along, and leave PyTorch one thread."""
    for other in _asked.keys() - {threading.get_ident()}:
        del _asked[other]
    if "torch" in sys.modules:
        torch = _PyTorch(sys.modules["torch"])
        _found[_TORCH] = _Found(torch, 1)
    _apply()
    _lock.release()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork
    )
