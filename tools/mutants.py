"""Put faults into the library, one at a time, and see whether the unit tests notice.

Candidates come from the syntax of `src/bayesloss` alone, never from the tests: lines are drawn in
proportion, then one of the faults that a line can have (a sign, a factor, a comparison, one more or
less, a dropped term, arguments in each other's place, sine for cosine). Each is put into a copy of
the tree. First the module's own tests run there, then others that import it, then those of the
library's modules that import it, the nearest first, then those of the book's; the first failure
ends it. Each file of tests runs in a fork of a process that has imported what takes long.

    python tools/mutants.py [--n 60] [--seed 0] [--seconds 300] [--out mutants.json]

stores the fault, whether it was caught, by which test, and what that test said and stands on; what
is stored already is not done again. A file of tests that catches one must pass without it. The
seconds are of processor time, for one fault; one that takes more is `slow`: look at it.
"""

import argparse
import ast
import importlib
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
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]

OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
TWINS = {
    **{a: b for pair in ("sin cos", "min max", "minimum maximum", "sum mean", "floor ceil")
       for a, b in (pair.split(), pair.split()[::-1])},
    "log1p": "log", "expm1": "exp", "log": "log1p", "any": "all", "all": "any",
    "std": "var", "argmin": "argmax", "argmax": "argmin", "triu": "tril", "tril": "triu",
}  # fmt: skip


class Fault(NamedTuple):
    """One fault: bytes `start` to `end` of a file's line are another text."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def into(self, text: str) -> str:
        """The text of the file with the fault in it."""
        lines = text.splitlines(keepends=True)
        whole = lines[self.line - 1].encode()
        before, after = whole[: self.start], whole[self.end :]
        lines[self.line - 1] = (before + self.new.encode() + after).decode()
        return "".join(lines)


def faults(file: str, text: str) -> Iterator[Fault]:
    """The faults that a module can have, each within one line."""
    rows = [row.encode() for row in text.splitlines()]
    tree = ast.parse(text)

    def source(node: ast.expr) -> str:
        return rows[node.lineno - 1][node.col_offset : node.end_col_offset].decode()

    def put(node: ast.expr, new: str) -> Iterator[Fault]:
        if node.lineno == node.end_lineno:
            yield Fault(
                file, node.lineno, node.col_offset, node.end_col_offset or 0, source(node), new
            )

    def between(left: ast.expr, right: ast.expr, operator: ast.AST) -> Iterator[Fault]:
        """Another operator between two operands on one line."""
        old, new = OPERATORS.get(type(operator), ("", ""))
        if not old or left.end_lineno != right.lineno:
            return
        row = rows[right.lineno - 1]
        # From the right: brackets may close after the left operand or open before the right one.
        at = row.rfind(old.encode(), left.end_col_offset, right.col_offset)
        if at >= 0:
            yield Fault(file, right.lineno, at, at + len(old), old, new)

    for node in _statements(tree):
        if isinstance(node, ast.BinOp):
            yield from between(node.left, node.right, node.op)
            if isinstance(node.op, ast.Add | ast.Sub) and not isinstance(node.left, ast.Constant):
                if node.lineno == node.end_lineno:  # a term, or a factor, is dropped
                    yield from put(node, source(node.left))
            elif isinstance(node.op, ast.Mult | ast.Div) and node.lineno == node.end_lineno:
                yield from put(node, source(node.left))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
            if node.lineno == node.end_lineno:
                yield from put(node, source(node.operand))
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from between(node.left, node.comparators[0], node.ops[0])
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from between(left, right, node.op)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield from put(node, str(node.value + 1))
        elif isinstance(node, ast.Constant) and type(node.value) is float:
            yield from put(node, repr(2 * node.value if node.value else 1.0))
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield from put(node, str(not node.value))
        elif isinstance(node, ast.Attribute) and node.attr in TWINS:
            if node.lineno == node.end_lineno:
                yield from put(node, f"{source(node.value)}.{TWINS[node.attr]}")
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            first, second = node.args[:2]
            if first.lineno == second.end_lineno and source(first) != source(second):
                row = rows[first.lineno - 1]
                gap = row[first.end_col_offset : second.col_offset].decode()
                if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
                    old = source(first) + gap + source(second)
                    yield Fault(
                        file, first.lineno, first.col_offset, second.end_col_offset or 0,
                        old, source(second) + gap + source(first),
                    )  # fmt: skip


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that compute: no annotations, texts, refusals, warnings or imports."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(
                child, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr
            ):
                continue
            if isinstance(child, ast.Expr) and "warn" in ast.unparse(child):
                continue
            yield child
            yield from _statements(child)


def candidates(root: Path) -> dict[tuple[str, int], list[Fault]]:
    """The faults of the library by file and line."""
    found: dict[tuple[str, int], list[Fault]] = {}
    for path in sorted((root / "src/bayesloss").rglob("*.py")):
        name, text = path.relative_to(root).as_posix(), path.read_text("utf-8")
        for fault in faults(name, text):
            if fault.new != fault.old:
                found.setdefault((name, fault.line), []).append(fault)
    return found


def draw(root: Path, n: int, seed: int) -> list[Fault]:
    """As many faults on as many lines; a fault after which nothing compiles is drawn again."""
    lines, generator = candidates(root), random.Random(seed)
    drawn = []
    for key in generator.sample(sorted(lines), len(lines)):
        fault = generator.choice(lines[key])
        try:
            compile(fault.into((root / fault.file).read_text("utf-8")), fault.file, "exec")
        except SyntaxError:
            continue
        drawn.append(fault)
        if len(drawn) == n:
            break
    return drawn


# ------------------------------------------------------------------------------- the tests


def importers(root: Path) -> dict[str, set[str]]:
    """Which modules, by file, import each module, in both packages."""
    files = {
        ".".join(path.relative_to(root / "src").with_suffix("").parts).removesuffix(".__init__"):
        path.relative_to(root).as_posix()
        for path in sorted((root / "src").rglob("*.py"))
    }  # fmt: skip
    found: dict[str, set[str]] = {}
    for file in files.values():
        for node in ast.walk(ast.parse((root / file).read_text("utf-8"))):
            names = (
                [f"{node.module}.{name.name}" for name in node.names] + [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [name.name for name in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            for name in names:
                if name in files and not files[name].endswith("__init__.py"):
                    found.setdefault(files[name], set()).add(file)
    return found


def test_files(root: Path, module: str) -> list[str]:
    """The tests that should see a fault in a module: its own, then those nearest to it."""
    graph, seen, ring = importers(root), {module}, [module]
    library: list[str] = []
    book: list[str] = []
    while ring:
        for file in ring:
            path = Path(file)
            inside = path.relative_to(Path("src", *path.parts[1:2]))
            house = "tests" if path.parts[1] == "bayesloss" else "tests/book_code"
            test = f"{house}/{inside.parent.as_posix()}/test_{inside.name}".replace("/./", "/")
            if (root / test).is_file():
                (library if house == "tests" else book).append(test)
        if ring == [module]:  # next those of all modules, and of others that import this one alone
            library.append("tests/test_defaults.py")
            name = ".".join(Path(module).with_suffix("").parts[1:])
            library += [
                path.relative_to(root).as_posix()
                for path in sorted((root / "tests").rglob("test_*.py"))
                if path.relative_to(root).parts[1] not in ("book", "book_code")
                and f"from {name} import" in path.read_text("utf-8")
            ]
        ring = sorted({user for file in ring for user in graph.get(file, ())} - seen)
        seen |= set(ring)
    return list(dict.fromkeys(library + book))


# Imported once, for all runs: they take longer than most tests do.
HEAVY = (
    "hypothesis matplotlib.pyplot pandas scipy.integrate scipy.optimize scipy.stats sympy torch "
    "sklearn.gaussian_process sklearn.isotonic sklearn.linear_model "
    "sklearn.utils.estimator_checks yaml"
)


def run(copy: Path, test: str, seconds: float) -> tuple[str, str, str]:
    """One test file, in a fork: what came out, the first test that failed, and what it said."""
    log = copy / "log"
    if (child := os.fork()) == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1,) * 2)
        file = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.chdir(copy)
        sys.path[:0] = paths = [str(copy / "src"), str(copy / "tools")]
        os.environ["PYTHONPATH"] = ":".join(paths)  # of what the tests start
        sys.dont_write_bytecode = True
        options = ["-x", "-q", "--tb=short", "-p", "no:cacheprovider", "--benchmark-disable"]
        os._exit(int(pytest.main([*options, test])))
    _, status = os.waitpid(child, 0)
    said = log.read_text("utf-8", errors="replace")
    if os.WIFSIGNALED(status):
        return "slow", test, ""
    if os.WEXITSTATUS(status) == 0:
        return "passed", "", ""
    which = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.M)
    told = [line for line in said.splitlines() if re.match(r"E  |>  |\S+:\d+: ", line)]
    stands = said.partition(" what this test stands on -")[2].partition("\n=")[0]
    told = told[:25] + stands.splitlines()[1:]
    return "caught", which[1] if which else test, "\n".join(told)


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Draw faults, run the tests on each, and store what came out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300.0, help="of processor time")
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    given = parser.parse_args()
    stored = json.loads(given.out.read_text("utf-8")) if given.out.exists() else []
    done = {tuple(entry["fault"]) for entry in stored}
    sound = set[str]()  # files of tests that passed without a fault
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    os.environ |= {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    for name in HEAVY.split():
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in filter(None, listed):
            if name.startswith(("src/", "tests/", "tools/", "data/", "pyproject.toml")):
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, copy / name)
        for fault in draw(copy, given.n, given.seed):
            if tuple(fault) in done:
                continue
            start, text = _processor_time(), (copy / fault.file).read_text("utf-8")
            (copy / fault.file).write_text(fault.into(text), "utf-8")
            passed: list[str] = []
            entry: dict[str, Any] = {"fault": fault, "result": "lived", "by": "", "said": ""}
            for test in test_files(copy, fault.file):
                left = given.seconds - (_processor_time() - start)
                if left <= 0:
                    entry["result"] = "slow"
                    break
                result, by, said = run(copy, test, left)
                if result != "passed":
                    entry |= {"result": result, "by": by, "said": said}
                    break
                passed.append(test)
            (copy / fault.file).write_text(text, "utf-8")
            if entry["result"] == "caught" and test not in sound:
                result, by, said = run(copy, test, given.seconds)
                if result != "passed":
                    sys.exit(f"expected tests that pass without a fault, got {by}:\n{said}")
                sound.add(test)
            entry |= {"passed": passed, "seconds": round(_processor_time() - start)}
            stored.append(entry)
            given.out.write_text(json.dumps(stored, indent=1, ensure_ascii=False), "utf-8")
            print(
                f"{entry['result']:6} {fault.file}:{fault.line}  {fault.old}  ->  {fault.new}"
                f"   {entry['by']}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
