"""A book of a few pages, to see what a Sphinx extension makes of them."""

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx


def small_book(folder: Path, extension: str, **settings: Any) -> Sphinx:
    """The application that builds a folder's pages into its ``html``, by one extension."""
    return Sphinx(
        srcdir=folder,
        confdir=None,
        outdir=folder / "html",
        doctreedir=folder / "doctrees",
        buildername="html",
        confoverrides={"extensions": [extension], **settings},
        status=None,
        warning=None,
    )
