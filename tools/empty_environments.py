"""Install the wheel into empty environments, and run student notebooks in them.

    python tools/empty_environments.py WHEEL [ARGUMENT OF UV ...]

A notebook says in its first cell what it needs. Here that command is carried out, with the wheel in
place of the clone, in an environment that has nothing but what runs a notebook, and the notebook is
run in an empty folder. At last the book is built with what `[book]` brings. Temporary folders hold
all of it; the notebooks are those of the built book.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import nbformat
import student_notebooks
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
STUDENTS = ROOT / "_build" / "html" / "notebooks"

# Problem sets with NumPy alone, with PyTorch and with scikit-learn; the pages for practitioners;
# chapters with and without stored results, with Dask, and with data that a package brings.
PAGES = (
    "course/problems_1",
    "course/problems_4",
    "course/problems_8",
    "guide/from_a_file",
    "guide/your_own_data",
    "guide/scores_and_costs",
    "guide/cluster",
    "learning/proper_losses",
    "learning/auto_mpg",
    "calibrating/gp_classification",
    "beyond/costs_unknown",
)
# What a starter may raise as long as nothing is in the place of its `...`.
UNSOLVED = {"AssertionError", "TypeError", "ValueError", "AttributeError"}


def errors(notebook: NotebookNode) -> list[str]:
    """What went wrong in the cells of an executed notebook; starters may fail."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        if cell.execution_count is None:
            found.append(f"was not executed: {cell.source}")
        for output in cell.outputs:
            if output.output_type != "error":
                continue
            if "..." not in cell.source or output.ename not in UNSOLVED:
                found.append(f"{output.ename}: {output.evalue}, in\n{cell.source}")
    return found


def command(page: str, wheel: Path) -> list[str]:
    """What follows `pip` in the command of a page's notebook, with the wheel for the clone."""
    _, *words = shlex.split(student_notebooks.install(page))
    return [f"{wheel}{word[1:]}" if word.startswith(".") else word for word in words]


def run(*arguments: str | Path) -> None:
    """Run a program that sees nothing of this environment, and end with it if it fails."""
    environment = {n: v for n, v in os.environ.items() if n not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["JUPYTER_PREFER_ENV_PATH"] = "1"  # not a kernel of the user's own
    done = subprocess.run(arguments, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"FAILED: {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")


def execute(page: str, programs: Path) -> list[str]:
    """Run a page's notebook in an environment and an empty folder; return what went wrong."""
    with tempfile.TemporaryDirectory() as empty:
        notebook = Path(empty, "notebook.ipynb")
        shutil.copy(STUDENTS / f"{page}_student.ipynb", notebook)
        # In place, so that what was executed before an error is written, too.
        run(programs / "jupyter-execute", "--allow-errors", "--inplace", notebook)
        return errors(nbformat.read(notebook, as_version=4))


def build_book(programs: Path, output: Path) -> None:
    """Build the clone's book with what an environment has."""
    book = programs / "jupyter-book"
    run(book, "build", ROOT, "-q", "-W", "--keep-going", "--path-output", output)


def report(what: str, start: float) -> None:
    """Print how long something took."""
    print(f"{what}, {time.perf_counter() - start:.0f} s", flush=True)


def try_pages(pages: list[str], wheel: Path, uv_arguments: list[str]) -> int:
    """Run notebooks that need the same, and return how many failed; with `[book]`, also build."""
    needed = student_notebooks.install(pages[0])
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        venv.create(folder)
        programs = Path(folder, "bin")
        # uv stands for pip, as it takes a tenth of the time.
        pip = [sys.executable, "-m", "uv", "pip"]
        options = ["-q", "--python", str(programs / "python"), *uv_arguments]
        run(*pip, *command(pages[0], wheel), *options)
        run(*pip, "install", "ipykernel", "nbclient", *options)
        report(needed, start)
        for page in pages:
            start = time.perf_counter()
            found = execute(page, programs)
            report(f"  {page} {'FAILED' if found else 'ran'}", start)
            for problem in found:
                print(problem)
            failed += bool(found)
        if needed == student_notebooks.OF_CHAPTERS:
            start = time.perf_counter()
            run(*pip, "install", "-e", f"{ROOT}[book]", *options)
            build_book(programs, Path(folder, "book"))
            report("  the book was built", start)
    return failed


def main() -> None:
    """Try all, and exit with 1 if a notebook has failed."""
    wheel = Path(sys.argv[1]).resolve()
    failed = 0
    for install in dict.fromkeys(map(student_notebooks.install, PAGES)):
        pages = [page for page in PAGES if student_notebooks.install(page) == install]
        failed += try_pages(pages, wheel, sys.argv[2:])
    if failed:
        sys.exit(f"{failed} of {len(PAGES)} notebooks failed")
    print(f"All {len(PAGES)} notebooks ran, and the book was built.")


if __name__ == "__main__":
    main()
