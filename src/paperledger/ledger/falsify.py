"""What wrong number would change each verdict: a check that cannot fail shows nothing.

A cell with checks is executed again and again, with one value in it wrong each time, until the
verdict is another one. The first that does it is the claim's *falsifier*. Tolerances, notes and
texts are left alone: they decide nothing, or would decide anything.

    python -m paperledger.ledger.falsify [PAGE ...]

writes the file of `falsifiers` that the configuration names. A test should find claims without a
falsifier, and cells that changed since.
"""

import ast
import builtins
import contextlib
import copy
import hashlib
import io
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import product, zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import matplotlib
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd

from paperledger.configuration import configuration
from paperledger.ledger import checks
from paperledger.ledger.claims import Finding
from paperledger.pages import notebooks

# From a slip to a gross error; the first that is noticed is told.
FAULTS: Mapping[str, Callable[[Any], Any]] = {
    "1 % larger": lambda value: value * 1.01,
    "a third larger": lambda value: value * (4 / 3),
    "of the other sign": lambda value: -value,
    "larger by 1": lambda value: value + 1,  # the only one for whole numbers
    "the same under every reading": lambda values: 0 * values + values.mean(),
}
# What would decide anything if it were wrong, or nothing.
SPARED = {"tolerance", "note", "by", "digits", "clear", "error", "limit", "allowed", "id"}
SECONDS = 20  # of processor time, for the faults of one cell


class Falsifier(NamedTuple):
    """A wrong number that a check notices."""

    page: str
    cell: str  # digest of the cell's code
    expression: str  # what was made wrong
    fault: str  # how
    verdict: str  # what came out


def falsifiers() -> Mapping[str, Falsifier]:
    """The companion's stored falsifiers, by claim; none where nothing was stored yet."""
    return read_falsifiers(configuration().falsifiers)


def read_falsifiers(path: Path) -> Mapping[str, Falsifier]:
    """The falsifiers in a file, by claim; none where there is no file yet."""
    stored = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return {id: Falsifier(**entry) for id, entry in stored.items()}


def digest(source: str) -> str:
    """A digest of a cell's code; comments, layout and Python's version do not change it."""
    return hashlib.sha256(repr(_bare(ast.parse(source))).encode()).hexdigest()[:12]


def _bare(node: object) -> object:
    """A syntax tree as lists, without what is empty: versions of Python differ in that alone."""
    if isinstance(node, ast.AST):
        fields = [(name, _bare(value)) for name, value in ast.iter_fields(node)]
        return [type(node).__name__, *(pair for pair in fields if pair[1] not in (None, []))]
    return [_bare(each) for each in node] if isinstance(node, list) else node


def falsify_page(name: str, book: Path) -> dict[str, Falsifier]:
    """Find a falsifier for each claim that a page checks; claims without one are left out."""
    notebook = nbformat.read(book / f"{name}.ipynb", as_version=4)
    found: dict[str, Falsifier] = {}
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with _as_a_notebook(book / Path(name).parent):
        for cell in notebook.cells:
            if cell.cell_type != "code":
                continue
            before = dict(namespace)
            verdicts = _run(ast.parse(cell.source), namespace)
            if not verdicts:
                continue
            for id, (expression, fault, verdict) in falsify(cell.source, before, verdicts).items():
                found[id] = Falsifier(name, digest(cell.source), expression, fault, verdict)
    return found


def falsify(
    source: str, namespace: Mapping[str, Any], verdicts: Mapping[str, str]
) -> dict[str, tuple[str, str, str]]:
    """Make one value of a cell wrong at a time, until each verdict has changed."""
    tree = ast.parse(source)
    found = dict[str, tuple[str, str, str]]()
    places = list(_places(tree))
    starts = [  # the top-level statement that a place is in
        next(k for k, part in enumerate(tree.body) if any(n is node for n in ast.walk(part)))
        for node in places
    ]
    before = _before_each(tree, namespace)
    end = time.process_time() + SECONDS
    for group in _near_and_far(tree, places):
        for (fault, wrong), place in product(FAULTS.items(), group):
            if set(found) == set(verdicts) or time.process_time() > end:
                return found
            node = places[place]
            expression = ast.unparse(node)
            spoilt = _Wrong(node).visit(copy.deepcopy(tree, {id(node): node}))
            rest = ast.Module(spoilt.body[starts[place] :], [])
            names = {key: _fresh(value) for key, value in before[starts[place]].items()}
            whole = fault == "larger by 1"
            names["_wrong"] = lambda value, by=wrong, w=whole: _spoil(value, by, w)
            try:
                changed = _run(ast.fix_missing_locations(rest), names)
            except Exception:  # a fault may break the cell: then it does not tell a wrong number
                continue
            for id_, verdict in changed.items():
                if id_ in verdicts and id_ not in found and verdict != verdicts[id_]:
                    found[id_] = expression, fault, verdict
    return found


def _before_each(tree: ast.Module, namespace: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the names of a cell stand for before each of its statements."""
    names = dict(namespace)
    before = []
    for statement in tree.body:
        before.append({key: _fresh(value) for key, value in names.items()})
        _run(ast.Module([statement], []), names)
    return before


def _fresh(value: Any) -> Any:
    """A container of its own, since the next run may fill it again; what it holds is shared."""
    if type(value) in (list, set):
        return type(value)(_fresh(item) for item in value)
    if type(value) is dict:
        return {key: _fresh(item) for key, item in value.items()}
    return value


def _near_and_far(tree: ast.Module, places: list[ast.expr]) -> tuple[list[int], list[int]]:
    """The places within calls of checks, each call in turn, and the others."""
    calls = [
        {id(part) for part in ast.walk(node)}
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("check_")
    ]
    within = [[k for k, node in enumerate(places) if id(node) in call] for call in calls]
    near = dict.fromkeys(k for turn in zip_longest(*within) for k in turn if k is not None)
    return list(near), [k for k in range(len(places)) if k not in near]


class _Wrong(ast.NodeTransformer):
    """Puts ``_wrong(...)`` around one node."""

    def __init__(self, node: ast.AST) -> None:
        self.node = node

    def visit(self, node: ast.AST) -> Any:
        if node is self.node and isinstance(node, ast.expr):
            return ast.Call(ast.Name("_wrong", ast.Load()), [node], [])
        return self.generic_visit(node)


def _places(tree: ast.AST) -> Iterator[ast.expr]:
    """The values in a cell that can be made wrong, in the order of the code: see `_VALUES`."""
    for field, value in ast.iter_fields(tree):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.Import):
                continue
            if isinstance(child, ast.keyword) and child.arg in SPARED:
                continue
            if isinstance(tree, ast.Call) and field == "func":
                yield from _places(child)
                continue
            if isinstance(child, ast.Name) and child.id in SPARED | set(dir(builtins)):
                continue
            if (
                isinstance(child, _VALUES)
                and isinstance(getattr(child, "ctx", ast.Load()), ast.Load)
                and not (
                    isinstance(child, ast.Call) and ast.unparse(child.func).startswith("check_")
                )
            ):
                yield child
            yield from _places(child)


_VALUES = ast.Call | ast.Name | ast.Subscript | ast.BinOp | ast.Dict | ast.DictComp


def _spoil(value: Any, by: Callable[[Any], Any], whole: bool) -> Any:
    """A number, or numbers, made wrong; whole numbers if asked; anything else as it is."""
    kinds = "fiu" if whole else "f"
    if by is FAULTS["the same under every reading"]:
        if type(value) is dict and value and all(isinstance(v, float) for v in value.values()):
            return by(pd.Series(value)).to_dict()
        return value
    if isinstance(value, bool | np.bool_):
        return value
    if isinstance(value, float | np.floating) or (whole and isinstance(value, int | np.integer)):
        return by(value)
    torch = sys.modules.get("torch")
    if torch and isinstance(value, torch.Tensor):
        number = value.is_floating_point() or (whole and value.dtype != torch.bool)
        return by(value) if number else value
    if isinstance(value, np.ndarray | pd.Series):
        return by(value) if value.dtype.kind in kinds else value
    if isinstance(value, pd.DataFrame):
        return value.apply(lambda column: by(column) if column.dtype.kind in kinds else column)
    if type(value) in (list, tuple):
        return type(value)(_spoil(item, by, whole) for item in value)
    if type(value) is dict:
        return {key: _spoil(item, by, whole) for key, item in value.items()}
    return value


def _run(tree: ast.Module, namespace: dict[str, Any]) -> dict[str, str]:
    """Execute a cell; the verdicts of its checks, whatever the ledger says."""
    findings: list[Finding] = []

    def settle(finding: Finding) -> Finding:
        findings.append(finding)
        return finding

    with patch.object(checks, "_settle", settle):
        exec(compile(tree, "<cell>", "exec"), namespace)
    plt.close("all")
    return {finding.id: finding.verdict for finding in findings}


@contextlib.contextmanager
def _as_a_notebook(folder: Path) -> Iterator[None]:
    """Where and how a page is executed, with nothing shown."""
    here = Path.cwd()
    matplotlib.use("agg")
    nothing = lambda *_, **__: None  # noqa: E731
    with (
        patch("myst_nb.glue", nothing),
        patch.object(builtins, "display", nothing, create=True),
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def main(names: list[str]) -> int:
    """Find the falsifiers of some pages of the companion, or of all, and store them."""
    book = configuration().pages
    path = configuration().falsifiers
    stored = dict(read_falsifiers(path))
    failed = 0
    for name, page in notebooks(book).items():
        if (names and name not in names) or "check_" not in page.read_text("utf-8"):
            continue
        start = time.monotonic()
        try:
            found = falsify_page(name, book)
        except Exception:
            traceback.print_exc()
            failed += 1
            continue
        stored = {id: known for id, known in stored.items() if known.page != name} | found
        entries = {id: falsifier._asdict() for id, falsifier in sorted(stored.items())}
        text = json.dumps(entries, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", "utf-8")
        print(f"{name}: {len(found)} falsifiers, {time.monotonic() - start:.0f} s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
