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

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-n", "2", "--benchmark-disable"]

# Part, and its command. Tests that wait for each other's worker are handed over: the browser's lie
# side by side. `loadfile` keeps the cells of one notebook with one kernel.
PARTS = {
    "rules": [sys.executable, "-m", "ruff", "check", "--no-cache", "."],
    "format": [sys.executable, "-m", "ruff", "format", "--check", "."],
    "types": [sys.executable, "-m", "mypy"],
    "book": ["make", "--no-print-directory", "book"],
    "unit tests": [*PYTEST, "--dist", "worksteal", "tests"],
    "notebooks": [
        *(*PYTEST, "--dist", "loadfile", "--nbval", "--nbval-current-env"),
        *("-p", "tools.forked_kernels"),
        *("--nbval-sanitize-with", "tools/nbval_sanitize.cfg", "book"),
    ],
}


def run(command: Sequence[str]) -> tuple[int, str]:
    """Run a command, pass on what it says as it says it; its status, and what pytest counted."""
    said = b""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    while some := os.read(process.stdout.fileno(), 4096):
        sys.stdout.buffer.write(some)
        sys.stdout.flush()
        said = (said + some)[-4096:]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said.decode(errors="replace"))
    counts = re.findall(r"^(?:=+ )?(\d+ \w+(?:, \d+ \w+)*) in [\d.]+s", plain, re.MULTILINE)
    return process.wait(), counts[-1] if counts else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(description="Run every part of `make test`.")
    parser.add_argument("part", nargs="*", choices=[[], *PARTS], help="all if none")
    lines, failed = [], []
    chosen = parser.parse_args(arguments).part or list(PARTS)
    for part in chosen:
        print(f"== {part}", flush=True)
        start = time.monotonic()
        status, counted = run(PARTS[part])
        failed += [part] if status else []
        word, seconds = "FAILED" if status else "passed", time.monotonic() - start
        lines.append(f"{part:<12}{word:<8}{seconds:6.0f} s  {counted}".rstrip())
    told = f"{len(failed)} of {len(chosen)} parts failed: {', '.join(failed)}"
    print("", *lines, told if failed else "All checks passed.", sep="\n", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
