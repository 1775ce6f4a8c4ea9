"""Kernels that are forks of a process which has already imported what most pages import.

    python -m pytest -p tools.forked_kernels --nbval ...

A kernel is at work at once, where a fresh one, which nbval starts for each page, takes four seconds
to import PyTorch, scikit-learn and the rest. It has the environment, the folder and the process
group that it is given, and ends with the server of `multiprocessing` from which it was forked.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from importlib.metadata import EntryPoint
from multiprocessing.context import ForkServerProcess
from typing import Any

from ipykernel.kernelapp import IPKernelApp
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

IMPORTED = [
    *("ipykernel.kernelapp", "matplotlib.pyplot", "pandas", "scipy.optimize", "scipy.stats"),
    *("sklearn.datasets", "sklearn.linear_model", "sklearn.model_selection", "torch", "torch.func"),
    *("torch._dynamo", "torch._decomp", "torch.fx.experimental.symbolic_shapes"),  # as vmap and jvp
    *("bayesloss", "paperledger.ledger.checks", "paperledger.stores.results"),
]


def _serve(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """Be a kernel."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[0] = ""
    sys.modules["pandas"].options.display.max_columns = 20  # as where no terminal imports it
    IPKernelApp.launch_instance(argv=arguments)


class Fork(ForkServerProcess):
    """A kernel's process, with what jupyter_client asks of one from `subprocess`."""

    stdin = stdout = stderr = None
    wait = ForkServerProcess.join

    def poll(self) -> int | None:
        """Return None as long as it runs."""
        return self.exitcode


class ForkedProvisioner(LocalProvisioner):
    """Starts a kernel as a fork."""

    process: Any

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Fork the kernel of a command `python ... -m ipykernel_launcher ARGUMENTS`."""
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        self.cwd = os.path.abspath(kwargs.get("cwd") or os.getcwd())
        self.process = Fork(target=_serve, args=(arguments, self.cwd, kwargs["env"]))
        self.process.start()
        self.pid = self.pgid = self.process.pid
        return self.connection_info


multiprocessing.get_context("forkserver").set_forkserver_preload(IMPORTED)
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # as a kernel sets it
KernelProvisionerFactory.provisioners["forked"] = EntryPoint(
    "forked", f"{__name__}:ForkedProvisioner", KernelProvisionerFactory.GROUP_NAME
)
os.environ[KernelProvisionerFactory.default_provisioner_name_env] = "forked"
