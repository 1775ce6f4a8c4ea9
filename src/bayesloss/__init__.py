"""A companion to two papers: one learns the loss, one calibrates approximate inference to it.

They are Walder and Nock (2020), and Lacoste-Julien, Huszár and Ghahramani (2011). The public names,
in ``__init__.pyi``, are imported when they are first asked for: who only predicts from a calibrator
need not wait for PyTorch.
"""

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from bayesloss import threads as threads  # makes forks safe, also of code that does not ask for it

__version__ = "0.2.0"


def _refuse_files_of_another() -> None:
    """Raise an ImportError if the distribution ``bayesloss``, not ours, put files into this folder.

    Ours is called ``bayesloss-companion``, but both install a folder ``bayesloss``. The records of
    installed files are read as they lie there: importlib.metadata takes 25 ms to import.
    """
    folder = Path(__file__).parent
    for record in folder.parent.glob("bayesloss-*.dist-info/RECORD"):
        if re.search(r"^bayesloss/__init__\.py,", record.read_text("utf-8"), re.MULTILINE):
            raise ImportError(
                f"expected {folder} to hold bayesloss-companion alone, but another distribution, "
                f"{record.parent.stem}, has files there, too: pip uninstall both (bayesloss and "
                "bayesloss-companion), then install bayesloss-companion again"
            )


_refuse_files_of_another()

_HOMES = {
    name.name: f"bayesloss.{node.module}"
    for node in ast.parse(Path(__file__).with_name("__init__.pyi").read_text("utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for name in node.names
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """A public name, from its module (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'bayesloss' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """What completion shows: the public names, without submodules."""
    return [*__all__, "__all__", "__doc__", "__version__"]
