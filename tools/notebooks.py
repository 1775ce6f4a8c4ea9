"""Make the book's notebooks, and run them at the papers' scale.

    python tools/notebooks.py make [PAGE ...]   execute the .md sources into the .ipynb
    python tools/notebooks.py paper [PAGE ...]  run the pages at the papers' scale

A page is a MyST file under book/ whose front matter names a kernel; PAGE is its path without
the suffix, for instance learning/auto_mpg. The .ipynb is made from the .md, never the other
way, so that neither a clock nor a checkout can decide which of the two wins. nbclient executes it
rather than `jupytext --execute`, for it has to be the same to the byte wherever it is made, and to
name the stored results that its kernel read.
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

import jupytext
import nbformat
import papermill
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from bayesloss_book.kernels import ENVIRONMENT, KERNEL, STOPPED
from bayesloss_book.stores.orphans import end_with

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"

# The same on every machine and for every Python, so that a rerun changes outputs only; and of the
# stores that the kernel read, the checksums.
METADATA = {"stores": {}, "language_info": {"name": "python", "pygments_lexer": "ipython3"}}
# What the kernel read: asked of it in a cell behind the last.
PROBE = """import json, sys
print(json.dumps(getattr(sys.modules.get("bayesloss_book.stores.tables"), "tables_read", {})))"""


def is_page(path: Path) -> bool:
    """Tell whether a .md under book/ is the source of a notebook, by the YAML at its top."""
    return re.match(r"---\n(.+\n)*?kernelspec:\n", path.read_text("utf-8")) is not None


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
    notebook = jupytext.reads((book / f"{name}.md").read_text("utf-8"), fmt="md:myst")
    notebook.metadata.pop("jupytext", None)
    notebook.metadata.update(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
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
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    os.replace(partial, path)


def make(name: str) -> None:
    """Execute a page into its .ipynb; one that fails leaves its old file."""
    print(f"{name} ...", end=" ", flush=True)
    start = time.perf_counter()
    write(execute(name), notebook_path(name))
    print(f"{time.perf_counter() - start:.1f} s", flush=True)


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
    parser = argparse.ArgumentParser(description="Make and run the book's notebooks.")
    parser.add_argument("command", choices=["make", "paper"])
    parser.add_argument("page", nargs="*", choices=[[], *known], help="all if none")
    chosen = parser.parse_args()
    if chosen.command == "paper":
        os.environ["BAYESLOSS_PROGRESS"] = "1"  # a kernel has no terminal of its own to ask
        if "MAKELEVEL" in os.environ:
            end_with(os.getppid())  # a killed `make` would leave this, its kernel and their workers
    for name in (name for name in known if name in (chosen.page or known)):
        try:
            (make if chosen.command == "make" else paper)(name)
        except STOPPED as error:
            said = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # without a terminal's colours
            sys.exit(f"FAILED\n\nbook/{name}.md\n{said}")


if __name__ == "__main__":
    main()
