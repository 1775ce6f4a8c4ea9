"""Where this book's stored results are."""

from pathlib import Path


def stored_results() -> Path:
    """The folder of the book's stored results: beside the installed code, or that of the clone."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "results"  # setup.py copies them there
    if installed.is_dir():
        return installed
    return package.parents[1] / "data" / "results"
