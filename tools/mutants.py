"""Put faults into the library, one at a time, and see whether the unit tests notice.

Candidates come from the syntax of `src/bayesloss` alone, never from the tests: lines are drawn in
proportion, then one of the faults that a line can have (a sign, a factor, a comparison, one more or
less, a dropped term, arguments in each other's place, sine for cosine). Each is put into a copy of
the tree. First the module's own tests run there, then those that import it, the nearest first; the
first failure ends it. mutmut and cosmic-ray do every fault with one command for all tests; this
draws sixty and asks the nearest tests first, in forks of a process that has imported what takes
long, which makes it hours less.

    python tools/mutants.py [--n 60] [--seed 0] [--seconds 300] [--out mutants.json]

stores the fault, whether it was caught, by which test, and what that test said and stands on; what
is stored already is not done again. A file of tests that catches one must pass without it. The
seconds are of processor time, for one fault; one that takes more is `slow`: look at it.
"""

import argparse
import ast
import copy
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

_PAIRS = (
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.And, ast.Or),
)
OTHER: dict[type[ast.AST], type[ast.AST]] = {a: b for p in _PAIRS for a, b in (p, p[::-1])}
TWINS = {
    **{a: b for pair in ("sin cos", "min max", "minimum maximum", "sum mean", "floor ceil",
                         "any all", "argmin argmax", "triu tril", "log log1p")
       for a, b in (pair.split(), pair.split()[::-1])},
    "expm1": "exp", "std": "var",
}  # fmt: skip


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
    rows = [row.encode() for row in text.splitlines(keepends=True)]
    begins = [sum(map(len, rows[:at])) for at in range(len(rows))]
    for node in _computing(ast.parse(text)):
        for other in _others(node):
            start = begins[node.lineno - 1] + node.col_offset
            end = begins[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            old, new = text.encode()[start:end].decode(), ast.unparse(other)
            simple = isinstance(other, ast.Constant | ast.Name | ast.Attribute | ast.Call)
            if new != ast.unparse(node):
                yield Fault(file, node.lineno, start, end, old, new if simple else f"({new})")


def _others(node: ast.expr) -> Iterator[ast.expr]:
    """What may stand in the place of an expression by mistake."""

    def changed(**fields: Any) -> ast.expr:
        new = copy.copy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        return new

    match node:
        case ast.BinOp(left=left, op=op):
            if type(op) in OTHER:
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
    """The expressions that compute: no annotations, texts, refusals, warnings or imports."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            spared = ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr
            if not isinstance(child, ast.AST) or isinstance(child, spared):
                continue
            if isinstance(child, ast.Expr) and "warn" in ast.unparse(child):
                continue
            if isinstance(child, ast.expr):
                yield child
            yield from _computing(child)


def draw(root: Path, n: int, seed: int) -> list[Fault]:
    """As many faults on as many lines; a fault after which nothing compiles is drawn again."""
    lines: dict[tuple[str, int], list[Fault]] = {}
    texts = {
        path.relative_to(root).as_posix(): path.read_text("utf-8")
        for path in sorted((root / "src/bayesloss").rglob("*.py"))
    }
    for name, text in texts.items():
        for fault in faults(name, text):
            lines.setdefault((name, fault.line), []).append(fault)
    generator, drawn = random.Random(seed), list[Fault]()
    for key in generator.sample(sorted(lines), len(lines)):
        fault = generator.choice(lines[key])
        try:
            compile(fault.into(texts[fault.file]), fault.file, "exec")
        except SyntaxError:
            continue
        drawn.append(fault)
        if len(drawn) == n:
            break
    return drawn


# ------------------------------------------------------------------------------- the tests


def importers(root: Path) -> dict[str, set[str]]:
    """Which files, of both packages and of the tests, import each module."""
    files = {
        ".".join(path.relative_to(root / "src").with_suffix("").parts): str(path.relative_to(root))
        for path in sorted((root / "src").rglob("*.py"))
        if path.name != "__init__.py"
    }
    found: dict[str, set[str]] = {}
    for path in [*(root / "src").rglob("*.py"), *(root / "tests").rglob("test_*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [name.name for name in getattr(node, "names", ()) if hasattr(name, "name")]
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names] + [node.module or ""]
            for name in names:
                if name in files:
                    found.setdefault(files[name], set()).add(str(path.relative_to(root)))
    return found


def test_files(root: Path, module: str) -> list[str]:
    """The tests that should see a fault in a module: its own, then those nearest to it.

    Those of the library's modules come before those of the book's.
    """
    own = "/".join(["tests", *Path(module).parts[2:-1], f"test_{Path(module).name}"])
    graph, seen, ring = importers(root), {module}, [module]
    met = [own, "tests/test_defaults.py"]
    while ring:
        for file in ring:
            at = Path(file)
            if at.parts[0] == "src":  # the test of a module that uses it, which may not import it
                house = ["tests"] if at.parts[1] == "bayesloss" else ["tests", "book_code"]
                file = "/".join([*house, *at.parts[2:-1], f"test_{at.name}"])
            met.append(file)
        ring = sorted({user for file in ring for user in graph.get(file, ())} - seen)
        seen |= set(ring)
    there = [t for t in dict.fromkeys(met) if (root / t).is_file() and "tests/book/" not in t]
    return sorted(there, key=lambda test: "book_code" in test)


# Imported once, for all runs: they take longer than most tests do.
HEAVY = (
    "hypothesis matplotlib.pyplot pandas scipy.integrate scipy.optimize scipy.stats sympy torch "
    "sklearn.gaussian_process sklearn.isotonic sklearn.linear_model "
    "sklearn.utils.estimator_checks yaml"
)


def run(tree: Path, test: str, seconds: float) -> tuple[str, str, str]:
    """One test file, in a fork: what came out, the first test that failed, and what it said."""
    log = tree / "log"
    if (child := os.fork()) == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1,) * 2)
        file = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.chdir(tree)
        sys.path[:0] = paths = [str(tree / "src"), str(tree / "tools")]
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


def try_fault(tree: Path, fault: Fault, seconds: float) -> dict[str, Any]:
    """Put a fault into a copy of the project, and say what came of it."""
    path, start = tree / fault.file, _processor_time()
    text, entry = path.read_text("utf-8"), {"fault": fault, "result": "lived", "by": "", "said": ""}
    path.write_text(fault.into(text), "utf-8")
    for test in test_files(tree, fault.file):
        left = seconds - (_processor_time() - start)
        result, by, said = run(tree, test, left) if left > 0 else ("slow", test, "")
        if result != "passed":
            entry |= {"result": result, "by": by, "said": said}
            break
    path.write_text(text, "utf-8")
    if entry["result"] == "caught" and (told := run(tree, test, seconds))[0] != "passed":
        sys.exit(f"expected tests that pass without a fault, got {told[1]}:\n{told[2]}")
    return entry | {"seconds": round(_processor_time() - start)}


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
    command = ["git", "ls-files", "-z", "src", "tests", "tools", "data", "pyproject.toml"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    os.environ |= {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    for name in HEAVY.split():
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        for name in listed.rstrip("\0").split("\0"):
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, Path(folder) / name)
        for fault in draw(Path(folder), given.n, given.seed):
            if tuple(fault) not in done:
                entry = try_fault(Path(folder), fault, given.seconds)
                stored.append(entry)
                given.out.write_text(json.dumps(stored, indent=1, ensure_ascii=False), "utf-8")
                place = f"{fault.file}:{fault.line}  {fault.old}  ->  {fault.new}"
                print(f"{entry['result']:6} {place}   {entry['by']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
