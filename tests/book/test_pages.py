"""The pages as they are committed: source, executed notebook and table of contents agree.

Each guard is a function that returns what is wrong, so that it is also shown, further down, to
see what it should see.
"""

import ast
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import notebooks
import pair
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from paperledger.stores.results import run_cells

BOOK = notebooks.BOOK
PAGES = notebooks.pages()

# With these a cell would be executed but not compared, or not even executed.
ESCAPES = {"nbval-skip", "nbval-ignore-output", "raises-exception"}
# nbval compares everything but these.
NOT_COMPARED = {"image/png", "image/jpeg", "application/vnd.jupyter.widget-view+json"}


def code_cells(notebook):
    return [c for c in notebook.cells if c.cell_type == "code" and c.source.strip()]


def compared(notebook) -> Iterator:
    for cell in code_cells(notebook):
        if not ESCAPES & set(cell.metadata.get("tags", [])):
            for output in cell.outputs:
                if output.output_type == "stream" or set(output.get("data", ())) - NOT_COMPARED:
                    yield output


def asks_all(source: str) -> bool:
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return "check_" in source and any(
        ast.unparse(call.func) in ("all", "np.all", "torch.all")
        or (ast.unparse(call.func).endswith(".all") and not call.args and not call.keywords)
        for call in calls
    )


def execution_problems(notebook) -> list[str]:
    cells = code_cells(notebook)
    found = []
    for number, cell in enumerate(cells, start=1):
        first = cell.source.strip().splitlines()[0]
        where = f"code cell {number}, {first!r}"
        if cell.execution_count is None:
            found.append(f"{where}: was not executed")
        if asks_all(cell.source):
            found.append(f"{where}: judges by `all`, which is true of nothing; `every` refuses it")
        if cell.source.rstrip().endswith(";"):
            found.append(f"{where}: ends in `;`, to which nbval is blind; end it in plt.show()")
        for output in cell.outputs:
            if output.output_type == "error":
                found.append(f"{where}: ends in {output.ename}: {output.evalue}")
            if output.output_type == "stream" and output.name == "stderr":
                found.append(f"{where}: writes to stderr: {output.text.strip()[:200]!r}")
    if not any("parameters" in cell.metadata.get("tags", []) for cell in cells):
        found.append("no cell is tagged `parameters`")
    if not any(True for _ in compared(notebook)):
        found.append("no output to compare")
    return found


def differences(name: str, book: Path = BOOK) -> list[str]:
    if not notebooks.notebook_path(name, book).exists():
        return [f"{name}.ipynb does not exist"]
    stored = nbformat.read(notebooks.notebook_path(name, book), as_version=4)
    fresh = notebooks.from_source(name, book)
    shown = stored.metadata.get("stores", {})
    same = stored.metadata == {**fresh.metadata, "stores": shown}
    found = [] if same and "stores" in stored.metadata else ["the notebook's metadata differ"]
    for store, checksum in shown.items():
        table = book.resolve().parent / "data" / "results" / f"{store}.csv"
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


def toc_problems(root: Path) -> list[str]:
    book = root / "book"
    named = notebooks.toc_files(root)
    missing = [file for file in named if not (root / file).is_file()]
    found = [f"_toc.yml names {file}, which does not exist" for file in missing]
    found += [f"_toc.yml names {file} twice" for file in set(named) if named.count(file) > 1]
    for path in sorted([*book.rglob("*.md"), *book.rglob("*.ipynb")]):
        if any(part.startswith((".", "_")) for part in path.relative_to(book).parts):
            continue
        pair = path.with_suffix(".ipynb") if path.suffix == ".md" else path.with_suffix(".md")
        if path.suffix == ".ipynb" and not pair.exists():
            found.append(f"{path.relative_to(root)} has no source {pair.name}")
        is_plain = path.suffix == ".md" and not notebooks.is_page(path)
        page = path if is_plain else path.with_suffix(".ipynb")
        if page.relative_to(root).as_posix() not in named:
            found.append(f"{path.relative_to(root)}: _toc.yml does not name {page.name}")
    return found


def test_table_of_contents():
    assert "index" in PAGES and len(PAGES) > 1
    assert not toc_problems(notebooks.ROOT)


@pytest.mark.parametrize("page", PAGES)
def test_notebook_source_is_what_its_md_says(page):
    assert not differences(page), notebooks.remedy(page)


@pytest.mark.parametrize("page", PAGES)
def test_notebook_is_executed_and_comparable(page):
    notebook = nbformat.read(notebooks.notebook_path(page), as_version=4)
    nbformat.validate(notebook)
    assert not execution_problems(notebook)


def test_every_module_of_the_library_is_on_one_api_page():
    package = notebooks.ROOT / "src" / "bayesloss"
    pages = sorted((BOOK / "reference").glob("api*.md"))
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    reference = re.findall(r"automodule:: (bayesloss\.\S+)", text)
    modules = [
        ".".join(path.relative_to(package.parent).with_suffix("").parts)
        for path in sorted(package.rglob("*.py"))
        if not path.name.startswith("_")
    ]
    assert sorted(reference) == sorted(modules), "book/reference/api_*.md: not each module once"


def executed(**changes):
    show = {
        "source": "print(1)",
        "execution_count": 2,
        "outputs": [new_output("stream", text="1\n")],
    }
    return new_notebook(
        cells=[
            new_markdown_cell("# A page"),
            new_code_cell("n = 1", execution_count=1, metadata={"tags": ["parameters"]}),
            new_code_cell(**(show | changes)),
        ]
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"execution_count": None}, "was not executed"),
        ({"source": "plt.plot(x);"}, "ends in `;`"),
        ({"source": "check_statement('wn-x', {'a': (all(found), '1')})"}, "judges by `all`"),
        ({"source": "check_statement('wn-x', {'a': ((x > 0).all(), '1')})"}, "judges by `all`"),
        ({"outputs": []}, "no output to compare"),
        ({"metadata": {"tags": ["nbval-skip"]}}, "no output to compare"),
        (
            {"outputs": [new_output("display_data", data={"image/png": "iVBOR"})]},
            "no output to compare",
        ),
        ({"outputs": [new_output("stream", name="stderr", text="10%")]}, "writes to stderr"),
        (
            {"outputs": [new_output("error", ename="ValueError", evalue="no", traceback=[])]},
            "ends in ValueError",
        ),
    ],
)
def test_guard_sees_a_bad_cell(changes, said):
    assert any(said in problem for problem in execution_problems(executed(**changes)))


def test_guard_passes_what_is_right_and_sees_missing_parameters():
    notebook = executed()
    assert execution_problems(notebook) == []
    del notebook.cells[1].metadata["tags"]
    assert execution_problems(notebook) == ["no cell is tagged `parameters`"]


HEADER = pair.in_form("")
CELL = "```{code-cell} ipython3\n:tags: [hide-input]\n\nprint(1)\n```\n"


@pytest.fixture
def small_book(tmp_path):
    book = tmp_path / "book"
    book.mkdir()
    (tmp_path / "_toc.yml").write_text(
        "format: jb-book\nroot: book/index.ipynb\nchapters:\n  - file: book/plain.md\n"
    )
    (book / "index.md").write_text(f"{HEADER}\n# The front\n\n{CELL}")
    (book / "plain.md").write_text("# Plain\n")
    notebooks.write(notebooks.from_source("index", book), book / "index.ipynb")
    return tmp_path


def test_guards_pass_a_book_in_order(small_book):
    assert toc_problems(small_book) == []
    assert notebooks.pages(small_book / "book") == ["index"]
    assert differences("index", small_book / "book") == []


def test_guard_sees_files_that_the_table_of_contents_lacks_and_those_that_are_missing(small_book):
    (small_book / "book" / "forgotten.md").write_text("# Forgotten\n")
    (small_book / "book" / "orphan.ipynb").write_text("{}")
    (small_book / "book" / "plain.md").unlink()
    assert toc_problems(small_book) == [
        "_toc.yml names book/plain.md, which does not exist",
        "book/forgotten.md: _toc.yml does not name forgotten.md",
        "book/orphan.ipynb has no source orphan.md",
        "book/orphan.ipynb: _toc.yml does not name orphan.ipynb",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("print(1)", "print(2)", "another source"),
        ("# The front", "# The back", "another source"),
        ("hide-input", "hide-cell", "another metadata"),
        (CELL, CELL + "\n" + CELL, "has 2 cells, the .md 3"),
    ],
)
def test_guard_sees_a_source_that_differs(small_book, old, new, said):
    source = small_book / "book" / "index.md"
    source.write_text(source.read_text().replace(old, new))
    problems = differences("index", small_book / "book")
    assert any(said in problem for problem in problems)


def test_guard_sees_other_cell_ids(small_book):
    path = small_book / "book" / "index.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[0].id = "by-hand"
    notebooks.write(notebook, path)
    assert "another id" in differences("index", small_book / "book")[0]


def square(n: int) -> dict[str, int]:
    return {"square": n**2}


def test_guard_sees_a_store_that_has_changed_since(small_book):
    book = small_book / "book"
    results = small_book / "data" / "results"
    run_cells(square, [{"n": 2}], results, "numbers")
    shows = CELL.replace("print(1)", 'print(load_results("../data/results", "numbers")["square"])')
    load = CELL.replace("print(1)", "from paperledger.stores.results import load_results")
    (book / "index.md").write_text(f"{HEADER}\n# The front\n\n{load}\n{shows}")
    notebook = notebooks.execute("index", book)
    assert [len(cell.get("outputs", [])) for cell in notebook.cells] == [0, 0, 1]
    notebooks.write(notebook, book / "index.ipynb")
    assert differences("index", book) == []
    run_cells(square, [{"n": 2}, {"n": 3}], results, "numbers")
    assert differences("index", book) == ["it was executed with another numbers.csv"]
    (results / "numbers.csv").unlink()
    assert differences("index", book) == ["it was executed with another numbers.csv"]
