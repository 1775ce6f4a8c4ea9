"""The two files of a page: what jupytext and JupyterLab save of them, and edits by hand."""

import os
import shutil
from pathlib import Path

import jupytext
import nbformat
import notebooks
import pair
import pytest
from jupytext.cli import jupytext as run_jupytext
from jupytext.combine import combine_inputs_with_outputs
from jupytext.jupytext import drop_text_representation_metadata

NOTE = "  # edited"


@pytest.fixture
def folder(tmp_path):
    shutil.copy(pair.ROOT / "jupytext.toml", tmp_path)
    return tmp_path


def touch(path: Path, *, after: Path) -> None:
    later = after.stat().st_mtime + 10
    os.utime(path, (later, later))


def edit_last_cell(notebook: nbformat.NotebookNode) -> None:
    """Edit the last cell with code, of which two could not be confused."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    code[-1].source += NOTE


def edited_ipynb(text: str) -> str:
    notebook = nbformat.reads(text, as_version=4)
    edit_last_cell(notebook)
    return nbformat.writes(notebook) + "\n"


def edited_md(text: str) -> str:
    """Edit the same cell, as one does in an editor: a few characters before the last fence."""
    code, fence, rest = text.rpartition("\n```{code-cell}")
    inside, end, after = rest.partition("\n```\n")
    return code + fence + inside + NOTE + end + after


def save_in_jupyterlab(ipynb: Path, md: Path) -> None:
    """What jupytext's contents manager does when a page is opened, edited and saved."""
    inputs = jupytext.reads(md.read_text("utf-8"), fmt=pair.FORMAT, config=pair.CONFIG)
    outputs = nbformat.read(ipynb, as_version=4)
    notebook = combine_inputs_with_outputs(inputs, outputs, fmt=pair.FORMAT)
    edit_last_cell(notebook)
    saved = drop_text_representation_metadata(notebook)
    ipynb.write_text(nbformat.writes(saved) + "\n", "utf-8")
    md.write_text(jupytext.writes(notebook, fmt=pair.FORMAT, config=pair.CONFIG), "utf-8")


@pytest.mark.parametrize("page", notebooks.pages())
def test_the_pair_is_a_fixed_point(page, folder):
    """Of a sync in both directions and a save in JupyterLab, but for the cell that was edited."""
    ipynb = folder / "page.ipynb"
    md = folder / "page.md"
    source = (notebooks.BOOK / f"{page}.md").read_text("utf-8")
    made = notebooks.notebook_path(page).read_text("utf-8")

    ipynb.write_text(edited_ipynb(made), "utf-8")
    md.write_text(source, "utf-8")
    touch(ipynb, after=md)
    run_jupytext(["--quiet", "--sync", str(ipynb)])
    assert md.read_text("utf-8") == edited_md(source), "run `make format`"
    assert ipynb.read_text("utf-8") == edited_ipynb(made)

    md.write_text(source, "utf-8")
    touch(md, after=ipynb)
    run_jupytext(["--quiet", "--sync", str(ipynb)])
    assert md.read_text("utf-8") == source
    assert ipynb.read_text("utf-8") == made

    save_in_jupyterlab(ipynb, md)
    assert md.read_text("utf-8") == edited_md(source)
    assert ipynb.read_text("utf-8") == edited_ipynb(made)
