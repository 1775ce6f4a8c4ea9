"""Kernels that are forks of a process which has already imported what most pages import.

    python -m pytest -p tools.forked_kernels --nbval ...

A kernel is at work at once, where a fresh one takes four seconds to start and to import PyTorch,
scikit-learn and the rest. It has the environment, the folder and the process group that it is
given, and ends with the process from which it was forked.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

IMPORTED = [
    *("ipykernel.kernelapp", "matplotlib.pyplot", "pandas", "scipy.optimize", "scipy.stats"),
    *("sklearn.datasets", "sklearn.linear_model", "sklearn.model_selection", "torch", "torch.func"),
    *("bayesloss", "bayesloss_book.ledger.checks", "bayesloss_book.stores.results"),
]

_source: subprocess.Popen[str] | None = None


class Fork:
    """A kernel's process, as jupyter_client would have it from `subprocess`."""

    stdin = stdout = stderr = None

    def __init__(self, **given: Any) -> None:
        global _source
        if _source is None or _source.poll() is not None:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            _source = subprocess.Popen([sys.executable, __file__], text=True, **pipes)
        assert _source.stdin
        assert _source.stdout
        print(json.dumps(given), file=_source.stdin, flush=True)
        self.pid = int(_source.stdout.readline())

    def poll(self) -> int | None:
        """Return None as long as it runs."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    wait = poll  # jupyter_client waits after the end alone

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class ForkedProvisioner(LocalProvisioner):
    """Starts a kernel as a fork."""

    process: Any

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Fork the kernel of a command `python ... -m ipykernel_launcher ARGUMENTS`."""
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        folder = os.path.abspath(kwargs.get("cwd") or os.getcwd())
        self.process = Fork(arguments=arguments, folder=folder, environment=kwargs["env"])
        self.pid = self.pgid = self.process.pid
        self.cwd = folder
        return self.connection_info


def _serve(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """Be a kernel."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[0] = ""
    importlib.import_module("ipykernel.kernelapp").launch_new_instance(argv=arguments)


def _fork_on_demand() -> None:
    """Import, then fork a kernel for each line that comes, and write its number."""
    for name in IMPORTED:
        importlib.import_module(name)
    sys.modules["pandas"].options.display.max_columns = 20  # as it is where no terminal imports it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that no one has to wait for those that end
    for line in sys.stdin:
        if pid := os.fork():
            print(pid, flush=True)
        else:
            return _serve(**json.loads(line))


if __name__ == "__main__":
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # as a kernel sets it
    _fork_on_demand()
else:
    KernelProvisionerFactory.provisioners["forked"] = EntryPoint(
        "forked", f"{__name__}:ForkedProvisioner", KernelProvisionerFactory.GROUP_NAME
    )
    os.environ[KernelProvisionerFactory.default_provisioner_name_env] = "forked"
