"""Every part of `make test`, one after the other, also after one has failed; then one summary.

    python tools/test_all.py [PART ...]   all of them if none is named

What the parts say is passed on as they say it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["PARTS", "Outcome", "main", "run", "summary"]

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-n", "2", "--benchmark-disable"]

# Part, and its command. Tests that wait for each other's worker are handed over: the browser's lie
# side by side. `loadfile` keeps the cells of one notebook with one kernel.
PARTS = {
    "rules": [sys.executable, "-m", "ruff", "check", "."],
    "format": [sys.executable, "-m", "ruff", "format", "--check", "."],
    "types": [sys.executable, "-m", "mypy"],
    "book": ["make", "--no-print-directory", "book"],
    "unit tests": [*PYTEST, "--dist", "worksteal", "tests"],
    "notebooks": [
        *(*PYTEST, "--dist", "loadfile", "--nbval", "--nbval-current-env"),
        *("--nbval-sanitize-with", "tools/nbval_sanitize.cfg", "book"),
    ],
}


class Outcome(NamedTuple):
    """How a part ended: its exit status, what it counted, and how long it took."""

    status: int
    counted: str
    seconds: float


def run(command: Sequence[str]) -> Outcome:
    """Run a command, and pass on what it says as it says it."""
    start, said = time.monotonic(), b""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    while some := os.read(process.stdout.fileno(), 4096):
        sys.stdout.buffer.write(some)
        sys.stdout.flush()
        said = (said + some)[-4096:]
    # pytest's last line, without the colours of a terminal
    lines = re.sub(r"\x1b\[[0-9;]*m", "", said.decode(errors="replace"))
    counts = re.findall(r"^(?:=+ )?(\d+ \w+(?:, \d+ \w+)*) in [\d.]+s", lines, re.MULTILINE)
    return Outcome(process.wait(), counts[-1] if counts else "", time.monotonic() - start)


def summary(outcomes: dict[str, Outcome]) -> list[str]:
    """A line for each part: passed or failed, how many, and how many seconds."""
    lines = [
        f"{part:<12}{'FAILED' if found.status else 'passed':<8}{found.seconds:6.0f} s  "
        f"{found.counted}".rstrip()
        for part, found in outcomes.items()
    ]
    failed = [part for part, found in outcomes.items() if found.status]
    told = f"{len(failed)} of {len(outcomes)} parts failed: {', '.join(failed)}"
    return [*lines, told if failed else "All checks passed."]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(description="Run every part of `make test`.")
    parser.add_argument("part", nargs="*", choices=[[], *PARTS], help="all if none")
    chosen = parser.parse_args(arguments).part or list(PARTS)
    outcomes = {}
    for part in chosen:
        print(f"== {part}", flush=True)
        outcomes[part] = run(PARTS[part])
    print("", *summary(outcomes), sep="\n", flush=True)
    return int(any(found.status for found in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
