"""Sphinx extension: buttons for the repository, its issues and Binder, if `_config.yml` names it.

Without an address the book has none: they are links into the network. Jupyter Book would hand the
address to the theme, did `_config.yml` not set the theme's options itself. Binder makes the book's
environment by `.binder/`; Colab, which takes a page alone, would not have its code.
"""

from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx
from sphinx.config import Config


def show(app: Sphinx, config: Config) -> None:
    """Give the theme the address, and switch its buttons on."""
    book = yaml.safe_load((Path(app.confdir) / "_config.yml").read_text(encoding="utf-8"))
    if address := book["repository"]["url"]:
        config.html_theme_options |= {
            "repository_url": address,
            "repository_branch": "HEAD",
            "use_repository_button": True,
            "use_issues_button": True,
            "launch_buttons": {
                "binderhub_url": "https://mybinder.org",
                "notebook_interface": "jupyterlab",
            },
        }


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("config-inited", show)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
