"""The problem sets: public names only, and each problem with starter, assertions and solution.

A page executes its solutions, with the assertions in them; here is seen that a starter has the same
ones, and that it fails them as long as nothing is filled in.
"""

import ast
import re
import sys

import notebooks
import pytest

import bayesloss

PAGES = [page for page in notebooks.pages() if page.startswith("course/problems_")]
LIBRARIES = {"numpy", "scipy", "sklearn", "matplotlib", "torch"} | sys.stdlib_module_names
MARKS = re.compile(r"^## \d\. .+\n\n\*(?P<kind>.+), (?P<marks>\d) marks?\.\*", re.MULTILINE)


def read(page, book=notebooks.BOOK):
    _, first, _check, *cells = notebooks.from_source(page, book).cells
    problems = []
    for text, solution in zip(cells[::2], cells[1::2], strict=True):
        assert "solution" in solution.metadata["tags"], solution.source
        (starter,) = re.findall(r"^```python\n(.*?)^```$", text.source, re.S | re.M)
        problems.append((text.source, starter, solution.source))
    return first.source, problems


def private(code):
    """What is imported that a reader with the package alone does not have, or should not use."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            found += [name for name in names if name.split(".")[0] not in LIBRARIES]
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            public = {f"bayesloss.{name}" for name in bayesloss.__all__}
            if node.module.split(".")[0] not in LIBRARIES:
                found += sorted(names - public)
    return found


def assertions(code):
    return [ast.unparse(node) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Assert)]


def untold(code):
    """The assertions that say nothing when they fail."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Assert)]
    return [ast.unparse(node) for node in nodes if node.msg is None]


def is_filled(code):
    nodes = ast.walk(ast.parse(code))
    return not any(isinstance(node, ast.Constant) and node.value is ... for node in nodes)


@pytest.mark.parametrize("page", PAGES)
def test_a_problem_set_is_whole(page):
    first, problems = read(page)
    assert 4 <= len(problems) <= 6
    kinds = [MARKS.search(text)["kind"] for text, *_ in problems]
    assert kinds[0] == "Warm-up" and kinds[-1] == "Open"
    for text, starter, solution in problems:
        assert not private(first) + private(starter) + private(solution)
        assert not is_filled(starter) and is_filled(solution), text
        assert assertions(starter) and assertions(starter) == assertions(solution), text
        assert not untold(starter)


def test_the_table_has_every_set_and_its_marks():
    table = (notebooks.BOOK / "course/problems.md").read_text("utf-8")
    told = dict(re.findall(r"^\| \{doc\}`\d <(\w+)>` .* (\d+) \|$", table, re.MULTILINE))
    marks = {
        page.split("/")[1]: sum(int(MARKS.search(text)["marks"]) for text, *_ in read(page)[1])
        for page in PAGES
    }
    assert len(marks) == 8 and marks == {name: int(told[name]) for name in told}


@pytest.mark.parametrize("page", PAGES)
def test_a_starter_fails_and_its_solution_does_not(page):
    first, problems = read(page)
    names = {"__name__": "__main__"}
    exec(first, names)
    for _, starter, solution in problems:
        with pytest.raises((AssertionError, TypeError, ValueError, AttributeError)):
            exec(starter, names.copy())
        exec(solution, names)


def test_guards_see_what_they_should():
    assert private("import bayesloss_book\nfrom bayesloss.tensors import as_float64") == [
        "bayesloss_book",
        "bayesloss.tensors.as_float64",
    ]
    assert not private("import numpy as np\nfrom bayesloss import CostMatrix")
    assert assertions("assert 1 < x\nassert y") != assertions("assert 1 < x\nassert z")
    assert untold("assert x\nassert y, 'y is true'") == ["assert x"]
    assert not is_filled("def f():\n    return ...") and is_filled("a[..., 0] = 1") is False
