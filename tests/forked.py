"""Processes beside the tests' own, at once: a fork has imported already what takes seconds."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FORK = multiprocessing.get_context("fork")


class Forked:
    """A process that works in a folder, alone: with no workers of its own.

    What it says goes to files, as `sys.exit` would leave it: a result is printed.
    """

    _count = 0

    def __init__(self, work: Callable[..., Any], folder: Path, *given: Any) -> None:
        Forked._count += 1
        self._said = [folder / f"said.{Forked._count}.{name}" for name in ("out", "err")]
        for file in self._said:
            file.touch()
        self.process = _FORK.Process(target=self._run, args=(work, folder, given), daemon=True)
        self.process.start()

    def _run(self, work: Callable[..., Any], folder: Path, given: tuple[Any, ...]) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # else ignored in the background
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(300)  # who outlives a test holds the pipes of a browser, which then never ends
        os.chdir(folder)
        sys.stdout, sys.stderr = (file.open("w", buffering=1) for file in self._said)
        print(work(*given))

    @property
    def out(self) -> str:
        return self._said[0].read_text()

    @property
    def err(self) -> str:
        return self._said[1].read_text()

    def wait_for(self, condition: Callable[[], Any]) -> None:
        """Wait until something is so, as long as the process runs."""
        deadline = time.monotonic() + 60  # a fork begins at once; only what hangs takes longer
        while not condition():
            assert time.monotonic() < deadline and self.process.is_alive(), self.err
            time.sleep(0.01)

    def end(self) -> tuple[int | None, str]:
        """Wait for the end: the status, and what was printed."""
        self.process.join(300)
        return self.process.exitcode, self.out
