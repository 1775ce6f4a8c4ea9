"""A ledger of a paper's claims: checks, falsifiers, a scorecard, and stored results.

It knows nothing of what a paper is about. `README.md` beside this file is one page on it, and
:mod:`paperledger.configuration` has what a companion says of itself, ``paperledger.toml``.
"""

from importlib.util import find_spec

# What modules here import when they are imported, and the library in this wheel does not bring.
NEEDED = (
    "IPython",
    "filelock",
    "joblib",
    "matplotlib",
    "nbclient",
    "nbformat",
    "pandas",
    "papermill",
    "yaml",
)


def refuse_without(package: str, needed: tuple[str, ...]) -> None:
    """Raise ModuleNotFoundError, with the names of what is missing and the extra that brings it."""
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"{package} needs modules that are not installed: {', '.join(missing)}. The extra "
            "[book] brings them: in a clone, pip install '.[book]'",
            name=missing[0],
        )


refuse_without("paperledger", NEEDED)
