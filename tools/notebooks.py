"""Make, check and run the book's notebooks.

    python tools/notebooks.py make [PAGE ...]   execute the .md sources into the .ipynb
    python tools/notebooks.py check [PAGE ...]  is each .ipynb's source what its .md says, and were
                                                its stored results those that there are?
    python tools/notebooks.py paper [PAGE ...]  run the pages at the papers' scale (papermill)

A page is a MyST file under book/ whose front matter names a kernel; PAGE is its path without
the suffix, for instance learning/auto_mpg. The .ipynb is made from the .md, never the other
way, so that neither a clock nor a checkout can decide which of the two wins.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import papermill
import yaml
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from papermill.exceptions import PapermillExecutionError

from bayesloss_book.stores.orphans import end_with

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"

# What a kernel sees. The first three are also in the Makefile, for the tests; the date goes
# into SVG figures; the last keeps a user's own "python3" kernel from being taken for ours.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "SOURCE_DATE_EPOCH": "0",
    "JUPYTER_PREFER_ENV_PATH": "1",
}

# Or each kernel warns that it talks over TCP.
QUIET = ["--log-level=ERROR"]

# The same on every machine and for every Python, so that a rerun changes outputs only; and of the
# stores that the kernel read, the checksums.
METADATA = {
    "stores": {},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}

# What the kernel read: asked of it in a cell behind the last.
PROBE = """import json, sys
print(json.dumps(getattr(sys.modules.get("bayesloss_book.stores.tables"), "tables_read", {})))"""


def front_matter(path: Path) -> dict[str, Any]:
    """Return the YAML block at the top of a MyST file, empty where there is none."""
    block = re.match(r"---\n(.*?)\n---\n", path.read_text(encoding="utf-8"), re.DOTALL)
    return (yaml.safe_load(block[1]) or {}) if block else {}


def is_page(path: Path) -> bool:
    """Tell whether a .md under book/ is the source of a notebook."""
    return not {"jupytext", "kernelspec"}.isdisjoint(front_matter(path))


def toc_files(root: Path = ROOT) -> list[str]:
    """Return every file that _toc.yml names, in the order of reading."""

    def walk(node: Any) -> list[str]:
        if isinstance(node, list):
            return [file for item in node for file in walk(item)]
        if isinstance(node, dict):
            own = [node[key] for key in ("root", "file") if key in node]
            return own + [file for value in node.values() for file in walk(value)]
        return []

    return walk(yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8")))


def pages(book: Path = BOOK) -> list[str]:
    """Return the names of all pages, in the order in which they are executed.

    That is the order of reading, but the reference pages and then the front page come last:
    they show what the other pages' outputs say.
    """
    names = [
        path.relative_to(book).with_suffix("").as_posix()
        for path in sorted(book.rglob("*.md"))
        if not any(part.startswith(".") for part in path.relative_to(book).parts) and is_page(path)
    ]
    listed = [file.rpartition(".")[0] for file in toc_files(book.parent)]
    places = {file.partition("/")[2]: place for place, file in enumerate(listed)}

    def key(name: str) -> tuple[bool, bool, int]:
        return name == "index", name.startswith("reference/"), places.get(name, len(places))

    return sorted(names, key=key)


def notebook_path(name: str, book: Path = BOOK) -> Path:
    """Return the path of a page's executed notebook."""
    return book / f"{name}.ipynb"


def from_source(name: str, book: Path = BOOK) -> NotebookNode:
    """Return the notebook that a page's .md describes, not executed, with fixed cell ids."""
    source = (book / f"{name}.md").read_text(encoding="utf-8")
    notebook = jupytext.reads(source, fmt="md:myst")
    notebook.metadata.pop("jupytext", None)
    notebook.metadata.update(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for position, cell in enumerate(notebook.cells):
        cell.id = hashlib.sha256(f"{name}:{position}".encode()).hexdigest()[:12]
    return notebook


def differences(name: str, book: Path = BOOK) -> list[str]:
    """Say where the source in a page's .ipynb is not what its .md says."""
    if not notebook_path(name, book).exists():
        return [f"{name}.ipynb does not exist"]
    stored = nbformat.read(notebook_path(name, book), as_version=4)
    fresh = from_source(name, book)
    shown = stored.metadata.get("stores", {})
    same = stored.metadata == {**fresh.metadata, "stores": shown}
    found = [] if same and "stores" in stored.metadata else ["the notebook's metadata differ"]
    for store, checksum in shown.items():
        table = _results(book) / f"{store}.csv"
        if not table.exists() or hashlib.sha256(table.read_bytes()).hexdigest() != checksum:
            found.append(f"it was executed with another {table.name}")
    if len(stored.cells) != len(fresh.cells):
        found.append(f"the .ipynb has {len(stored.cells)} cells, the .md {len(fresh.cells)}")
    for position, (old, new) in enumerate(zip(stored.cells, fresh.cells, strict=False)):
        for part in ("cell_type", "id", "source", "metadata"):
            if old.get(part) != new.get(part):
                first = (new.source.splitlines() or ["(empty)"])[0]
                found.append(f"cell {position}, {first!r}: another {part}")
    return found


def _results(book: Path) -> Path:
    return book.resolve().parent / "data" / "results"


def execute(name: str, book: Path = BOOK) -> NotebookNode:
    """Execute a page from its source, in the page's own folder."""
    notebook = from_source(name, book)
    metadata = notebook.metadata.copy()
    notebook.cells.append(new_code_cell(PROBE))
    NotebookClient(
        notebook,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,  # or how text is cut into pieces would depend on the clock
        extra_arguments=QUIET,
        resources={"metadata": {"path": str(notebook_path(name, book).parent)}},
    ).execute()
    read = {Path(t): s for t, s in json.loads(notebook.cells.pop().outputs[0].text).items()}
    metadata["stores"] = {t.stem: read[t] for t in sorted(read) if t.parent == _results(book)}
    notebook.metadata = metadata  # the kernel wrote its Python version there
    return notebook


def write(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook so that an interrupted run leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    os.replace(partial, path)


def make(names: Sequence[str]) -> int:
    """Execute pages into their .ipynb; stop at the first that fails and leave its old file."""
    for name in names:
        print(f"{name} ...", end=" ", flush=True)
        start = time.perf_counter()
        try:
            notebook = execute(name)
        except (CellExecutionError, DeadKernelError) as error:
            print(f"FAILED\n\nbook/{name}.md\n{plain(error)}")
            print(f"book/{name}.ipynb is left as it was.")
            return 1
        write(notebook, notebook_path(name))
        print(f"{time.perf_counter() - start:.1f} s", flush=True)
    return 0


def check(names: Sequence[str]) -> int:
    """Report every .ipynb whose source differs from its .md."""
    problems = [f"book/{name}.md: {problem}" for name in names for problem in differences(name)]
    print("\n".join([*problems, "`make notebooks` mends this"] if problems else ["in step"]))
    return 1 if problems else 0


def paper(names: Sequence[str]) -> int:
    """Run every page that has a scale at the papers' scale, into _build/paper.

    The rows that a page computes go to data/results as they are done, so that a killed run is
    taken up where it stopped. The committed notebooks are not touched.
    """
    os.environ["BAYESLOSS_PROGRESS"] = "1"  # a kernel has no terminal of its own to ask
    if "MAKELEVEL" in os.environ:
        end_with(os.getppid())  # a killed `make` would leave this, its kernel and their workers
    for name in (name for name in names if has_scale(from_source(name))):
        output = ROOT / "_build" / "paper" / f"{name}.ipynb"
        print(f"{name} at the paper's scale -> {output.relative_to(ROOT)}", flush=True)
        write(from_source(name), output)
        try:
            papermill.execute_notebook(
                output,
                output,
                parameters={"scale": "paper"},
                kernel_name="python3",
                extra_arguments=QUIET,
                cwd=notebook_path(name).parent,
                stdout_file=sys.stdout,
                stderr_file=sys.stderr,
            )
        except PapermillExecutionError as error:
            print(f"\nbook/{name}.md\n{plain(error)}")
            return 1
    print("Done. `make notebooks` brings the stored results into the pages.")
    return 0


def has_scale(notebook: NotebookNode) -> bool:
    """Tell whether a page's parameters cell defines `scale`."""
    return any(
        isinstance(node, ast.Name) and node.id == "scale" and isinstance(node.ctx, ast.Store)
        for cell in notebook.cells
        if "parameters" in cell.metadata.get("tags", [])
        for node in ast.walk(ast.parse(cell.source))
    )


def plain(error: Exception) -> str:
    """Return an error's text without the colours of a terminal."""
    return re.sub(r"\x1b\[[0-9;]*m", "", str(error))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands; return the exit status."""
    os.environ.update(ENVIRONMENT)
    commands = {"make": make, "check": check, "paper": paper}
    parser = argparse.ArgumentParser(description="Make, check and run the book's notebooks.")
    parser.add_argument("command", choices=commands)
    parser.add_argument("page", nargs="*", help="for instance learning/auto_mpg; all if none")
    chosen = parser.parse_args(arguments)
    known = pages()
    if unknown := sorted(set(chosen.page) - set(known)):
        parser.error(f"no such page: {', '.join(unknown)}; the pages are {', '.join(known)}")
    return commands[chosen.command]([name for name in known if name in (chosen.page or known)])


if __name__ == "__main__":
    sys.exit(main())
