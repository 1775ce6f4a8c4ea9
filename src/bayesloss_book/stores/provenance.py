"""Say where a result comes from: the code, the libraries and the machine."""

import inspect
import platform
import re
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import bayesloss


def environment(function: Callable[..., Any]) -> dict[str, Any]:
    """Return what measures may depend on beside their parameters: code, libraries, machine."""
    libraries = ("numpy", "scipy", "scikit-learn", "torch", "pandas")
    versions = {"python": platform.python_version(), "bayesloss": bayesloss.__version__}
    versions |= {name: version(name) for name in libraries}
    return {
        "commit": _commit(Path(inspect.getfile(function)).parent),
        # PyTorch's wheels from PyPI do not say in their names for which CUDA they were built.
        "versions": versions | {"torch": str(torch.__version__)},
        "processor": processor(),
        "platform": platform.platform(),
    }


def processor() -> str:
    """Return the name of the processor, as far as the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")  # the only place where Linux names the processor
    model = re.search(r"model name\s*: (.*)", cpuinfo.read_text() if cpuinfo.exists() else "")
    return model[1] if model else platform.processor() or platform.machine()


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
