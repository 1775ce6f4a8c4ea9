"""Tell the numbers that a page prints and another processor might print otherwise.

    python tools/rounding.py [PAGE ...] [--on NAME ...]

The pages are run as each processor of `processors.py` computes them. In a page and in the modules
of its workshop, whatever an f-string, `format` or `round` makes into digits is kept at its full
precision, and so is the difference of the two sides of each comparison that a page asserts or
checks. A value that would be printed otherwise, or a comparison that would turn, if it moved by ten
times its spread between the processors is told with its page and line. Comparing outputs, as
`processors.py` does, sees such a number only after it has turned; Verificarlo and CADNA ask this
of compiled code alone.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import functools
import importlib.machinery
import inspect
import json
import operator
import os
import string
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any
from unittest import mock

import numpy as np

Record = tuple[str, str | None, list[float]]  # place, format (None: compared), values
ROOM = 10.0
_MOST = 2_000  # values of one array
_COMPARE = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}


class Recorded(ast.NodeTransformer):
    """The code with each number that it rounds or compares handed to the functions of `start`."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.told = False

    def _call(self, node: ast.expr, name: str, *given: ast.expr) -> ast.Call:
        place = ast.Constant(f"{self.place}:{node.lineno}")
        call = ast.Call(ast.Name(f"_{name}_", ast.Load()), [place, *given], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        """Hand on the value and the format of `{value:.2f}`."""
        self.generic_visit(node)
        if isinstance(node.format_spec, ast.JoinedStr) and node.conversion == -1:
            node.value = self._call(node.value, "printed", node.value, node.format_spec)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Hand on what `"{:.2f}".format` is given."""
        self.generic_visit(node)
        text = node.value
        if node.attr == "format" and isinstance(text, ast.Constant) and isinstance(text.value, str):
            return self._call(node, "formatter", text)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Hand on the value of `round(value, digits)`, `value.round(digits)`, `np.round(...)`."""
        named = getattr(node.func, "attr", getattr(node.func, "id", ""))
        self._inside(node, named.startswith(("check", "prose")))
        if named == "round":
            node.func = self._call(node, "rounding", node.func)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """What is asserted is told."""
        return self._inside(node, True)

    def _inside(self, node: ast.AST, told: bool) -> ast.AST:
        before = self.told
        self.told = self.told or told
        self.generic_visit(node)
        self.told = before
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Hand on both sides of a comparison that the page tells."""
        self.generic_visit(node)
        if not self.told or len(node.ops) > 1 or type(node.ops[0]) not in _COMPARE:
            return node
        how = ast.Constant(_COMPARE[type(node.ops[0])])
        return self._call(node, "compared", how, node.left, node.comparators[0])


def start(path: str) -> None:
    """Record this kernel's cells, and the modules of the workshop that they import, in `path`."""
    from IPython import get_ipython

    shell = get_ipython()
    process = os.getpid()

    def record(place: str, how: str | None, values: object) -> None:
        with suppress(TypeError, ValueError, RuntimeError):  # what is no array, or of no number
            found = np.asarray(values).ravel()
            if os.getpid() == process and 0 < found.size <= _MOST and found.dtype.kind == "f":
                if not place.startswith("bayes"):
                    place = f"cell {shell.execution_count - 1}, {place}"
                with open(path, "a", encoding="utf-8") as file:
                    print(json.dumps([place, how, found.tolist()]), file=file)

    def printed(place: str, value: object, form: str) -> object:
        record(place, form, value)
        return value

    def formatter(place: str, text: str) -> Callable[..., str]:
        noted = string.Formatter()
        vars(noted)["format_field"] = lambda value, form: format(printed(place, value, form), form)
        return functools.partial(noted.format, text)

    def rounding(place: str, function: Any) -> Callable[..., object]:
        owner = getattr(function, "__self__", None)
        bound = [] if owner is None or inspect.ismodule(owner) else [owner]

        def rounded(*given: Any, **named: Any) -> object:
            value, digits, *_ = [*bound, *given, *named.values(), 0]
            columns = dict(value) if hasattr(value, "columns") else {None: value}
            for name, column in columns.items():  # of a table, with digits of their own
                places = digits.get(name) if isinstance(digits, Mapping) else digits
                if isinstance(places, int):
                    record(place, f"z.{max(places, 0)}f", column)
            return function(*given, **named)

        return rounded

    def compared(place: str, how: str, left: Any, right: Any) -> object:
        with suppress(TypeError, ValueError, RuntimeError):
            record(place, None, left - right)
        return getattr(operator, how)(left, right)

    for function in (printed, formatter, rounding, compared):
        setattr(builtins, f"_{function.__name__}_", function)
    shell.ast_transformers.append(Recorded("line"))
    loader = importlib.machinery.SourceFileLoader
    plain = loader.get_code

    def get_code(self: Any, fullname: str) -> CodeType | None:
        if not fullname.startswith(("bayesloss_book.", "paperledger.")):
            return plain(self, fullname)
        tree = Recorded(fullname).visit(ast.parse(self.get_data(self.path)))
        return compile(tree, self.path, "exec", dont_inherit=True)

    loader.get_code = get_code  # type: ignore[method-assign]


def run(name: str, processor: Mapping[str, str], path: Path) -> list[Record]:
    """Execute a page as a processor does; return what its kernel recorded."""
    import notebooks

    from paperledger.kernels import ENVIRONMENT, KERNEL

    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    first = f"--IPKernelApp.exec_lines=import rounding; rounding.start({str(path)!r})"
    arguments = [*KERNEL["extra_arguments"], first]
    with (
        mock.patch.dict(os.environ, {**ENVIRONMENT, **processor, "PYTHONPATH": here}),
        mock.patch.dict(KERNEL, extra_arguments=arguments),
    ):
        notebooks.execute(name)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [tuple(json.loads(line)) for line in lines]


def near(runs: Sequence[Iterable[Record]]) -> list[str]:
    """Say, once a place, which value might turn if it moved by ten times its spread."""
    seen_by: dict[tuple[str, str | None, int], list[np.ndarray]] = defaultdict(list)
    for run in runs:
        times: dict[tuple[str, str | None], int] = defaultdict(int)
        for place, how, values in run:
            seen_by[place, how, times[place, how]].append(np.array(values))
            times[place, how] += 1
    told: dict[str, str] = {}
    for (place, how, _), seen in seen_by.items():
        where = f"{place}, " + (f"printed as {how!r}" if how else "compared")
        if len(seen) < len(runs) or len({values.shape for values in seen}) > 1:
            told[where] = "not on each processor"
            continue
        with np.errstate(invalid="ignore"):
            spread = np.ptp(seen, axis=0)
        for value, moved in zip(seen[0].tolist(), spread.tolist(), strict=True):
            ends = [value - ROOM * moved, value + ROOM * moved]
            said = [format(end, how) if how else f"{end > 0}" for end in ends]
            if said[0] != said[1]:
                told.setdefault(where, f"{value:.6g}, spread {moved:.1g}: {' or '.join(said)}")
    return [f"{where}: {what}" for where, what in told.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pages on all processors; the exit status is 1 where a number lacks room."""
    import notebooks
    import processors

    known = notebooks.pages()
    can = processors.possible()
    parser = argparse.ArgumentParser(description="Is there room about the numbers of the pages?")
    parser.add_argument("--on", nargs="+", choices=processors.PROCESSORS, default=can)
    parser.add_argument("page", nargs="*", choices=[[], *known], help="all if none")
    chosen = parser.parse_args(arguments)
    short = 0
    for name in (name for name in known if name in (chosen.page or known)):
        with tempfile.TemporaryDirectory() as folder:
            paths = {on: Path(folder) / str(number) for number, on in enumerate(chosen.on)}
            runs = [run(name, processors.kernels(on), path) for on, path in paths.items()]
        found = near(runs)
        short += len(found)
        numbers = sum(len(values) for _, _, values in runs[0])
        print(f"{name}: {numbers} numbers", *found, sep="\n    ", flush=True)
    return int(short > 0)


if __name__ == "__main__":
    sys.exit(main())
