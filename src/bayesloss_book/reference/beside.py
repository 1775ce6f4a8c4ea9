"""What stands below a claim on the pages beside the print: our figure, and an algorithm's lines."""

import hashlib
import html
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from textwrap import dedent
from typing import Any

import pandas as pd
import yaml

from bayesloss.calibrating.loss_em import alternate, linearised_loss_em, loss_em
from bayesloss.calibrating.loss_em_probit import loss_em_probit
from bayesloss.learning.evidence.evidence import evidence_gradient
from bayesloss_book import ledger as ledger_folder
from paperledger.html import HTMLTable
from paperledger.ledger.claims import ledger
from paperledger.ledger.scorecard import Found, quote

# The figure of the book that is our version of a figure or table in print.
FIGURES = {
    "wn-figure-1": "fig-diagram",
    "wn-table-1": "fig-units",
    "wn-table-2": "fig-readings",
    "wn-figure-2": "fig-learning-curves",
    "wn-figure-3": "fig-toy-fits",
    "wn-figure-4": "fig-kernel",
    "wn-figure-5": "fig-toy-panels",
    "wn-figure-6": "fig-toy-zoomed",
    "wn-figure-7": "fig-toy-slices",
    "wn-figure-8": "fig-toy-labels",
    "wn-figure-9": "fig-dress",
    "lhg-figure-1": "fig-plant",
    "lhg-table-4": "fig-table-4-lines",
}


@dataclass(frozen=True)
class Excerpt:
    """Lines of code, from the one that begins with `first` to the one that begins with `last`."""

    source: Callable[[Path], str]  # of the folder of the book
    name: str
    first: str
    last: str

    def lines(self, book: Path) -> str:
        """The lines, moved to the left.

        Raises
        ------
        ValueError
            If the code has no line that begins as it should.
        """
        code = self.source(book).splitlines()
        stripped = [line.strip() for line in code]
        begin = _place(stripped, self.first, 0, self.name)
        end = _place(stripped, self.last, begin, self.name)
        return dedent("\n".join(code[begin : end + 1]))


def _place(lines: list[str], beginning: str, start: int, name: str) -> int:
    for place in range(start, len(lines)):
        if lines[place].startswith(beginning):
            return place
    raise ValueError(f"expected a line of {name} that begins with {beginning!r}, got none")


def _of(function: Callable[..., Any], first: str, last: str) -> Excerpt:
    """Lines of a function of the library."""
    whole = inspect.unwrap(function)
    name = f"{whole.__module__}.{whole.__qualname__}"
    return Excerpt(lambda book: inspect.getsource(whole), name, first, last)


def _on(page: str, first: str, last: str) -> Excerpt:
    """Lines of a page's cell, the first that has such a line."""

    def source(book: Path) -> str:
        code = [cell for cell in _cells(book, page) if cell["cell_type"] == "code"]
        return "\n".join("".join(cell["source"]) for cell in code)

    return Excerpt(source, page, first, last)


@cache
def _cells(book: Path, page: str) -> list[dict[str, Any]]:
    """The cells of an executed page."""
    cells: list[dict[str, Any]] = json.loads((book / f"{page}.ipynb").read_text("utf-8"))["cells"]
    return cells


LOOP = _of(alternate, "for _ in range(max_iter):", "converged = actions[-1] == h")
# The lines that are an algorithm in print.
ALGORITHMS = {
    "wn-em-algorithm": [_on("learning/linkgistic", "for t in range(2):", "beta = beta.detach()")],
    "wn-evidence-recipe": [_of(evidence_gradient, "Gamma = mode.Gamma", "total =")],
    "lhg-loss-em": [LOOP],
    "lhg-table-1": [_of(loss_em, "log_utility =", "return alternate"), LOOP],
    "lhg-table-2": [_of(linearised_loss_em, "return alternate", "return alternate"), LOOP],
    "lhg-table-3": [_of(loss_em_probit, "for _ in range(max_iter):", "active = active[changed]")],
}


# Of figures whose curves cannot be compared: why.
NO_LEVELS = {
    "wn-figure-2": "Judged without its levels. Our texts of the paper give the training sizes, "
    "10,000 to 60,000, and no accuracy: there is no number to set ours against.",
    "wn-figure-9": "Judged without its levels. Our texts of the paper have the caption of this "
    "figure, and no number at either axis.",
}


@cache
def in_a_line() -> dict[str, str]:
    """What each claim of the papers says, in a line."""
    text = resources.files(ledger_folder).joinpath("in_a_line.yml").read_text("utf-8")
    lines: dict[str, str] = yaml.safe_load(text)
    return lines


def more(book: Path, root: str) -> dict[str, str]:
    """What is set below claims: our figure, small, or the lines that are the algorithm.

    Where there is a figure, a link leads on to the page of figures and tables, which has the
    numbers.
    """
    shown = {}
    for id in FIGURES:
        numbers = f'<a href="{root}/reference/figures_and_tables.html#{id}">Number by number</a>'
        shown[id] = f'<div class="beside-more">{figure(id, book, root)}{levels(id)}{numbers}</div>'
    for id in ALGORITHMS:
        shown[id] = (
            f'<details class="beside-more"><summary>The lines</summary>{code(id, book)}</details>'
        )
    return shown


def shown_at_large(id: str, findings: Found, book: Path, root: str) -> list[HTMLTable]:
    """A figure or table of a paper: ours with any code; and what was compared, number by number.

    They are two outputs, since in Read what was compared is folded.
    """
    ours = figure(id, book, root) if id in FIGURES else ""
    lines = code(id, book) if id in ALGORITHMS else ""
    told = f"{ledger()[id].where}: {findings[id][1].verdict}"
    drawn = HTMLTable(f'<div class="beside-large" id="{id}">{ours}{levels(id)}{lines}</div>', told)
    return [drawn, quote(findings[id], root)]


def levels(id: str) -> str:
    """That a figure was judged without its levels, if it was."""
    return f"<p>{NO_LEVELS[id]}</p>" if id in NO_LEVELS else ""


def figure(id: str, book: Path, root: str) -> str:
    """Our version of a figure or table, small, as a link to its place on the page.

    It is the file that the page shows, so that a reader's browser loads it once.

    Raises
    ------
    ValueError
        If the page of the claim has no such figure.
    """
    page = ledger()[id].page
    name = FIGURES[id]
    for cell in _cells(book, page):
        shown = cell["metadata"].get("mystnb", {})
        if shown.get("figure", {}).get("name") != name:
            continue
        outputs = [output.get("data", {}) for output in cell["outputs"]]
        drawn = ["".join(data["image/svg+xml"]) for data in outputs if "image/svg+xml" in data]
        # MyST-NB names the file by its content, with no end of line after the last.
        content = "\n".join(drawn[0].splitlines())
        file = f"{hashlib.sha256(content.encode()).hexdigest()}.svg"
        alt = html.escape(shown["image"]["alt"], quote=True)
        return (
            f'<a class="beside-figure" href="{root}/{page}.html#{name}">'
            f'<img src="{root}/../_images/{file}" alt="{alt}" loading="lazy"></a>'
        )
    raise ValueError(f"expected a figure {name} in {page}.ipynb, got none")


def code(id: str, book: Path) -> str:
    """The lines of code that are an algorithm, and where they stand."""
    blocks = ""
    for excerpt in ALGORITHMS[id]:
        lines = html.escape(excerpt.lines(book), quote=False)
        blocks += (
            f"<p>From <code>{excerpt.name}</code>:</p>"
            f'<div class="highlight"><pre tabindex="0">{lines}</pre></div>'
        )
    return blocks


def number_table(numbers: pd.DataFrame, unit: str) -> HTMLTable:
    """Printed numbers beside ours, one a cell, with their unit above them."""
    table = numbers.to_html(classes="numbers", border=0)
    return HTMLTable(f"<p>{html.escape(unit)}</p>{table}", f"{unit}\n{numbers.to_string()}")
