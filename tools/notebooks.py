"""Make the book's notebooks, and run them at the papers' scale.

    python tools/notebooks.py make [PAGE ...]       execute the .md sources into the .ipynb
    python tools/notebooks.py paper [PAGE ...]      run the pages at the papers' scale
    python tools/notebooks.py format [PAGE ...]     bring both files into jupytext's form
    python tools/notebooks.py take-back [PAGE ...]  write the cells of an edited .ipynb into its .md

A page is a MyST file under book/ with a front matter of jupytext's; PAGE is its path without the
suffix, for instance learning/auto_mpg. The .ipynb is made from the .md, never the other way, so
that neither a clock nor a checkout can decide which of the two wins; one that was edited by hand is
not overwritten. nbclient executes it rather than `jupytext --execute`, for it has to be the same to
the byte wherever it is made, and to name the stored results that its kernel read.
"""

import argparse
import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pair
import papermill
from nbclient import NotebookClient
from nbformat import NotebookNode, from_dict
from nbformat.reader import NotJSONError
from nbformat.v4 import new_code_cell

from paperledger.kernels import ENVIRONMENT, KERNEL, STOPPED
from paperledger.stores.orphans import end_with

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"

# Of a page of which neither file is what the .ipynb was made from.
BOTH = (
    "{name}.ipynb and {name}.md were both edited, or the .ipynb does not say what it was made from"
)
# Which stores the kernel read, and their checksums: asked of it in a cell behind the last.
PROBE = """import json, sys
print(json.dumps(getattr(sys.modules.get("paperledger.stores.tables"), "tables_read", {})))"""


def is_page(path: Path) -> bool:
    """Tell whether a .md under book/ is the source of a notebook, by the YAML at its top."""
    return re.match(r"---\n(.+\n)*?jupytext:\n", path.read_text("utf-8")) is not None


def toc_files(root: Path = ROOT) -> list[str]:
    """Return every file that _toc.yml names, in the order of reading."""
    text = (root / "_toc.yml").read_text("utf-8")
    return re.findall(r"^(?:root|[ -]*file): (\S+)$", text, re.MULTILINE)


def pages(book: Path = BOOK) -> list[str]:
    """Return the names of all pages, in the order in which they are executed.

    That is the order of reading, but the reference pages and then the front page come last:
    they show what the other pages' outputs say.
    """
    paths = [path.relative_to(book) for path in sorted(book.rglob("*.md")) if is_page(path)]
    names = [path.with_suffix("").as_posix() for path in paths if "/." not in f"/{path}"]
    listed = [file.removeprefix("book/").rpartition(".")[0] for file in toc_files(book.parent)]
    names.sort(key=lambda name: listed.index(name) if name in listed else len(listed))
    return sorted(names, key=lambda name: (name == "index", name.startswith("reference/")))


def notebook_path(name: str, book: Path = BOOK) -> Path:
    """Return the path of a page's executed notebook."""
    return book / f"{name}.ipynb"


def from_source(name: str, book: Path = BOOK) -> NotebookNode:
    """Return the notebook that a page's .md describes, not executed, with fixed cell ids."""
    notebook = pair.parse((book / f"{name}.md").read_text("utf-8"))
    made_from = pair.sum_of(pair.source_of(notebook))
    notebook.metadata = from_dict(pair.METADATA | {"made_from": made_from, "stores": {}})
    notebook.nbformat = 4
    notebook.nbformat_minor = 5
    for position, cell in enumerate(notebook.cells):
        cell.id = hashlib.sha256(f"{name}:{position}".encode()).hexdigest()[:12]
    return notebook


def execute(name: str, book: Path = BOOK) -> NotebookNode:
    """Execute a page from its source, in the page's own folder."""
    notebook = from_source(name, book)
    metadata = notebook.metadata.copy()
    notebook.cells.append(new_code_cell(PROBE))
    NotebookClient(
        notebook,
        record_timing=False,
        coalesce_streams=True,  # or how text is cut into pieces would depend on the clock
        resources={"metadata": {"path": str(notebook_path(name, book).parent)}},
        **KERNEL,
    ).execute()
    read = {Path(t): s for t, s in json.loads(notebook.cells.pop().outputs[0].text).items()}
    results = book.resolve().parent / "data" / "results"
    metadata["stores"] = {t.stem: read[t] for t in sorted(read) if t.parent == results}
    notebook.metadata = metadata  # the kernel wrote its Python version there
    return notebook


def write(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook so that an interrupted run leaves the old file or the new one."""
    write_text(nbformat.writes(notebook) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Write a file so that an interrupted run leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8", newline="\n")
    os.replace(partial, path)


def stored(name: str, book: Path = BOOK) -> NotebookNode | None:
    """Return a page's .ipynb as it is; None where there is none that can be read."""
    try:
        return nbformat.read(notebook_path(name, book), as_version=4)
    except (FileNotFoundError, NotJSONError):
        return None


def hand_edit(name: str, book: Path = BOOK) -> pair.HandEdit | None:
    """Return what somebody wrote into a page's .ipynb and no .md holds, None if nothing."""
    notebook = stored(name, book)
    text = (book / f"{name}.md").read_text("utf-8")
    return None if notebook is None else pair.hand_edit(notebook, text)


def remedy(name: str, book: Path = BOOK) -> str:
    """Say what makes a page's .ipynb what its .md says, and loses nothing."""
    edit = hand_edit(name, book)
    if edit is None:
        return f"run `make notebooks PAGE={name}`"
    if edit.both:
        said = BOTH.format(name=name)
        return f"{said}: `make take-back PAGE={name}` shows what the .ipynb holds, and keeps both"
    return f"{name}.ipynb was edited: `make take-back PAGE={name}` brings the edit into {name}.md"


def refuse_to_lose(names: list[str], book: Path = BOOK) -> None:
    """Stop where an .ipynb holds what would be lost if it were made again."""
    lost = []
    for name in names:
        edit = hand_edit(name, book)
        if edit is not None:
            lost.append(f"{remedy(name, book)}\n\n{edit.difference}")
    if lost:
        sys.exit("\n\n".join(["Nothing is overwritten.", *lost]))


def make(name: str, book: Path = BOOK) -> None:
    """Execute a page into its .ipynb; one that fails leaves its old file."""
    print(f"{name} ...", end=" ", flush=True)
    start = time.perf_counter()
    bring_into_form(name, book)
    notebook = execute(name, book)
    refuse_to_lose([name], book)  # executing takes long enough to edit a cell
    write(notebook, notebook_path(name, book))
    print(f"{time.perf_counter() - start:.1f} s", flush=True)


def bring_into_form(name: str, book: Path = BOOK) -> None:
    """Write a page's .md as jupytext does; and the .ipynb, with its outputs, where cells agree."""
    path = book / f"{name}.md"
    text = path.read_text("utf-8")
    formed = pair.in_form(text)
    if formed != text:
        write_text(formed, path)
    old = stored(name, book)
    if old is None or pair.in_form(pair.source_of(old)) != formed:
        return
    new = from_source(name, book)
    new.metadata["stores"] = old.metadata.get("stores", {})
    for cell, executed in zip(new.cells, old.cells, strict=True):
        if cell.cell_type == "code":
            cell.execution_count = executed.execution_count
            cell.outputs = executed.outputs
    if new != old:
        write(new, notebook_path(name, book))


def take_back(name: str, book: Path = BOOK) -> None:
    """Write the cells of an edited .ipynb into its .md; beside it where that was edited, too."""
    edit = hand_edit(name, book)
    path = book / f"{name}.md"
    if edit is None:
        print(f"{name}.ipynb holds nothing that {name}.md lacks")
    elif edit.both:
        beside = book.parent / "_build" / "taken" / f"{name}.md"
        write_text(edit.source, beside)
        print(
            f"{edit.difference}\n\n{BOTH.format(name=name)}. {name}.md is as it was, and "
            f"what the .ipynb holds is in {beside.relative_to(book.parent)}. Put into the .md what "
            f"you want of it; then remove {name}.ipynb, and run `make notebooks PAGE={name}`."
        )
    else:
        write_text(edit.source, path)
        print(f"{edit.difference}\n\n{name}.md holds this now: run `make notebooks PAGE={name}`.")


def paper(name: str) -> None:
    """Run a page that has a scale at the papers' scale, into _build/paper.

    The rows that it computes go to data/results as they are done, so that a killed run is
    taken up where it stopped. The committed notebooks are not touched.
    """
    if re.search(r'^scale = "', (BOOK / f"{name}.md").read_text("utf-8"), re.MULTILINE):
        output = ROOT / "_build" / "paper" / f"{name}.ipynb"
        print(f"{name} at the paper's scale -> {output.relative_to(ROOT)}", flush=True)
        write(from_source(name), output)
        how: dict[str, Any] = {"cwd": notebook_path(name).parent, **KERNEL}
        how |= {"stdout_file": sys.stdout, "stderr_file": sys.stderr}
        papermill.execute_notebook(output, output, {"scale": "paper"}, **how)


def main() -> None:
    """Run one of the commands, up to the first page that fails."""
    os.environ.update(ENVIRONMENT)
    known = pages()
    commands = {"make": make, "paper": paper, "format": bring_into_form, "take-back": take_back}
    parser = argparse.ArgumentParser(description="Make and run the book's notebooks.")
    parser.add_argument("command", choices=commands)
    parser.add_argument("page", nargs="*", choices=[[], *known], help="all if none")
    chosen = parser.parse_args()
    if chosen.command == "paper":
        os.environ["PAPERLEDGER_PROGRESS"] = "1"  # a kernel has no terminal of its own to ask
        if "MAKELEVEL" in os.environ:
            end_with(os.getppid())  # a killed `make` would leave this, its kernel and their workers
    names = [name for name in known if name in (chosen.page or known)]
    if chosen.command == "make":
        refuse_to_lose(names)  # before the first is executed, for all may take minutes
    for name in names:
        try:
            commands[chosen.command](name)
        except STOPPED as error:
            said = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # without a terminal's colours
            sys.exit(f"FAILED\n\nbook/{name}.md\n{said}")


if __name__ == "__main__":
    main()
