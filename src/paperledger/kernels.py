"""What a page's kernel is started with, wherever a page is executed, and how it may end."""

from typing import Any

from nbclient.exceptions import CellExecutionError, DeadKernelError
from papermill.exceptions import PapermillExecutionError

# What a kernel sees. The first three are also in the Makefile, for the tests; the date goes
# into SVG figures; the last keeps a user's own "python3" kernel from being taken for ours.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "SOURCE_DATE_EPOCH": "0",
    "JUPYTER_PREFER_ENV_PATH": "1",
}
KERNEL: dict[str, Any] = {
    "kernel_name": "python3",
    "extra_arguments": ["--log-level=ERROR"],  # or each warns that it talks over TCP
}
STOPPED = (CellExecutionError, DeadKernelError, PapermillExecutionError)
