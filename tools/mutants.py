"""Put faults into the library, one at a time, and see whether the unit tests notice.

    python tools/mutants.py [--n 60] [--seed 0]

Candidates come from the syntax of `src/bayesloss` alone, never from the tests: lines are drawn in
proportion, then one of the faults that a line can have. Each is put into a copy of the tree, where
the tests run up to the first failure, those whose path is nearest to the module's first. mutmut and
cosmic-ray do every fault with one command for all tests, which would take days, and know neither
cosines nor arguments in each other's place.

What came out is stored, and not done again: whether the fault was caught, by which test, and what
that said. One that takes more seconds of processor time than `SECONDS` is `slow`.
"""

import argparse
import ast
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "_build" / "mutants.json"
SECONDS = 900

PAIRS = [(ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)]
PAIRS += [(ast.Eq, ast.NotEq), (ast.And, ast.Or)]
OTHER: dict[type[ast.AST], type[ast.AST]] = {a: b for p in PAIRS for a, b in (p, p[::-1])}
WORDS = "sin cos, min max, minimum maximum, sum mean, floor ceil, any all, argmin argmax, triu tril"
TWINS = {a: b for p in f"{WORDS}, log log1p".split(", ") for a, b in (p.split(), p.split()[::-1])}
TWINS |= {"expm1": "exp", "std": "var"}
NO_UNIT = ("book", "ledger_code", "peers", "tools", "test_project.py")  # of the tests


class Fault(NamedTuple):
    """One fault: the bytes `start` to `end` of a file are another text."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def into(self, text: str) -> str:
        """The text of the file with the fault in it."""
        whole = text.encode()
        return (whole[: self.start] + self.new.encode() + whole[self.end :]).decode()


def faults(file: str, text: str) -> Iterator[Fault]:
    """The faults that a module can have."""
    whole = text.encode()
    begins = [0, *accumulate(map(len, whole.splitlines(keepends=True)))]
    for node in _computing(ast.parse(text)):
        start = begins[node.lineno - 1] + node.col_offset
        end = begins[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        for new in map(ast.unparse, _others(node)):
            if new != ast.unparse(node):
                old = whole[start:end].decode()
                yield Fault(file, node.lineno, start, end, old, f"({new})")


def _others(node: ast.expr) -> Iterator[ast.expr]:
    """What may stand in the place of an expression by mistake."""

    def changed(**fields: Any) -> ast.expr:
        return type(node)(**vars(node) | fields)

    match node:
        case ast.BinOp(left=left, op=op) if type(op) in OTHER:
            yield changed(op=OTHER[type(op)]())
            if not (isinstance(op, ast.Add | ast.Sub) and isinstance(left, ast.Constant)):
                yield left  # a term, or a factor, is dropped
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield operand
        case ast.Compare(ops=[op]) if type(op) in OTHER:
            yield changed(ops=[OTHER[type(op)]()])
        case ast.BoolOp(op=op):
            yield changed(op=OTHER[type(op)]())
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(2 * value if value else 1.0)
        case ast.Attribute(attr=name) if name in TWINS:
            yield changed(attr=TWINS[name])
        case ast.Call(args=[first, second, *rest]):
            if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
                yield changed(args=[second, first, *rest])


def _computing(tree: ast.AST) -> Iterator[ast.expr]:
    """The expressions that compute: no annotations, texts, refusals or warnings."""
    fields = vars(tree)
    spared = [fields.get("annotation"), fields.get("returns"), *fields.get("decorator_list", [])]
    for child in ast.iter_child_nodes(tree):
        warns = isinstance(child, ast.Expr) and "warn" in ast.unparse(child)
        if warns or child in spared or isinstance(child, ast.Raise | ast.JoinedStr):
            continue
        if isinstance(child, ast.expr):
            yield child
        yield from _computing(child)


def draw(root: Path, n: int, seed: int) -> list[Fault]:
    """As many faults on as many lines."""
    lines: dict[tuple[str, int], list[Fault]] = {}
    for path in sorted((root / "src/bayesloss").rglob("*.py")):
        for fault in faults(path.relative_to(root).as_posix(), path.read_text("utf-8")):
            lines.setdefault((fault.file, fault.line), []).append(fault)
    generator = random.Random(seed)
    return [generator.choice(lines[key]) for key in generator.sample(sorted(lines), len(lines))[:n]]


def test_files(root: Path, module: str) -> list[str]:
    """The unit tests, a module's own first, then the nearest; last those of the book."""
    folder = Path("tests", *Path(module).parts[2:-1])
    own = folder / f"test_{Path(module).name}"

    def far(path: Path) -> tuple[bool, bool, int, Path]:
        near = len(os.path.commonpath([path.parent, folder]))
        return path != own, "book_code" in path.parts, -near, path

    tests = [path.relative_to(root) for path in (root / "tests").rglob("test_*.py")]
    return [path.as_posix() for path in sorted(tests, key=far) if path.parts[1] not in NO_UNIT]


def run(tree: Path, tests: list[str]) -> tuple[str, str, str]:
    """Tests in a copy of the project: what came out, which failed first, and what it said."""
    settings = {"PYTHONPATH": f"{tree}/src:{tree}/tools", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "--benchmark-disable"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", *tests],
        cwd=tree,
        env=os.environ | settings,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS,) * 2),
        capture_output=True,
        text=True,
    )
    if done.returncode <= 0:
        return "slow" if done.returncode else "lived", "", ""
    first = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    return "caught", first[1] if first else "pytest itself", done.stdout[-4000:]


def main() -> None:
    """Draw faults, run the tests on each, and store what came out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    stored = json.loads(STORE.read_text("utf-8")) if STORE.exists() else []
    done = {tuple(entry["fault"]) for entry in stored}
    STORE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "_build"))
        for fault in (f for f in draw(tree, given.n, given.seed) if tuple(f) not in done):
            path = tree / fault.file
            text = (tree / fault.file).read_text("utf-8")
            path.write_text(fault.into(text), "utf-8")
            result, by, said = run(tree, test_files(tree, fault.file))
            path.write_text(text, "utf-8")
            if by and (told := run(tree, [by.partition("::")[0]]))[0] != "lived":
                sys.exit(f"expected tests that pass without a fault, got {told[1]}:\n{told[2]}")
            stored.append({"fault": fault, "result": result, "by": by, "said": said})
            STORE.write_text(json.dumps(stored, indent=1, ensure_ascii=False), "utf-8")
            print(f"{result:6} {fault.file}:{fault.line}  {fault.old}  ->  {fault.new}   {by}")


if __name__ == "__main__":
    main()
