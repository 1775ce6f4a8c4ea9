"""The notebooks and the unit tests as other processors compute them; a table of what differed.

    python tools/processors.py [--threads 1 2] [--on NAME ...] [PATH ...]

Other kernels of the numerical libraries stand in for other processors: OPENBLAS_CORETYPE chooses
those of NumPy and SciPy, ATEN_CPU_CAPABILITY and MKL_CBWR those of PyTorch. What this machine's
processor lacks is left out. PATH is a notebook or a folder of them, or of tests; all if none.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["PROCESSORS", "Row", "differing", "main", "possible", "table"]

ROOT = Path(__file__).resolve().parents[1]

# Kernels by processor; what each needs comes from `torch.backends.cpu.get_cpu_capability`.
PROCESSORS: dict[str, dict[str, str]] = {
    "without AVX": {
        "OPENBLAS_CORETYPE": "Nehalem",
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
    },
    "AVX2": {
        "OPENBLAS_CORETYPE": "Haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2",
    },
    "AVX-512": {"OPENBLAS_CORETYPE": "SkylakeX", "ATEN_CPU_CAPABILITY": "avx512"},
    "this one": {},
}
_NEEDS = {"AVX2": ("AVX2", "AVX512"), "AVX-512": ("AVX512",)}


class Row(NamedTuple):
    """One run: on what, with how many threads, what differed, of how many, and the seconds."""

    processor: str
    threads: int
    differed: list[str]
    tried: int
    seconds: float


def possible() -> list[str]:
    """Return the processors that this one can stand in for."""
    asked = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    has = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    return [name for name in PROCESSORS if has.stdout.strip() in _NEEDS.get(name, has.stdout)]


def differing(paths: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], int]:
    """Run notebooks and unit tests; return the names of those that failed, and how many ran."""
    notebooks = [p for p in paths if Path(p).suffix == ".ipynb" or Path(p).parts[0] == "book"]
    options = ["--dist", "loadfile", "--tb", "no", "--nbval", "--nbval-current-env"]
    options += ["--nbval-sanitize-with", "tools/nbval_sanitize.cfg"]
    failed, tried = [], 0
    # The built book is the same on every processor.
    plain = ["--dist", "worksteal", "--tb", "short", "--ignore", "tests/book"]
    tests = [path for path in paths if path not in notebooks]
    for some, how in ((notebooks, options), (tests, plain)):
        if not some:
            continue
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            command = [sys.executable, "-m", "pytest", "-q", "--benchmark-disable"]
            command += ["-p", "no:cacheprovider", "-n", "2", *how, f"--junitxml={report}", *some]
            status = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}).returncode
            cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
        bad = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
        failed += [f"{case.get('classname')}::{case.get('name')}" for case in bad]
        if status not in (0, 1) or (status and not bad):
            failed.append(f"pytest itself, with status {status}: {' '.join(some)}")
        tried += len(cases)
    return failed, tried


def table(rows: Sequence[Row]) -> list[str]:
    """A line for each run, and below each what differed."""
    lines = [f"{'processor':<14}{'threads':>7}{'tried':>8}{'differed':>10}{'seconds':>9}"]
    for row in rows:
        counts = f"{row.threads:>7}{row.tried:>8}{len(row.differed):>10}{row.seconds:>9.0f}"
        lines += [f"{row.processor:<14}{counts}", *(f"    {name}" for name in row.differed)]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all; the exit status is 1 where anything differed."""
    can = possible()
    parser = argparse.ArgumentParser(description="Notebooks and tests as on other processors.")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--on", nargs="+", choices=PROCESSORS, default=can, metavar="NAME")
    parser.add_argument("path", nargs="*", default=["book", "tests"])
    chosen = parser.parse_args(arguments)
    rows = []
    for name in (name for name in chosen.on if name in can):
        for threads in chosen.threads:
            print(f"== {name}, {threads} threads", flush=True)
            count = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
            start = time.monotonic()
            differed, tried = differing(chosen.path, PROCESSORS[name] | count)
            rows.append(Row(name, threads, differed, tried, time.monotonic() - start))
    print("", *table(rows), sep="\n")
    if left_out := [name for name in PROCESSORS if name not in can]:
        print(f"left out, for want of instructions: {', '.join(left_out)}")
    return int(any(row.differed or not row.tried for row in rows))


if __name__ == "__main__":
    sys.exit(main())
