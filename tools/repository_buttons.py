"""Sphinx extension: buttons for the repository, its issues and Binder, if `_config.yml` names it.

Without an address the book has none: they are links into the network. Binder makes the environment
of the book by `.binder/`; Colab, which takes a page alone, would not have its code.
"""

from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config


def show(app: Sphinx, config: Config) -> None:
    """Switch the theme's buttons on."""
    options = config.html_theme_options
    if options.get("repository_url"):
        options["repository_branch"] = "HEAD"
        options["use_repository_button"] = True
        options["use_issues_button"] = True
        options["launch_buttons"] = {
            "binderhub_url": "https://mybinder.org",
            "notebook_interface": "jupyterlab",
        }


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("config-inited", show)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
