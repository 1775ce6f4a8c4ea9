"""Sphinx extension: figures and tables say how they were made, pages how to make them again.

Nothing of it is typed by hand. From what a cell shows, the names in its code are followed
backwards through the page: to the functions that made it, the parameters, and the stored results
with their provenance. A caption that names another function than the one that drew is a warning,
so the build fails. Sumatra and DVC say which run made a file, not which lines made a figure.
"""

import ast
import base64
import gzip
import inspect
import json
import pkgutil
import re
import symtable
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging

from paperledger.stores.provenance import UNRECORDED, current_runs, described
from paperledger.stores.tables import read

RESULTS = Path(__file__).resolve().parents[1] / "data" / "results"
PACKAGES = ("bayesloss", "bayesloss_book", "paperledger")
# What every page uses says nothing about one figure.
EVERYWHERE = {
    "bayesloss_book.drawing.figures",
    "paperledger.ledger.checks",
    "paperledger.stores.results",
}
# Parameters that say where and on how many cores, not what comes out.
PLUMBING = {"book", "n_jobs", "results", "scale"}

logger = logging.getLogger(__name__)


class Origin(NamedTuple):
    """Where something shown comes from; names of functions are whole, in the order of the code."""

    functions: list[str]
    parameters: dict[str, str]
    stores: list[str]


class Code:
    """The code of one page: its cells in order, of which one is tagged `parameters`."""

    def __init__(self, cells: Sequence[str], parameters: int, stores: Mapping[str, Any]) -> None:
        self.cells = [ast.parse(source).body for source in cells]
        self.stores = stores
        self.values = {
            name: ast.unparse(statement.value)
            for statement in self.cells[parameters]
            if isinstance(statement, ast.Assign)
            for name in sorted(_flow(statement)[1])
        }
        self._imported: dict[str, Any] = {}
        for statement in chain(*self.cells):
            if isinstance(statement, ast.Import | ast.ImportFrom):
                exec(ast.unparse(statement), self._imported)

    def drawing(self, *statements: ast.stmt) -> list[str]:
        """Return the functions called `draw_...` or `..._slider` that statements call."""
        calls = self._calls(*statements)
        return [name for name in calls if ".draw_" in name or name.endswith("_slider")]

    def origin(self, place: int) -> Origin:
        """Return where that comes from which a cell shows.

        It is what the last statement with a drawing function shows, or else the last one.
        """
        cell = self.cells[place]
        end = max((at for at, s in enumerate(cell) if self.drawing(s)), default=len(cell) - 1)
        kept = list[ast.stmt]()
        needed = set[str]()
        used = set[str]()
        for statement in reversed([*chain(*self.cells[:place]), *cell[: end + 1]]):
            read, bound = _flow(statement)
            if not kept or needed & (bound | _changed(statement)):
                kept.insert(0, statement)
                if not isinstance(statement, ast.If):
                    needed -= bound  # what they were before does not matter
                needed |= read - self._imported.keys()
                used |= read | bound
        parameters = {name: value for name, value in self.values.items() if name in used}
        return Origin(list(dict.fromkeys(self._calls(*kept))), parameters, self.loaded(kept))

    def loaded(self, statements: Iterable[ast.stmt]) -> list[str]:
        """Return the names of the stored results that statements mention, if they read any."""
        loading = {"results", "load_results", "load_provenance"}
        read = [node for s in statements if _flow(s)[0] & loading for node in ast.walk(s)]
        named = {node.value: None for node in read if isinstance(node, ast.Constant)}
        return [name for name in map(str, named) if name in self.stores]

    def _calls(self, *statements: ast.stmt) -> list[str]:
        """Return the package's functions and classes that statements call or hand on."""
        found = []
        for node in chain(*map(ast.walk, statements)):
            thing = self._resolve(node)
            if inspect.isfunction(thing) or inspect.isclass(thing):
                home = thing.__module__
                if home.startswith(PACKAGES) and home not in EVERYWHERE:
                    found.append(f"{home}.{thing.__qualname__}")
        return found

    def _resolve(self, node: ast.AST) -> Any:
        """Return the imported object that an expression such as ``isgp.slopes`` names, or None."""
        match node:
            case ast.Name(id=name):
                return self._imported.get(name)
            case ast.Attribute(value=value, attr=name):
                owner = self._resolve(value)
                return getattr(owner, name, None) if inspect.ismodule(owner) else None


@cache
def _flow(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """Return the names that a statement needs from before it, and those that it binds."""
    read = set[str]()
    bound = set[str]()
    if isinstance(statement, ast.For):
        for step in [ast.Assign([statement.target], statement.iter, lineno=1), *statement.body]:
            needs, binds = _flow(step)
            read = read | needs - bound
            bound = bound | binds
        return read, bound
    tables = [symtable.symtable(ast.unparse(statement), "cell", "exec")]
    bound = {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_assigned()}
    for table in tables:
        tables += table.get_children()
        used = (symbol for symbol in table.get_symbols() if symbol.is_referenced())
        read |= {symbol.get_name() for symbol in used if symbol.is_global()}
    return read if isinstance(statement, ast.Assign | ast.AugAssign) else read - bound, bound


@cache
def _changed(statement: ast.stmt) -> set[str]:
    """Return the names of what a statement changes in place: ``x[0] = y``, ``x.append(y)``."""
    found = set()
    for node in ast.walk(statement):
        match node:
            case (
                ast.Subscript(value=owner, ctx=ast.Store())
                | ast.Attribute(value=owner, ctx=ast.Store())
                | ast.Expr(value=ast.Call(func=ast.Attribute(value=owner)))
            ):
                found |= {name.id for name in ast.walk(owner) if isinstance(name, ast.Name)}
    return found


def add_notes(app: Sphinx, doctree: nodes.document) -> None:
    """Put a note under each figure and table of a page, and how to make the page at its foot."""
    path = Path(app.env.doc2path(app.env.docname))
    if path.suffix != ".ipynb":
        return
    cells = nbformat.read(path, as_version=4).cells
    sources = [cell.source if cell.cell_type == "code" else "" for cell in cells]
    tagged = ("parameters" in cell.metadata.get("tags", []) for cell in cells)
    page = app.env.docname.removeprefix("book/")
    files = RESULTS.glob("*.provenance.json")
    stores = {file.name.partition(".")[0]: json.loads(file.read_text("utf-8")) for file in files}
    code = Code(sources, [*tagged].index(True), stores)
    for cell in doctree.findall(nodes.container):
        if kind := _kind(cell):
            place = cell["cell_index"]
            named = _check_caption(cell, code.drawing(*code.cells[place]))
            cell.children[-1].append(_note(kind, code.origin(place), named, page, code))
    doctree.children[-1].append(_foot(page, code))


def _kind(cell: nodes.container) -> str | None:
    """Return what a cell shows that wants a note; a claim checked is none of these."""
    html = "".join(raw.astext() for raw in cell.findall(nodes.raw))
    if cell.get("nb_element") != "cell_code" or 'class="claim ' in html:
        return None
    kinds = [str(output.get("mime_type")) for output in cell.findall(nodes.container)]
    if "type='range'" in html or any(kind.startswith("image/") for kind in kinds):
        return "figure"
    return "table" if "<table" in html else None


def _check_caption(cell: nodes.container, drawing: list[str]) -> list[str]:
    """Link the functions that a caption names; return those of them that drew."""
    said = []
    for caption in cell.findall(nodes.caption):
        for literal in list(caption.findall(nodes.literal)):
            for name in drawing:
                if name.endswith(f".{literal.astext()}"):
                    said.append(name)
                    literal.replace_self(_function(name))
        if "rawn by" in caption.astext() and drawing and not said:
            logger.warning("the caption names no function that drew: %s", drawing, location=cell)
    return said


def _note(kind: str, origin: Origin, named: list[str], page: str, code: Code) -> nodes.Element:
    """The note under a figure or table, without functions that its caption has named."""
    said = f"`make notebooks PAGE={page}` runs the code above{_with(origin.parameters)}."
    calls = [_described(name) for name in origin.functions if name not in named]
    if calls:
        said += " It calls the functions below."
    for name in origin.stores:
        said += f" It shows the stored results `{name}`, {_when(code.stores[name])}."
    return _details(f"Make this {kind} again", calls, _paragraph(said))


def _described(name: str) -> str:
    """A function's name and what its docstring begins with: the book's have no API page."""
    first = (inspect.getdoc(pkgutil.resolve_name(name)) or "").partition("\n\n")[0]
    plain = re.sub(r":(?!math:)\w+:`~?([^`]*)`", r"\1", first.replace("\n", " "))
    return f"<{name}>: " + re.sub(r":math:`([^`]*)`", r"$\1$", plain.replace("``", ""))


def _foot(page: str, code: Code) -> nodes.Element:
    """The box at the foot of a page: its notebook, the commands, its stored results."""
    link = addnodes.download_reference("", "", reftarget=f"/book/{page}.ipynb")
    file = f"{page.rpartition('/')[2]}.ipynb"
    link += nodes.literal(file, file)
    make = f"`make notebooks PAGE={page}` executes it again from `book/{page}.md`"
    parts = [_paragraph(f", executed. {make}{_with(code.values)}.")]
    parts[0][:0] = [nodes.strong("", "This page as a notebook: "), link]
    if "scale" in code.values:
        measured = "first measures, at the paper's scale, what is missing in `data/results`."
        parts.append(_paragraph(f"`make paper PAGE={page}` {measured}"))
    if told := [_store(name, code.stores[name]) for name in code.loaded(chain(*code.cells))]:
        parts.append(_details("Where the stored results on this page come from", told))
    return nodes.container("", *parts, classes=["made-page"])


def _store(name: str, provenance: Mapping[str, Any]) -> str:
    """What the foot of a page says of one of its stores."""
    rows = len(read(RESULTS / f"{name}.csv")[0])
    given = _with({n: json.dumps(v) for n, v in provenance["parameters"].items()}, " with ")
    commits = ", ".join(dict.fromkeys(run["commit"][:10] for run in current_runs(provenance)))
    versions = ", ".join(map(" ".join, provenance["runs"][-1]["versions"].items()))
    function = provenance["function"].replace(":", ".")
    made = f"{rows:,} rows by <{function}>{given}; {_when(provenance)}"
    return f"`{name}`: {made}; commit {commits}; {versions}."


def _when(provenance: Mapping[str, Any]) -> str:
    """Say when, on what and for how long stored results were measured."""
    runs = current_runs(provenance)
    days = sorted({run["end"][:10] for run in runs})
    processors = dict.fromkeys(described(run).removesuffix(UNRECORDED) for run in runs)
    seconds = sum(run["seconds"] for run in runs)
    took = f"{seconds / 3600:.1f} hours" if seconds >= 6000 else f"{seconds:,.0f} seconds"
    jobs = sorted({run["n_jobs"] for run in runs})
    workers = " or ".join(map(str, jobs)) + (" worker" if jobs == [1] else " workers")
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"measured {span} on {', '.join(processors)} in {took} with {workers}"


def _with(values: Mapping[str, str], begin: str = ", with ") -> str:
    """Parameters with their values; a value too long to read in a line is left out."""
    told = {n: v for n, v in values.items() if n not in PLUMBING}
    shown = [f"`{n} = {v}`" if len(v) <= 50 else f"`{n}`" for n, v in told.items()]
    return begin + ", ".join(shown) if shown else ""


def _details(summary: str, listed: list[str], *content: nodes.Element) -> nodes.Element:
    opening = f'<details class="made"><summary>{summary}</summary>'
    ends = [nodes.raw("", text, format="html") for text in (opening, "</details>")]
    if listed:
        items = [nodes.list_item("", _paragraph(text)) for text in listed]
        content = (*content, nodes.bullet_list("", *items))
    return nodes.container("", ends[0], *content, ends[1], classes=["made-box"])


def _paragraph(text: str) -> nodes.paragraph:
    """A text with code in backticks, formulas between dollar signs, functions in brackets."""
    made = {"`": lambda code: nodes.literal(code, code), "$": lambda tex: nodes.math("", tex)}
    made["<"] = _function
    parts = re.split(r"(`[^`]+`|\$[^$]+\$|<[a-z_]+\.[\w.]+>)", text)
    inside = [made[p[0]](p[1:-1]) if at % 2 else nodes.Text(p) for at, p in enumerate(parts)]
    return nodes.paragraph("", "", *inside)


def _function(name: str) -> nodes.Element:
    """A function's name, which Sphinx links where an API page has it: the library's."""
    short = name.partition(".")[2]
    place = {"refdomain": "py", "reftype": "obj", "reftarget": name}
    return addnodes.pending_xref("", nodes.literal(short, short), **place)


def carry_notebooks(app: Sphinx, exception: Exception | None) -> None:
    """Put a script beside each notebook that can be downloaded, which saves it from a disk too."""
    if not exception:
        for path in Path(app.outdir).glob("**/*.ipynb"):
            packed = base64.b64encode(gzip.compress(path.read_bytes(), mtime=0)).decode()
            script = f"saveNotebook({json.dumps(path.name)}, '{packed}');\n"
            path.with_name(f"{path.name}.js").write_text(script, "utf-8")


def setup(app: Sphinx) -> None:
    """Work before Sphinx collects the files that can be downloaded, and when it has copied them."""
    app.connect("doctree-read", add_notes, priority=400)
    app.connect("build-finished", carry_notebooks)
