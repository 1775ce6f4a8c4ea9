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
from nbformat.v4 import new_output

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


@pytest.mark.parametrize("key", ["kernelspec", "language_info"])
def test_a_save_by_another_kernel_stays_out_of_the_md(key):
    """VS Code and JupyterLab write there which kernel ran; the former marks cells of its own."""
    notebook = notebooks.from_source("index")
    notebook.metadata[key] = {"name": "mine", "display_name": ".venv (Python 3.13)"}
    notebook.cells[0].metadata["vscode"] = {"languageId": "markdown"}
    assert pair.source_of(notebook) == (notebooks.BOOK / "index.md").read_text("utf-8")


# ------------------------------------------------------------- edits of an .ipynb by hand

CELLS = """\
# A page

```{code-cell} ipython3
:tags: [parameters]

n = 1
```

```{code-cell} ipython3
---
tags: [hide-input]
mystnb:
  figure:
    name: fig-two
    caption: |
      Two: a cell.
---
print(n)
```
"""


@pytest.fixture
def book(tmp_path):
    """A book of one page, made."""
    book = tmp_path / "book"
    book.mkdir()
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/index.ipynb\n")
    (book / "index.md").write_text(pair.in_form(CELLS))
    notebook = notebooks.from_source("index", book)
    notebook.cells[2].outputs = [new_output("stream", text="1\n")]
    notebook.cells[2].execution_count = 2
    notebooks.write(notebook, book / "index.ipynb")
    return book


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def files(book: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in book.iterdir()}


def test_an_edit_of_the_ipynb_is_refused_named_and_taken_back(book, capsys):
    before = (book / "index.md").read_text("utf-8")
    replace_in(book / "index.ipynb", "print(n)", "print(n + 1)")
    edited = files(book)
    shown = r"`make take-back PAGE=index`[^`]*\n\n(.*\n)*\+print\(n \+ 1\)"
    with pytest.raises(SystemExit, match=shown):
        notebooks.refuse_to_lose(["index"], book)
    assert "make take-back" in notebooks.remedy("index", book)
    assert files(book) == edited
    notebooks.take_back("index", book)
    assert (book / "index.md").read_text("utf-8") == before.replace("print(n)", "print(n + 1)")
    assert "+print(n + 1)" in capsys.readouterr().out
    notebooks.refuse_to_lose(["index"], book)


def test_making_a_page_does_not_overwrite_an_edit_that_came_meanwhile(book, monkeypatch, capsys):
    made = notebooks.from_source("index", book)

    def execute(*_):
        replace_in(book / "index.ipynb", "print(n)", "print(n + 1)")
        return made

    monkeypatch.setattr("notebooks.execute", execute)
    with pytest.raises(SystemExit, match="take-back"):
        notebooks.make("index", book)
    assert "print(n + 1)" in (book / "index.ipynb").read_text("utf-8")


def test_a_source_that_moved_on_is_no_edit_of_the_ipynb(book):
    replace_in(book / "index.md", "print(n)", "print(n + 1)")
    notebooks.refuse_to_lose(["index"], book)
    assert notebooks.remedy("index", book) == "run `make notebooks PAGE=index`"
    edited = files(book)
    notebooks.take_back("index", book)
    assert files(book) == edited


@pytest.mark.parametrize("other", ["both", "unrecorded"])
def test_two_edits_are_both_kept(book, other, capsys):
    replace_in(book / "index.ipynb", "print(n)", "print(n + 1)")
    if other == "both":
        replace_in(book / "index.md", "# A page", "# The page")
    else:
        replace_in(book / "index.ipynb", '"made_from"', '"made_by"')
    edited = files(book)
    with pytest.raises(SystemExit, match="both edited"):
        notebooks.refuse_to_lose(["index"], book)
    notebooks.take_back("index", book)
    assert files(book) == edited
    taken = (book.parent / "_build" / "taken" / "index.md").read_text("utf-8")
    assert "print(n + 1)" in taken and "# A page" in taken
    assert "_build/taken/index.md" in capsys.readouterr().out


def test_an_ipynb_that_cannot_be_read_holds_no_edit(book):
    (book / "index.ipynb").write_text("<<<<<<< ours\n{}\n")
    notebooks.refuse_to_lose(["index"], book)
    (book / "index.ipynb").unlink()
    notebooks.refuse_to_lose(["index"], book)


def test_form_is_brought_to_both_files_and_leaves_outputs(book):
    formed = files(book)
    header = "---\njupytext: {}\nkernelspec:\n  name: mine\n  display_name: Mine\n---\n"
    (book / "index.md").write_text(header + CELLS)
    replace_in(book / "index.ipynb", "Two: a cell.", "Two: a cell.\\n")
    replace_in(book / "index.ipynb", '"made_from"', '"made_by"')
    notebooks.bring_into_form("index", book)
    assert files(book) == formed
    replace_in(book / "index.ipynb", "print(n)", "print(n + 1)")
    edited = files(book)
    notebooks.bring_into_form("index", book)
    assert files(book) == edited
