"""JupyterLab as `make lab` starts it.

It asks no network for news, it starts for root, and a save changes no more than the cells that were
edited.
"""

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pair

c = get_config()  # type: ignore[name-defined]  # noqa: F821, what reads this file defines it


def keep_metadata(model: dict[str, Any], **_: Any) -> None:
    """Leave in a page's .ipynb what it says of its kernel, in place of the kernel that ran here."""
    if model["type"] == "notebook" and "made_from" in model["content"]["metadata"]:
        model["content"]["metadata"].update(pair.METADATA)


c.FileContentsManager.pre_save_hook = keep_metadata
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
# A container's user is often root, whom JupyterLab refuses; its token still guards it.
c.ServerApp.allow_root = os.geteuid() == 0
