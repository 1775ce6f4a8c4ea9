"""Sphinx extension: buttons for the repository, its issues and Binder, if `_config.yml` names it.

Without an address the book has none: they are links into the network. Jupyter Book would hand the
address to the theme, did `_config.yml` not set the theme's options itself. Binder makes the book's
environment by `.binder/`, and the book, in which the student notebooks are; Colab, which takes a
page alone, would not have its code. The archive of all figures belongs to a release, and is linked
where there is one to link to.
"""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from sphinx.application import Sphinx
from sphinx.config import Config

BINDER = "https://mybinder.org"


def binder(address: str, notebook: str) -> str:
    """The address at which Binder opens a notebook of the built book, in the repository at one."""
    repository = address.removeprefix("https://github.com/")
    place = quote(f"lab/tree/_build/html/{notebook}", safe="")
    return f"{BINDER}/v2/gh/{repository}/HEAD?urlpath={place}"


def figure_pack(address: str) -> str:
    """Where the archive of all figures is, as Markdown: in the last release, or to be made."""
    if not address:
        return "In a clone of the repository `make figures` writes `_build/bayesloss-figures.zip`."
    release = f"{address}/releases/latest/download"
    return f"[Download all figures]({release}/bayesloss-figures.zip)."


def show(app: Sphinx, config: Config) -> None:
    """Give the theme the address and switch its buttons on; tell pages where the figures are."""
    book = yaml.safe_load((Path(app.confdir) / "_config.yml").read_text(encoding="utf-8"))
    address = book["repository"]["url"]
    config.myst_substitutions |= {"figure_pack": figure_pack(address)}
    if address:
        config.html_theme_options |= {
            "repository_url": address,
            "repository_branch": "HEAD",
            "use_repository_button": True,
            "use_issues_button": True,
            "launch_buttons": {
                "binderhub_url": BINDER,
                "notebook_interface": "jupyterlab",
            },
        }


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("config-inited", show)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
