"""Sphinx extension: of each chapter a notebook to work with, notebooks/PART/NAME_student.ipynb.

It has the chapter's text in plain Markdown, and the code of what the chapter shows, without the
check cells, the section *Evidence*, the exercises' solutions and what only they need. All imports
stand in the first cell, stored results are found from any folder, a section ends with the
parameters that it depends on, and the last cell lists the works cited. That of a problem set has
its starters as code, and no solutions; these are a notebook apart, NAME_solutions.ipynb. Problem
sets and the guide's pages for practitioners need the library alone: what their pages take from the
book's code, the style of figures and checks, is left out. nbconvert drops tagged cells, but not
what only these need, and leaves MyST as it is.
"""

from __future__ import annotations

import ast
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from chapters import chapters
from how_made import PLUMBING, _changed, _flow
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from pybtex.backends import plaintext
from pybtex.database import Entry
from sphinx.application import Sphinx
from sphinx.util import logging

from paperledger.ledger.claims import ledger, numbers_in

# What one installs in a clone to run a page's notebook: of a problem set the library alone, of the
# guide's pages for practitioners also what they draw and read tables with.
OF_PROBLEMS = "pip install ."
OF_PRACTICE = "pip install '.[plot]' pandas 'scikit-learn>=1.8'"
OF_CHAPTERS = "pip install '.[book]'"
PRACTICE = ("guide/from_a_file", "guide/your_own_data", "guide/scores_and_costs")

# For ruff, in this order; who solves a problem may need what its starter does not.
TIDY = ("check -q --fix --select I,F401,F821 --per-file-ignores problems_*:F401", "format -q")

ABOUT = """*The page "{title}" of the book `bayesloss`, as a notebook to work with. Beside Jupyter
it needs what `{install}` installs in a clone of the repository; `make lab` there opens JupyterLab
with all of it. Numbers in the text are those of the parameters that stand here. Solutions of
exercises and problems stand on the page.*"""
ABOUT_SOLUTIONS = """*The page "{title}" of the book `bayesloss`, with its solutions.
Beside Jupyter it needs what `{install}` installs in a clone of the repository.*"""
FIND = "from bayesloss_book.data.stored import stored_results\n"
CHANGE = """# Change this: take out a "#", choose another value, run this cell, then those from
# below the parameters to here again.
"""
STORES = '"../../data/results"'

ROLE = re.compile(r"\{([a-z:]+)\}`(?:([^`<]+?)\s*<([^`<>]+)>|([^`]+))`")
FENCE = re.compile(r"^( *)(`{3,}|:{3,})\{([\w:-]+)\} *(.*)$", re.MULTILINE)
OPTIONS = re.compile(r"\A\n(?:(?: *:[\w-]+:[^\n]*\n)+| *---\n.*?\n *---\n)", re.DOTALL)
STARTER = re.compile(r"^```python\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
ANSWER = re.compile(r"^```\{dropdown\} (.*?)\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
SOLUTION = re.compile(r"(A )?[Ss]olution")  # how the title of a solution begins
HEADING = re.compile(r"^(?=## )", re.MULTILINE)

logger = logging.getLogger(__name__)


def tags(cell: NotebookNode) -> list[str]:
    """A cell's tags."""
    return cell.metadata.get("tags", [])


def pieces(source: str) -> Iterator[tuple[ast.stmt, str]]:
    """Each statement with its text, which begins after the one before."""
    lines = source.splitlines()
    start = 0
    for statement in ast.parse(source).body:
        end = statement.end_lineno or start
        yield statement, "\n".join(lines[start:end])
        start = end


def shows(statement: ast.stmt) -> bool:
    """Tell whether a statement does more than to bind names."""
    calls = (ast.unparse(n.func) for n in ast.walk(statement) if isinstance(n, ast.Call))
    showing = (re.match(r"print|display|plt\.|(\w+\.)*draw_", call) for call in calls)
    return isinstance(statement, ast.Expr) or any(showing)


def is_problem_set(page: str) -> bool:
    """Tell whether a page has starters and solutions."""
    return page.startswith("course/problems_")


def install(page: str) -> str:
    """The command that installs what a page's student notebook needs."""
    if is_problem_set(page):
        return OF_PROBLEMS
    return OF_PRACTICE if page in PRACTICE else OF_CHAPTERS


def code_of(cells: list[NotebookNode], *left_out: str) -> tuple[list[str], str]:
    """The code of each cell without some packages and what only they need; and all imports."""
    judges = {"glue"}
    imports = list[str]()
    rows = list[list[tuple[ast.stmt, str]]]()
    for cell in cells:
        rows.append([])
        for statement, text in pieces(cell.source) if cell.cell_type == "code" else ():
            read, bound = _flow(statement)
            if isinstance(statement, ast.Import | ast.ImportFrom):
                if any(package in ast.unparse(statement) for package in left_out):
                    judges |= {name.asname or name.name for name in statement.names}
                else:
                    imports.append(ast.unparse(statement))
            elif judges & read or (isinstance(statement, ast.If) and "scale" in read):
                judges |= bound
            else:
                judges -= bound
                rows[-1].append((statement, text))
    needed = set[str]()
    codes = list[str]()
    for cell, row in zip(reversed(cells), reversed(rows), strict=True):
        open_ = not any(tag.startswith(("hide", "remove", "param")) for tag in tags(cell))
        kept = list[str]()
        for statement, text in reversed(row):
            read, bound = _flow(statement)
            if open_ or shows(statement) or needed & (bound | _changed(statement)):
                kept.insert(0, text)
                needed -= bound if isinstance(statement, ast.Assign | ast.FunctionDef) else set()
                needed |= read
        codes.insert(0, "\n".join(kept).strip("\n"))
    return codes, "\n".join(dict.fromkeys(imports))


def depends(code: str, reach: dict[str, set[str]]) -> set[str]:
    """The parameters that code depends on; ``reach`` has those of each name, and learns."""
    found = set[str]()
    for statement, _ in pieces(code):
        read, bound = _flow(statement)
        used = set[str]().union(*(reach.get(name, set()) for name in read))
        found |= used
        reach |= {name: used for name in bound}
        reach |= {name: used | reach.get(name, set()) for name in _changed(statement) - bound}
    return found


class Plain:
    """Turns the MyST of one page into Markdown, with numbers and names where it had roles."""

    def __init__(self, app: Sphinx, docname: str) -> None:
        self.env = app.env
        self.docname = docname
        self.values = numbers_in(Path(app.env.doc2path(docname)))
        self.macros = app.config.mathjax3_config["tex"]["macros"]
        self.numbers = {
            anchor.removeprefix("equation-"): (kind.capitalize(), ".".join(map(str, number)))
            for kinds in app.env.toc_fignumbers.values()
            for kind, anchors in kinds.items()
            for anchor, number in anchors.items()
        }
        citations = app.env.get_domain("cite").citations  # type: ignore[attr-defined]
        self.works = {citation.key: citation for citation in citations}
        self.cited = dict[str, None]()  # the keys, in the order of the text

    def __call__(self, text: str) -> str:
        """The text without directives, roles, labels and the book's own macros."""
        opening = FENCE.search(text)
        if opening is None:
            return self._inline(text)
        indent, fence, name, title = opening.groups()
        rest = text[opening.end() :]
        inside, _, after = re.split(rf"^( *){fence} *$", rest, maxsplit=1, flags=re.MULTILINE)
        if name == "dropdown" and SOLUTION.match(title):
            return self._inline(text[: opening.start()]) + self(after)
        label = re.search(r":label: (\S+)", inside)
        if name.startswith("prf:"):
            number = self.numbers[label[1]][1] if label else ""
            title = f"{name[4:].capitalize()} {number}".strip() + f": {title}" * bool(title)
        begin = f"{indent}**{title}.**\n"
        end = ""
        if name == "dropdown":
            begin = f"{indent}<details><summary>{title}</summary>\n"
            end = f"\n\n{indent}</details>"
        inside = self(OPTIONS.sub("\n", inside)).rstrip()
        return self._inline(text[: opening.start()] + begin) + inside + end + self(after)

    def _inline(self, text: str) -> str:
        text = re.sub(r"\[([^\]]+)\]\([\w-]+\)", r"\1", ROLE.sub(self._role, text))
        tag = lambda match: rf"\tag{{{self.numbers[match[1]][1]}}} $$"  # noqa: E731
        text = re.sub(r"\$\$ *\(([\w-]+)\)", tag, text)
        for name, body in self.macros.items():
            plain = body if isinstance(body, str) else r"\boldsymbol"
            text = re.sub(rf"\\{name}(?![A-Za-z])", plain.replace("\\", r"\\"), text)
        return text

    def _role(self, match: re.Match[str]) -> str:
        kind, words, *targets = match.groups()
        target = next(filter(None, targets))
        match kind:
            case "glue:text":
                return str(self.values[target])
            case "claim":
                paper = f"{ledger()[target].paper} " if words[0] == "(" else ""
                return f"[{paper}{words}: {ledger()[target].verdict}]"
            case "doc":
                page = posixpath.normpath(posixpath.join(posixpath.dirname(self.docname), target))
                return words or f"*{self.env.titles[page].astext()}*"
            case "cite" | "cite:t":
                keys = [key.strip() for key in target.split(",")]
                self.cited |= dict.fromkeys(keys)
                entries = [self.works[key].entry for key in keys]
                if kind == "cite":
                    said = [f"{authors(entry)}, {entry.fields['year']}" for entry in entries]
                    return f"({'; '.join(said)})"
                return "; ".join(f"{authors(e)} ({e.fields['year']})" for e in entries)
            case "eq":
                return f"({self.numbers[target][1]})"
            case "numref" | "prf:ref":
                return words or " ".join(self.numbers[target])
        return words or f"`{target.removeprefix('~').rpartition('.')[2]}`"

    def works_cited(self) -> str:
        """The works that the text has cited, in full; nothing where there are none."""
        entries = (self.works[key].tooltip_entry.text for key in self.cited)
        lines = sorted(f"* {entry.render(plaintext.Backend())}" for entry in entries)
        return "\n".join(["## Works cited", "", *lines]) if lines else ""


def authors(entry: Entry) -> str:
    """The last names of those who wrote a work; of more than three the first."""
    people = entry.persons["author"]
    names = [" ".join(map(str, p.rich_prelast_names + p.rich_last_names)) for p in people]
    if len(names) > 3:
        return f"{names[0]} et al."
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def starters(cells: list[NotebookNode]) -> Iterator[NotebookNode]:
    """The cells of a problem set without its answers, each starter a cell of code."""
    for cell in cells:
        if cell.cell_type == "markdown":
            for place, part in enumerate(STARTER.split(ANSWER.sub("", cell.source))):
                yield new_code_cell(part) if place % 2 else new_markdown_cell(part)
        elif "solution" not in tags(cell):
            yield cell


def solved(cells: list[NotebookNode]) -> Iterator[NotebookNode]:
    """The cells of a problem set with its answers, and without its starters."""
    for cell in cells:
        if cell.cell_type == "markdown":
            text = STARTER.sub("", cell.source)
            yield new_markdown_cell(ANSWER.sub(r"**\1.** \2", text))
        elif "solution" in tags(cell):
            yield new_code_cell(cell.source)
        else:
            yield cell


def student(app: Sphinx, docname: str, answered: bool = False) -> NotebookNode:
    """The student notebook of a page, or that of a problem set's solutions."""
    cells = nbformat.read(app.env.doc2path(docname), as_version=4).cells
    for place, cell in enumerate(cells):
        before, evidence, _ = f"\n{cell.source}".partition("\n## Evidence")
        if evidence:
            cell.source = before
            cells = cells[: place + 1]
    page = docname.removeprefix("book/")
    problems = is_problem_set(page)
    if problems:
        cells = list(solved(cells) if answered else starters(cells))
    plain = Plain(app, docname)
    of_chapter = install(page) == OF_CHAPTERS
    left_out = ["paperledger.ledger"] if of_chapter else ["paperledger", "bayesloss_book"]
    codes, imports = code_of(cells, *left_out)
    if of_chapter:
        imports += f"\n{FIND}"
    both = list(zip(cells, codes, strict=True))
    given = next((code for cell, code in both if "parameters" in tags(cell)), "")
    told = {n: text.strip() for s, text in pieces(given) for n in _flow(s)[1] - PLUMBING}
    lines = {name: line for name, line in told.items() if "\n" not in line}
    reach = {name: {name} for name in lines}
    changes = set[str]()
    title = app.env.titles[docname].astext()
    about = ABOUT_SOLUTIONS if answered else ABOUT
    made = [new_markdown_cell(about.format(title=title, install=install(page)))]
    made.append(new_code_cell(imports))

    def end_section() -> None:
        if changes and not problems:
            said = dict.fromkeys(f"# {line}" for name, line in lines.items() if name in changes)
            made.append(new_code_cell(CHANGE + "\n".join(said)))
        changes.clear()

    for cell, code in both:
        for part in HEADING.split(cell.source) if cell.cell_type == "markdown" else ():
            if part.startswith("## "):
                end_section()
            made.append(new_markdown_cell(plain(part).strip()))
        if not code:
            continue
        code = code.replace(STORES, "stored_results()")
        if "parameters" in tags(cell):
            made.append(new_code_cell(code, metadata={"tags": ["parameters"]}))
        else:
            made.append(new_code_cell(code))
            changes |= depends(code, reach)
        if caption := cell.metadata.get("mystnb", {}).get("figure", {}).get("caption"):
            made.append(new_markdown_cell(f"*{plain(caption).strip()}*"))
    end_section()
    made.append(new_markdown_cell(plain.works_cited()))
    made = [cell for cell in made if cell.source]
    for number, cell in enumerate(made):
        cell.id = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=made, metadata={"kernelspec": kernel})


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write the notebooks beside the book; ruff tidies them, and finds names that nothing binds."""
    if exception or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "notebooks"
    for docname in app.env.found_docs:
        page = docname.removeprefix("book/")
        if page in chapters() or is_problem_set(page):
            path = folder / f"{page}_student.ipynb"
            path.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(student(app, docname), path)
        if is_problem_set(page):
            path = folder / f"{page}_solutions.ipynb"
            nbformat.write(student(app, docname, answered=True), path)
    for command in TIDY:
        ruff = [sys.executable, "-m", "ruff", *command.split(), "--isolated", str(folder)]
        done = subprocess.run(ruff, capture_output=True, text=True)
        if done.returncode:
            logger.warning("a student notebook is not sound: %s", done.stdout + done.stderr)


def setup(app: Sphinx) -> None:
    """Work when the pages are written, before `how_made` packs what can be downloaded."""
    app.connect("build-finished", write, priority=400)
