"""The two files of a page: the .md, which is its source, and the .ipynb made from it.

Both have the form that jupytext gives them, so that `jupytext --sync` and a save in JupyterLab
change the cells that were edited and nothing else. The .ipynb records the sum of the .md that it
was made from: where its cells give another text, and the .md does not have it either, somebody has
edited them.
"""

import difflib
import hashlib
import json
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext
from jupytext.config import load_jupytext_configuration_file
from nbformat import NotebookNode, from_dict

ROOT = Path(__file__).resolve().parents[1]
FORMAT = "md:myst"
CONFIG = load_jupytext_configuration_file(str(ROOT / "jupytext.toml"))

# Stays out of the .md: what JupyterLab writes of the kernel that ran there, and jupytext of itself.
FILTER = "-kernelspec,-jupytext.text_representation.jupytext_version"
# What every .ipynb carries: the same on every machine and for every Python, so that a rerun changes
# outputs only. The entry of jupytext is what it writes itself.
METADATA: dict[str, Any] = {
    "jupytext": {"default_lexer": "ipython3", "notebook_metadata_filter": FILTER},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}


@dataclass(frozen=True)
class HandEdit:
    """Cells of an .ipynb that no .md holds: they would be lost if it were made again."""

    source: str  # the .md that they give
    difference: str  # from the .md as it is
    both: bool  # whether the .md, too, is another than the .ipynb was made from


def parse(text: str) -> NotebookNode:
    """Return the notebook that an .md describes, without outputs.

    Its cells' metadata are in the order in which an .ipynb has them, and captions end in no
    newline, which YAML would show as an empty line.
    """
    notebook = jupytext.reads(text, fmt=FORMAT, config=CONFIG)
    for cell in notebook.cells:
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        if "caption" in figure:
            figure["caption"] = figure["caption"].rstrip("\n")
        cell.metadata = from_dict(json.loads(json.dumps(cell.metadata, sort_keys=True)))
    return notebook


def source_of(notebook: NotebookNode) -> str:
    """Return the .md that jupytext writes for the cells of a notebook."""
    metadata = deepcopy(METADATA)  # jupytext changes it
    bare = NotebookNode(nbformat=4, nbformat_minor=5, metadata=metadata, cells=notebook.cells)
    return jupytext.writes(bare, fmt=FORMAT, config=CONFIG)


def in_form(text: str) -> str:
    """Return an .md as jupytext writes it."""
    return source_of(parse(text))


def sum_of(text: str) -> str:
    """Return the sum by which an .ipynb knows the .md that it was made from."""
    return hashlib.sha256(text.encode()).hexdigest()


def hand_edit(notebook: NotebookNode, text: str) -> HandEdit | None:
    """Tell whether an .ipynb holds what neither its .md nor the one it was made from holds.

    Parameters
    ----------
    notebook
        The .ipynb as it is.
    text
        The .md as it is.
    """
    now = in_form(text)
    held = in_form(source_of(notebook))
    made_from = notebook.metadata.get("made_from")
    if held == now or sum_of(held) == made_from:
        return None
    lines = difflib.unified_diff(now.splitlines(), held.splitlines(), ".md", ".ipynb", lineterm="")
    return HandEdit(
        source=held,
        difference="\n".join(lines),
        both=sum_of(now) != made_from,
    )
