"""The notebooks and the unit tests as other processors compute them; a table of what differed.

    python tools/processors.py [--threads 1 2] [--on NAME ...] [PATH ...]

Other kernels of the numerical libraries stand in for other processors: OPENBLAS_CORETYPE chooses
those of NumPy's and SciPy's linear algebra, ATEN_CPU_CAPABILITY and MKL_CBWR those of PyTorch,
NPY_DISABLE_CPU_FEATURES those of NumPy's functions and GLIBC_TUNABLES those of C's, both of which
compute exp and log, in their last digit, by the processor. What this one lacks is left out. PATH
is a notebook or a folder of them, or of tests; all if none. The table has a row for each processor
and number of threads; `--on` runs some of them. pytest and nbval run and compare.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import torch
from failures import outcomes

from paperledger.stores.provenance import KERNEL_VARIABLES

ROOT = Path(__file__).resolve().parents[1]

AVX_512 = "X86_V4 AVX512_ICL AVX512_SPR"  # by NumPy's names; one that has none disables nothing
NO_AVX = "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"
# Kernels by processor, in the order of `KERNEL_VARIABLES`, those without a name being the library's
# choice; and which of PyTorch's capabilities a machine has that can stand in for it.
PROCESSORS = {
    "without AVX": (
        ("Nehalem", "default", "COMPATIBLE", f"X86_V3 {AVX_512}", NO_AVX),
        ("DEFAULT", "AVX2", "AVX512"),
    ),
    "AVX2": (("Haswell", "avx2", "AVX2", AVX_512), ("AVX2", "AVX512")),
    "AVX-512": (("SkylakeX", "avx512"), ("AVX512",)),
    "this one": ((), None),
}
# How pytest runs each kind. The built book is the same on every processor.
HOW = {
    "notebooks": ["--dist", "loadfile", "--tb", "no", "-p", "tools.forked_kernels", "--nbval",
                  "--nbval-current-env", "--nbval-sanitize-with", "tools/nbval_sanitize.cfg"],
    "unit tests": ["--dist", "worksteal", "--tb", "short", "--ignore", "tests/book"],
}  # fmt: skip

Found = tuple[list[str], int]


def possible() -> list[str]:
    """Return the processors that this one can stand in for."""
    has = torch.backends.cpu.get_cpu_capability()
    return [name for name, (_, needed) in PROCESSORS.items() if needed is None or has in needed]


def kernels(name: str) -> dict[str, str]:
    """Return the environment in which the libraries compute as a processor does."""
    return dict(zip(KERNEL_VARIABLES, PROCESSORS[name][0], strict=False))


def differing(paths: Sequence[str], how: Sequence[str], processor: Mapping[str, str]) -> Found:
    """Run notebooks or unit tests; return the names of those that failed, and how many ran."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--benchmark-disable", "-n", "2"]
        command += ["-p", "no:cacheprovider", *how, f"--junitxml={report}", *paths]
        status = subprocess.run(command, cwd=ROOT, env={**os.environ, **processor}).returncode
        found = outcomes(report) if report.exists() else {}
    failed = [test for test, said in found.items() if said is not None]
    if status and not (status == 1 and failed):
        failed.append(f"pytest itself, with status {status}: {' '.join(paths)}")
    return failed, len(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all; the exit status is 1 where anything differed, or nothing ran."""
    can = possible()
    parser = argparse.ArgumentParser(description="Notebooks and tests as on other processors.")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--on", nargs="+", choices=PROCESSORS, default=can, metavar="NAME")
    parser.add_argument("path", nargs="*", default=["book", "tests"])
    chosen = parser.parse_args(arguments)
    pages = [p for p in chosen.path if Path(p).suffix == ".ipynb" or Path(p).parts[0] == "book"]
    kinds = {"notebooks": pages, "unit tests": [p for p in chosen.path if p not in pages]}
    lines = [f"{'processor':<14}{'threads':>7}" + "".join(f"{k:>18}" for k in kinds) + "  seconds"]
    all_equal = True
    for name, threads in product((name for name in chosen.on if name in can), chosen.threads):
        print(f"== {name}, {threads} threads", flush=True)
        count = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        count["OMP_WAIT_POLICY"] = "PASSIVE"  # on two cores: who waits lets others run
        start = time.monotonic()
        row = f"{name:<14}{threads:>7}"
        named = list[str]()
        for kind, paths in kinds.items():
            if not paths:
                row += f"{'-':>18}"
                continue
            found, tried = differing(paths, HOW[kind], kernels(name) | count)
            row += f"{f'{len(found)} of {tried}':>18}"
            named += found
            all_equal &= bool(tried) and not found
        lines += [f"{row}{time.monotonic() - start:>9.0f}", *(f"    {each}" for each in named)]
    print("", "What differed:", *lines, sep="\n")
    if left_out := [name for name in PROCESSORS if name not in can]:
        print(f"left out, for want of instructions: {', '.join(left_out)}")
    return int(not all_equal)


if __name__ == "__main__":
    sys.exit(main())
