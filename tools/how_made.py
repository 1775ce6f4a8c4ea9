"""Sphinx extension: figures and tables say how they were made, pages how to make them again.

Nothing of it is typed by hand. From what a cell shows, the names in its code are followed
backwards through the page: to the functions that made it, the parameters, and the stored results
with their provenance. A caption that names another function than the one that drew is a warning,
so the build fails. What records provenance elsewhere (Sumatra, DVC) says which run made a file, not
which lines of a page made a figure.
"""

from __future__ import annotations

import ast
import base64
import gzip
import inspect
import json
import pkgutil
import re
import symtable
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging

RESULTS = Path(__file__).resolve().parents[1] / "data" / "results"

PACKAGES = ("bayesloss", "bayesloss_book")
# What every page uses says nothing about one figure.
EVERYWHERE = {f"bayesloss_book.{name}" for name in ("figures", "ledger.checks", "stores.results")}
# Parameters that say where and on how many cores, not what comes out.
PLUMBING = {"book", "n_jobs", "results", "scale"}

logger = logging.getLogger(__name__)


# ------------------------------------------------------------------------- what the code says


class Origin(NamedTuple):
    """Where something shown comes from; names of functions are whole, in the order of the code."""

    functions: list[str]
    parameters: dict[str, str]
    stores: list[str]


class Code:
    """The code of one page: its cells in order, of which one is tagged `parameters`."""

    def __init__(self, cells: Sequence[str], parameters: int, stores: Sequence[str]) -> None:
        self.cells = [ast.parse(source).body for source in cells]
        self.stores = stores
        self.values = {
            name: ast.unparse(statement.value)
            for statement in self.cells[parameters]
            if isinstance(statement, ast.Assign)
            for name in _flow(statement)[1]
        }
        self._imported: dict[str, Any] = {}
        every = (node for cell in self.cells for node in cell)
        imports: list[ast.stmt] = [
            node for node in every if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        exec(compile(ast.Module(imports, []), "imports", "exec"), self._imported)

    def drawing(self, place: int) -> list[str]:
        """Return the functions called `draw_...` or `..._slider` that a cell calls."""
        calls = [name for statement in self.cells[place] for name in self._calls(statement)]
        return [name for name in calls if ".draw_" in name or name.endswith("_slider")]

    def origin(self, place: int) -> Origin:
        """Return where that comes from which a cell shows.

        It is what the last statement with a drawing function shows, or else the last one.
        """
        drawing = set(self.drawing(place))
        cell = self.cells[place]
        shown = [at for at, s in enumerate(cell) if drawing & set(self._calls(s))]
        end = (shown or [len(cell) - 1])[-1]
        needed, kept = _flow(cell[end])[0] - self._imported.keys(), [cell[end]]
        earlier = [s for before in self.cells[:place] for s in before] + cell[:end]
        for statement in reversed(earlier):
            read, bound = _flow(statement)
            if needed & (bound | _changed(statement)):
                kept.insert(0, statement)
                if not isinstance(statement, ast.If):
                    needed -= bound  # what they were before does not matter
                needed |= read - self._imported.keys()
        names = {name for statement in kept for name in _names(statement)} - PLUMBING
        return Origin(
            list(dict.fromkeys(name for statement in kept for name in self._calls(statement))),
            {name: value for name, value in self.values.items() if name in names},
            self.loaded(kept),
        )

    def loaded(self, statements: Iterable[ast.stmt]) -> list[str]:
        """Return the names of the stored results that statements mention, if they read any."""
        loading = {"results", "load_results", "load_provenance"}
        read = [node for s in statements if _flow(s)[0] & loading for node in ast.walk(s)]
        named = {node.value: None for node in read if isinstance(node, ast.Constant)}
        return [name for name in map(str, named) if name in self.stores]

    def _calls(self, statement: ast.stmt) -> list[str]:
        """Return the package's functions and classes that a statement calls or hands on."""
        found = []
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute | ast.Name):
                thing: Any = self._resolve(node)
                home = getattr(thing, "__module__", None) or ""
                callable_ = inspect.isfunction(thing) or inspect.isclass(thing)
                if callable_ and home.partition(".")[0] in PACKAGES and home not in EVERYWHERE:
                    found.append(f"{home}.{thing.__qualname__}")
        return found

    def _resolve(self, node: ast.expr) -> Any:
        """Return the imported object that an expression such as ``isgp.slopes`` names, or None."""
        if isinstance(node, ast.Name):
            return self._imported.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._resolve(node.value)
            return getattr(owner, node.attr, None) if inspect.ismodule(owner) else None
        return None


def _flow(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """Return the names that a statement needs from before it, and those that it binds."""
    read, bound = set[str](), set[str]()
    if isinstance(statement, ast.For):
        for step in [ast.Assign([statement.target], statement.iter, lineno=1), *statement.body]:
            needs, binds = _flow(step)
            read, bound = read | needs - bound, bound | binds
        return read, bound
    tables = [symtable.symtable(ast.unparse(statement), "cell", "exec")]
    for table in tables:
        tables += table.get_children()
        outermost = table is tables[0]
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (outermost or symbol.is_global()):
                read.add(symbol.get_name())
            if symbol.is_assigned() and outermost:
                bound.add(symbol.get_name())
    return read if isinstance(statement, ast.Assign | ast.AugAssign) else read - bound, bound


def _names(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def _changed(statement: ast.stmt) -> set[str]:
    """Return the names of what a statement changes in place: ``x[0] = y``, ``x.append(y)``."""
    found = set()
    for node in ast.walk(statement):
        match node:
            case ast.Subscript(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
                found |= _names(node.value)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner))):
                found |= _names(owner)
    return found


# ------------------------------------------------------------------------------- what it shows


def add_notes(app: Sphinx, doctree: nodes.document) -> None:
    """Put a note under each figure and table of a page, and how to make the page at its foot."""
    path = Path(app.env.doc2path(app.env.docname))
    if path.suffix != ".ipynb":
        return
    cells = json.loads(path.read_text("utf-8"))["cells"]
    places = [at for at, cell in enumerate(cells) if cell["cell_type"] == "code"]
    tags = [cells[at]["metadata"].get("tags", []) for at in places]
    sources = ["".join(cells[at]["source"]) for at in places]
    page = app.env.docname.removeprefix("book/")
    stores = {path.name.partition(".")[0]: path for path in RESULTS.glob("*.provenance.json")}
    provenance = {name: json.loads(path.read_text("utf-8")) for name, path in stores.items()}
    parameters = next(at for at, given in enumerate(tags) if "parameters" in given)
    code = Code(sources, parameters, list(stores))
    for cell in doctree.findall(nodes.container):
        if kind := _kind(cell):
            place = places.index(cell["cell_index"])
            said = _check_caption(cell, code.drawing(place))
            cell.children[-1].append(_note(kind, code.origin(place), said, page, provenance))
    end = doctree.children[-1]
    (end if isinstance(end, nodes.section) else doctree).append(
        _foot(page, code, {name: provenance[name] for name in code.loaded(chain(*code.cells))})
    )


def _kind(cell: nodes.container) -> str | None:
    """Return what a cell shows that wants a note; a claim checked is none of these."""
    if cell.get("nb_element") != "cell_code":
        return None
    if any(str(c.get("mime_type", "")).startswith("image/") for c in cell.findall(nodes.container)):
        return "figure"
    html = "".join(raw.astext() for raw in cell.findall(nodes.raw))
    if 'class="claim ' in html:
        return None
    if "type='range'" in html or 'type="range"' in html:
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


def _note(
    kind: str, origin: Origin, named: list[str], page: str, provenance: Mapping[str, dict[str, Any]]
) -> nodes.Element:
    """The note under a figure or table, without functions that its caption has named."""
    said = f"`make notebooks PAGE={page}` runs the code above{_with(origin.parameters)}."
    calls = [_described(name) for name in origin.functions if name not in named]
    if calls:
        said += " It calls the functions below."
    for name in origin.stores:
        said += f" It shows the stored results `{name}`, {_when(provenance[name])}."
    return _details(f"Make this {kind} again", _paragraph(said), *_list(calls))


def _described(name: str) -> str:
    """A function's name and what its docstring begins with: the book's have no API page."""
    first = (inspect.getdoc(pkgutil.resolve_name(name)) or "").partition("\n\n")[0]
    plain = re.sub(r":(?!math:)\w+:`~?([^`]*)`", r"\1", first.replace("\n", " "))
    return f"<{name}>: " + re.sub(r":math:`([^`]*)`", r"$\1$", plain.replace("``", ""))


def _foot(page: str, code: Code, stores: Mapping[str, dict[str, Any]]) -> nodes.Element:
    """The box at the foot of a page: its notebook, the commands, its stored results."""
    link = addnodes.download_reference("", "", reftarget=f"/book/{page}.ipynb")
    file = f"{page.rpartition('/')[2]}.ipynb"
    link += nodes.literal(file, file)
    shown = {name: value for name, value in code.values.items() if name not in PLUMBING}
    make = f"`make notebooks PAGE={page}` executes it again from `book/{page}.md`{_with(shown)}."
    parts = [_paragraph(f", executed. {make}")]
    parts[0][:0] = [nodes.strong("", "This page as a notebook: "), link]
    if "scale" in code.values:
        measured = "first measures, at the paper's scale, what is missing in `data/results`."
        parts.append(_paragraph(f"`make paper PAGE={page}` {measured}"))
    if stores:
        summary = "Where the stored results on this page come from"
        parts.append(_details(summary, *_list(_store(*each) for each in stores.items())))
    return nodes.container("", *parts, classes=["made-page"])


def _store(name: str, provenance: Mapping[str, Any]) -> str:
    """What the foot of a page says of one of its stores."""
    rows = sum(run["cells"] - run.get("replaced", 0) for run in provenance["runs"])
    given = _with({n: json.dumps(v) for n, v in provenance["parameters"].items()}, " with ")
    commits = ", ".join(dict.fromkeys(run["commit"][:10] for run in provenance["runs"]))
    versions = ", ".join(map(" ".join, provenance["runs"][-1]["versions"].items()))
    function = provenance["function"].replace(":", ".")
    return (
        f"`{name}`: {rows:,} rows by <{function}>{given}; {_when(provenance)}; "
        f"commit {commits}; {versions}."
    )


def _when(provenance: Mapping[str, Any]) -> str:
    """Say when, on what and for how long stored results were measured."""
    runs = provenance["runs"]
    days = sorted({run["end"][:10] for run in runs})
    processors = dict.fromkeys(run["processor"] for run in runs)
    seconds = sum(run["seconds"] for run in runs)
    took = f"{seconds / 3600:.1f} hours" if seconds >= 6000 else f"{seconds:,.0f} seconds"
    jobs = sorted({run["n_jobs"] for run in runs})
    workers = " or ".join(map(str, jobs)) + (" worker" if jobs == [1] else " workers")
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"measured {span} on {', '.join(processors)} in {took} with {workers}"


def _with(values: Mapping[str, str], begin: str = ", with ") -> str:
    """Parameters with their values; a value too long to read in a line is left out."""
    shown = [f"`{n} = {v}`" if len(v) <= 50 else f"`{n}`" for n, v in values.items()]
    return begin + ", ".join(shown) if shown else ""


def _details(summary: str, *content: nodes.Element) -> nodes.Element:
    opening = f'<details class="made"><summary>{summary}</summary>'
    ends = [nodes.raw("", text, format="html") for text in (opening, "</details>")]
    return nodes.container("", ends[0], *content, ends[1], classes=["made-box"])


def _list(texts: Iterable[str]) -> list[nodes.Element]:
    items = [nodes.list_item("", _paragraph(text)) for text in texts]
    return [nodes.bullet_list("", *items)] if items else []


def _paragraph(text: str) -> nodes.paragraph:
    """A text with code in backticks, formulas between dollar signs, functions in brackets."""
    made = {"`": lambda code: nodes.literal(code, code), "$": lambda tex: nodes.math("", tex)}
    made["<"] = _function
    parts = re.split(r"(`[^`]+`|\$[^$]+\$|<[a-z_]+\.[\w.]+>)", text)
    inside = [made[p[0]](p[1:-1]) if at % 2 else nodes.Text(p) for at, p in enumerate(parts)]
    return nodes.paragraph("", "", *inside)


def _function(name: str) -> nodes.Element:
    """A function's name, which Sphinx links where an API page has it: the library's."""
    link = addnodes.pending_xref(
        "", refdomain="py", reftype="obj", reftarget=name, refexplicit=True, refwarn=False
    )
    short = name.removeprefix("bayesloss.").removeprefix("bayesloss_book.")
    link += nodes.literal(short, short)
    return link


def carry_notebooks(app: Sphinx, exception: Exception | None) -> None:
    """Put a script beside each notebook that can be downloaded, which saves it from a disk too."""
    if not exception:
        for path in Path(app.outdir).glob("**/*.ipynb"):
            packed = base64.b64encode(gzip.compress(path.read_bytes(), mtime=0)).decode()
            script = f"saveNotebook({json.dumps(path.name)}, '{packed}');\n"
            path.with_name(f"{path.name}.js").write_text(script, "utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Work before Sphinx collects the files that can be downloaded, and when it has copied them."""
    app.connect("doctree-read", add_notes, priority=400)
    app.connect("build-finished", carry_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
