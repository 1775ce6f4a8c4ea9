"""How far each number that a page prints lies from where its last digit would turn.

    python tools/rounding.py [PAGE ...] [--on NAME ...]

The pages are run as each processor of `processors.py` computes them. In a page and in the modules
of its workshop, whatever an f-string, `format` or `round` makes into digits is kept at its full
precision, and so are the two sides of each comparison that a page asserts or checks. A value whose
distance from the nearest edge of rounding (of a comparison, from equality) is less than ten times
its spread between the processors is told with its page and line: another processor may print
another number.
"""

from __future__ import annotations

import argparse
import ast
import importlib.machinery
import json
import operator
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from string import Formatter
from types import CodeType
from typing import Any

import numpy as np

Record = tuple[str, str | None, list[float]]  # place, format (None: compared), values
ROOM = 10.0
_MOST = 2_000  # values of one array
_COMPARE = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}

# ------------------------------------------------------------------ within the kernel of a page


class Recorded(ast.NodeTransformer):
    """The code with each number that it rounds or compares handed to `record` on the way."""

    def __init__(self, place: str) -> None:
        self.place, self.told = place, False

    def _call(self, node: ast.expr, name: str, *arguments: ast.expr) -> ast.expr:
        place = ast.Constant(f"{self.place}:{node.lineno}")
        called = ast.Call(ast.Name(f"_{name}_", ast.Load()), [*arguments, place], [])
        return ast.fix_missing_locations(ast.copy_location(called, node))

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        """Hand on the value and the format of `{value:.2f}`."""
        self.generic_visit(node)
        if isinstance(node.format_spec, ast.JoinedStr) and node.conversion == -1:
            node.value = self._call(node.value, "printed", node.value, node.format_spec)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Hand on the value of `round(value, digits)`, `value.round(digits)`, `np.round(...)`."""
        function = node.func
        named = getattr(function, "attr", getattr(function, "id", ""))
        self._inside(node, named.startswith(("check", "prose")))
        keywords = [k.value for k in node.keywords if k.arg in ("decimals", "ndigits")]
        given = [*node.args, *keywords]
        if named != "round" or not given:
            return node
        if isinstance(function, ast.Attribute) and len(given) == 1:  # value.round(digits)
            function.value = self._call(node, "rounded", function.value, given[0])
        elif node.args:
            digits = given[1] if len(given) > 1 else ast.Constant(0)
            node.args[0] = self._call(node, "rounded", node.args[0], digits)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Hand on what `"{:.2f}".format` is given."""
        self.generic_visit(node)
        text = node.value
        if node.attr == "format" and isinstance(text, ast.Constant) and isinstance(text.value, str):
            return self._call(node, "formatter", text)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """What is asserted is told."""
        return self._inside(node, True)

    def _inside(self, node: ast.AST, told: bool) -> ast.AST:
        before, self.told = self.told, self.told or told
        self.generic_visit(node)
        self.told = before
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Hand on both sides of a comparison that the page tells."""
        self.generic_visit(node)
        if not self.told or len(node.ops) > 1 or type(node.ops[0]) not in _COMPARE:
            return node
        named = ast.Constant(_COMPARE[type(node.ops[0])])
        return self._call(node, "compared", named, node.left, node.comparators[0])


def start(path: str) -> None:
    """Record this kernel's cells, and the modules of the workshop that they import, in `path`."""
    import builtins

    from IPython import get_ipython

    shell, process = get_ipython(), os.getpid()

    def record(values: object, how: str | None, place: str) -> None:
        try:
            found = np.asarray(values).ravel()
        except (TypeError, ValueError, RuntimeError):
            return
        if os.getpid() == process and 0 < found.size <= _MOST and found.dtype.kind == "f":
            if not place.startswith("bayes"):
                place = f"cell {shell.execution_count - 1}, {place}"
            with open(path, "a", encoding="utf-8") as file:
                print(json.dumps([place, how, found.tolist()]), file=file)

    def printed(value: object, form: str, place: str) -> object:
        record(value, form, place)
        return value

    def rounded(value: object, digits: object, place: str) -> object:
        if isinstance(digits, int):
            record(value, f"z.{max(digits, 0)}f", place)
        return value

    def formatter(text: str, place: str) -> Callable[..., str]:
        forms = [form for _, _, form, _ in Formatter().parse(text) if form is not None]

        def formatted(*values: object, **named: object) -> str:
            for value, form in zip(values, forms, strict=False):
                record(value, form, place)
            return text.format(*values, **named)

        return formatted

    def compared(how: str, left: object, right: object, place: str) -> object:
        try:
            if any(np.asarray(side).dtype.kind == "f" for side in (left, right)):
                record(left - right, None, place)  # type: ignore[operator]
        except (TypeError, ValueError, RuntimeError):
            pass
        return getattr(operator, how)(left, right)

    for function in (printed, rounded, formatter, compared):
        setattr(builtins, f"_{function.__name__}_", function)
    shell.ast_transformers.append(Recorded("line"))

    class Loader(importlib.machinery.SourceFileLoader):
        def get_code(self, fullname: str) -> CodeType:
            tree = Recorded(fullname).visit(ast.parse(self.get_data(self.path)))
            return compile(tree, self.path, "exec", dont_inherit=True)

    class Finder(importlib.machinery.PathFinder):
        @classmethod
        def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
            ours = fullname.startswith("bayesloss_book.")
            spec = super().find_spec(fullname, path, target) if ours else None
            if spec and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
                spec.loader = Loader(spec.loader.name, spec.loader.path)
            return spec

    sys.meta_path.insert(0, Finder)


# --------------------------------------------------------------------------------- what it found


def edge(values: np.ndarray, how: str | None) -> np.ndarray:
    """How far each value lies from where its digits as a format prints them would change."""
    if how is None:
        return np.abs(values)
    form = re.fullmatch(r".*?(?:\.(\d+))?([feEgG%]?)", how)
    if not form or (form[1] is None and not form[2]):
        return np.where(values == np.round(values), np.inf, 0.0)
    digits, kind = int(form[1] or 6), form[2] or "g"
    size = np.abs(values) * (100.0 if kind == "%" else 1.0)
    if kind in "eEgG":
        with np.errstate(divide="ignore"):
            lead = np.floor(np.log10(size))
        places = digits - (kind in "gG") - np.where(np.isfinite(lead), lead, 0)
    else:
        places = np.full(size.shape, float(digits))
    scaled = size * 10.0**places
    far = np.abs(scaled - np.floor(scaled) - 0.5)
    if kind in "f%" and "z" not in how:
        far = np.where((scaled < 0.5) & (values != 0), np.minimum(far, scaled), far)  # -0 or 0
    return far / 10.0**places / (100.0 if kind == "%" else 1.0)


def near(runs: Sequence[Iterable[Record]]) -> list[str]:
    """Say which values lie nearer to an edge than ten times their spread between the runs."""
    by_place: dict[tuple[str, str | None, int], list[np.ndarray]] = defaultdict(list)
    for run in runs:
        seen: dict[tuple[str, str | None], int] = defaultdict(int)
        for place, how, values in run:
            by_place[place, how, seen[place, how]].append(np.array(values))
            seen[place, how] += 1
    worst: dict[str, tuple[float, str]] = {}
    for (place, how, _), seen_by in by_place.items():
        where = f"{place}, " + (f"printed as {how!r}" if how else "compared")
        if len(seen_by) < len(runs) or len({values.shape for values in seen_by}) > 1:
            worst[where] = (0.0, "not on each processor")
            continue
        with np.errstate(invalid="ignore"):
            spread, room = np.ptp(seen_by, axis=0), edge(seen_by[0], how)
        for value, moved, far in zip(seen_by[0], spread, room, strict=True):
            if far < ROOM * moved and (share := far / moved) <= worst.get(where, (ROOM, ""))[0]:
                worst[where] = (share, f"{value:.6g}, spread {moved:.1g}, room {far:.1g}")
    return [f"{where}: {what}" for where, (_, what) in worst.items()]


def record(name: str, path: str) -> None:
    """Execute a page, and record in `path`."""
    import notebooks

    from bayesloss_book.kernels import KERNEL

    first = f"import rounding; rounding.start({path!r})"
    KERNEL["extra_arguments"].append(f"--IPKernelApp.exec_lines={first}")
    notebooks.execute(name)


def run(name: str, processor: Mapping[str, str], path: Path) -> list[Record]:
    """Execute a page as a processor does; return what its kernel recorded."""
    from bayesloss_book.kernels import ENVIRONMENT

    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **ENVIRONMENT, **processor, "PYTHONPATH": here}
    ask = f"import rounding; rounding.record({name!r}, {str(path)!r})"
    subprocess.run([sys.executable, "-c", ask], env=environment, check=True)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [tuple(json.loads(line)) for line in lines]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pages on all processors; the exit status is 1 where a number lacks room."""
    import notebooks
    import processors

    known = notebooks.pages()
    can = processors.possible()
    parser = argparse.ArgumentParser(description="Is there room about the numbers of the pages?")
    parser.add_argument("--on", nargs="+", choices=processors.PROCESSORS, default=can)
    parser.add_argument("page", nargs="*", help="for instance learning/auto_mpg; all if none")
    chosen = parser.parse_args(arguments)
    short = 0
    for name in (name for name in known if name in (chosen.page or known)):
        with tempfile.TemporaryDirectory() as folder:
            runs = [
                run(name, processors.kernels(on), Path(folder) / str(number))
                for number, on in enumerate(chosen.on)
            ]
        found = near(runs)
        short += len(found)
        print(f"{name}: {sum(len(values) for _, _, values in runs[0])} numbers", flush=True)
        for line in found:
            print(f"    {line}", flush=True)
    return int(short > 0)


if __name__ == "__main__":
    sys.exit(main())
