"""Say where a result comes from: the code, the libraries and the machine."""

import importlib
import inspect
import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paperledger.configuration import configuration

# What makes a library compute as it would on another processor: OpenBLAS, PyTorch, MKL in it,
# NumPy's functions, and those of C.
KERNEL_VARIABLES = (
    "OPENBLAS_CORETYPE",
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
    "NPY_DISABLE_CPU_FEATURES",
    "GLIBC_TUNABLES",
)

UNRECORDED = " (family not recorded)"

# What systems call the facts that tell processors apart: Linux on x86 and on ARM, then macOS, whose
# ARM processors have no more than a name.
_NAMED = {
    "vendor": ("vendor_id", "CPU implementer", "machdep.cpu.vendor"),
    "family": ("cpu family", "CPU architecture", "machdep.cpu.family"),
    "model": ("model", "CPU part", "machdep.cpu.model"),
    "name": ("model name", "machdep.cpu.brand_string"),
}
_FLAGS = ("flags", "Features", "machdep.cpu.features", "machdep.cpu.leaf7_features")
# Of a processor's flags those of vectors, by which kernels are chosen.
_VECTORS = re.compile(r"(ss?se|avx|fma|f16c|amx|asimd|sve|sme(?!p)|bf16|i8mm)[\w.]*")


def environment(function: Callable[..., Any]) -> dict[str, Any]:
    """Return what measures may depend on beside their parameters: code, libraries, machine."""
    versions = {"python": platform.python_version()}
    for name, module in configuration().versions.items():
        # Not the distribution's: those of PyTorch on PyPI do not say for which CUDA they are.
        versions[name] = str(importlib.import_module(module).__version__)
    return {
        "commit": _commit(Path(inspect.getfile(function)).parent),
        "versions": versions,
        **machine(),
        "platform": platform.platform(),
    }


def machine() -> dict[str, Any]:
    """Return what decides in which order numbers are added, and so their last digits.

    ``processor``, its name, which several kinds may share; ``processor_kind``: vendor, family,
    model and the instructions for vectors, as far as the system tells them; ``kernels``: the
    variables of the environment that choose kernels of another processor.
    """
    facts = _facts()
    kind: dict[str, Any] = {}
    for fact, names in _NAMED.items():
        known = [facts[name] for name in names if name in facts]
        kind[fact] = known[0] if known else ""
    flags = " ".join(facts.get(name, "") for name in _FLAGS).lower().split()
    kind["vectors"] = sorted(flag for flag in flags if _VECTORS.fullmatch(flag))
    kind["system"] = " ".join([platform.system(), platform.machine(), *platform.libc_ver()]).strip()
    kernels = {name: os.environ[name] for name in KERNEL_VARIABLES if os.environ.get(name)}
    name = kind["name"] or platform.processor() or platform.machine()
    return {"processor": name, "processor_kind": kind, "kernels": kernels}


def is_like(run: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    """Tell whether a run is certain to have been on a machine that computes as this one does.

    A name alone, all that older runs recorded, does not make it certain.
    """
    kind = here["processor_kind"]
    return bool(kind["name"] or kind["model"]) and all(run.get(fact) == here[fact] for fact in here)


def described(run: Mapping[str, Any]) -> str:
    """Return a run's processor in words: its name, and what else was recorded."""
    if "processor_kind" not in run:
        return f"{run['processor']}{UNRECORDED}"
    kind = run["processor_kind"]
    parts = [f"{fact} {kind[fact]}" for fact in ("family", "model") if kind[fact]]
    parts += [f"{name}={value}" for name, value in run["kernels"].items()]
    return f"{run['processor']} ({', '.join(parts)})" if parts else str(run["processor"])


def current_runs(provenance: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the runs of a store of which rows are left, as far as they say what was replaced."""
    return [run for run in provenance["runs"] if run["cells"] > run.get("replaced", 0)]


def _facts() -> dict[str, str]:
    """Return what the system tells of the first processor, under the system's names."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        text = cpuinfo.read_text("utf-8")
    elif platform.system() == "Darwin":
        command = ["sysctl", "machdep.cpu"]
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    else:  # Windows: "AMD64 Family 25 Model 17 Stepping 1, AuthenticAMD"
        said = re.search(r"Family (\w+) Model (\w+).*, (\w+)", platform.processor())
        names = ("cpu family", "model", "vendor_id")
        return dict(zip(names, said.groups(), strict=True)) if said else {}
    facts: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            facts.setdefault(name.strip(), value.strip())
    return facts


def _commit(folder: Path) -> str | None:
    """Return the commit of the repository around `folder`, marked if its code was changed."""

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", *arguments]
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True
        ).stdout

    try:
        # Of changes only code counts: the results of one run would mark all runs after it.
        dirty = git("status", "--porcelain", "--", ":/*.py")
        return git("rev-parse", "HEAD").strip() + ("-dirty" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return None
