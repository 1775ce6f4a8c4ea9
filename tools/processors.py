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

import torch

ROOT = Path(__file__).resolve().parents[1]

VARIABLES = ("OPENBLAS_CORETYPE", "ATEN_CPU_CAPABILITY", "MKL_CBWR")
# Kernels by processor, those without a name being the library's choice; and which of PyTorch's
# capabilities a machine has that can stand in for it.
PROCESSORS = {
    "without AVX": (("Nehalem", "default", "COMPATIBLE"), ("DEFAULT", "AVX2", "AVX512")),
    "AVX2": (("Haswell", "avx2", "AVX2"), ("AVX2", "AVX512")),
    "AVX-512": (("SkylakeX", "avx512"), ("AVX512",)),
    "this one": ((), None),
}


def possible() -> list[str]:
    """Return the processors that this one can stand in for."""
    has = torch.backends.cpu.get_cpu_capability()
    return [name for name, (_, needed) in PROCESSORS.items() if needed is None or has in needed]


def kernels(name: str) -> dict[str, str]:
    """Return the environment in which the libraries compute as a processor does."""
    return dict(zip(VARIABLES, PROCESSORS[name][0], strict=False))


def differing(paths: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], int]:
    """Run notebooks and unit tests; return the names of those that failed, and how many ran."""
    notebooks = [p for p in paths if Path(p).suffix == ".ipynb" or Path(p).parts[0] == "book"]
    options = ["--dist", "loadfile", "--tb", "no", "--nbval", "--nbval-current-env"]
    options += ["--nbval-sanitize-with", "tools/nbval_sanitize.cfg"]
    # The built book is the same on every processor.
    plain = ["--dist", "worksteal", "--tb", "short", "--ignore", "tests/book"]
    tests = [path for path in paths if path not in notebooks]
    failed, tried = [], 0
    for some, how in ((notebooks, options), (tests, plain)):
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            command = [sys.executable, "-m", "pytest", "-q", "--benchmark-disable", "-n", "2"]
            command += ["-p", "no:cacheprovider", *how, f"--junitxml={report}", *some]
            run = (
                subprocess.run(command, cwd=ROOT, env={**os.environ, **environment})
                if some
                else None
            )
            cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
        bad = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
        failed += [f"{case.get('classname')}::{case.get('name')}" for case in bad]
        if run and run.returncode and not (run.returncode == 1 and bad):
            failed.append(f"pytest itself, with status {run.returncode}: {' '.join(some)}")
        tried += len(cases)
    return failed, tried


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all; the exit status is 1 where anything differed, or nothing ran."""
    can = possible()
    parser = argparse.ArgumentParser(description="Notebooks and tests as on other processors.")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--on", nargs="+", choices=PROCESSORS, default=can, metavar="NAME")
    parser.add_argument("path", nargs="*", default=["book", "tests"])
    chosen = parser.parse_args(arguments)
    lines = [f"{'processor':<14}{'threads':>7}{'tried':>8}{'differed':>10}{'seconds':>9}"]
    all_equal = True
    for name in (name for name in chosen.on if name in can):
        for threads in chosen.threads:
            print(f"== {name}, {threads} threads", flush=True)
            count = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
            start = time.monotonic()
            found, tried = differing(chosen.path, kernels(name) | count)
            seconds = time.monotonic() - start
            lines.append(f"{name:<14}{threads:>7}{tried:>8}{len(found):>10}{seconds:>9.0f}")
            lines += [f"    {each}" for each in found]
            all_equal &= bool(tried) and not found
    print("", *lines, sep="\n")
    if left_out := [name for name in PROCESSORS if name not in can]:
        print(f"left out, for want of instructions: {', '.join(left_out)}")
    return int(not all_equal)


if __name__ == "__main__":
    sys.exit(main())
