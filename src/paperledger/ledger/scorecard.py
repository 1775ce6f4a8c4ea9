"""The scorecard: the ledger, and what the executed pages found, as tables for the book."""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd

from paperledger.configuration import configuration
from paperledger.html import HTMLTable, with_math
from paperledger.ledger.claims import (
    CORRECTIONS,
    VERDICTS,
    Claim,
    Finding,
    answer,
    badge,
    findings_in,
    ledger,
    of_papers,
)
from paperledger.ledger.falsify import falsifiers
from paperledger.pages import notebooks

Found = dict[str, tuple[str, Finding]]


def all_findings(book: Path) -> Found:
    """The findings of all executed pages: from the claim's id to the page and the finding."""
    return {
        finding.id: (page, finding)
        for page, notebook in notebooks(book).items()
        for finding in findings_in(notebook)
    }


def titles(book: Path) -> dict[str, str]:
    """The title of each page that claims are checked on, from its text.

    Raises
    ------
    ValueError
        If a page has no line ``# title``.
    """
    found = {}
    for page in dict.fromkeys(claim.page for claim in ledger().values()):
        cells = nbformat.read(book / f"{page}.ipynb", as_version=4).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        if title is None:
            raise ValueError(f"expected a line `# title` in {page}.ipynb")
        found[page] = title[1]
    return found


def counts() -> pd.DataFrame:
    """How many claims of each paper have each verdict that occurs, with totals."""
    frame = _table("verdict", VERDICTS, "paper")
    frame = frame[frame.sum(axis=1) > 0]
    frame["all papers"] = frame.sum(axis=1)
    frame.loc["all"] = frame.sum()
    return frame


def corrections() -> pd.DataFrame:
    """How many claims of each paper hold once what is corrected, from the lightest kind on."""
    frame = _table("correction", CORRECTIONS, "paper")
    frame["all papers"] = frame.sum(axis=1)
    frame.insert(0, "what is corrected", list(CORRECTIONS.values()))
    return frame


def counts_by_kind(paper: str = "") -> pd.DataFrame:
    """How many claims of each kind have each verdict that occurs, with totals; of one paper or all.

    Parameters
    ----------
    paper : str, default=""
        As the ledger calls it; of all papers without one.
    """
    frame = _table("kind of claim", dict.fromkeys(_KIND.values()), "verdict", VERDICTS, paper)
    frame = frame.loc[:, frame.sum() > 0]
    frame["all"] = frame.sum(axis=1)
    return frame


def _table(
    row: str, rows: Iterable[str], column: str, columns: Iterable[str] = (), paper: str = ""
) -> pd.DataFrame:
    """How many claims have two properties together; columns in their order in the ledger."""
    chosen = [claim for claim in of_papers() if paper in ("", claim.paper)]
    claims = [vars(c) | {"kind of claim": _KIND[c.kind]} for c in chosen]
    table = Counter((claim[row], claim[column]) for claim in claims)
    columns = list(columns) or list(dict.fromkeys(claim[column] for claim in claims))
    return pd.DataFrame(
        [[table[r, c] for c in columns] for r in rows], pd.Index(list(rows), name=row), columns
    )


_KIND = {
    "definition": "definitions, equations and algorithms",
    "equation": "definitions, equations and algorithms",
    "algorithm": "definitions, equations and algorithms",
    "theorem": "theorems, lemmas and remarks",
    "lemma": "theorems, lemmas and remarks",
    "remark": "theorems, lemmas and remarks",
    "statement": "statements in the text",
    "figure": "figures and tables",
    "table": "figures and tables",
}


def link(claim: Claim, text: str, root: str) -> str:
    """A link to the place on the page where the claim is checked; ``root`` leads to the top."""
    return f'<a href="{root}/{claim.page}.html#claim-{claim.id}">{text}</a>'


def quote(found: tuple[str, Finding], root: str) -> HTMLTable:
    """A finding shown again on another page, with a link to where it was made."""
    page, finding = found
    place = link(ledger()[finding.id], page, root)
    return HTMLTable(f"{finding.html(anchor=False)}<p>Checked on {place}.</p>", finding.plain())


def claims_table(findings: Found, titles: Mapping[str, str], root: str) -> HTMLTable:
    """The papers' claims by kind and page, with what was compared, and a form that filters them."""
    claims = of_papers()
    kinds = _grouped(claims, lambda claim: _KIND[claim.kind], dict.fromkeys(_KIND.values()))
    groups = "".join(
        _group(kind.capitalize(), some, _by_page(some, findings, titles, root))
        for kind, some in kinds.items()
    )
    script = f'<script src="{root}/../_static/scorecard.js"></script>'
    return _shown(f"{_form(claims)}{groups}{script}", claims, findings)


def own_table(findings: Found, titles: Mapping[str, str], root: str) -> HTMLTable:
    """What the companion claims beyond the papers, by page; the form does not filter it."""
    claims = [claim for claim in ledger().values() if claim.paper == configuration().own]
    group = _group("Beyond the papers", claims, _by_page(claims, findings, titles, root))
    return _shown(f'<div class="own">{group}</div>', claims, findings)


def _shown(markup: str, claims: list[Claim], findings: Found) -> HTMLTable:
    return HTMLTable(
        markup,
        "\n".join(f"{claim.id}: {claim.verdict}" for claim in claims),
        "\n\n".join(_markdown(claim, _rows(claim, findings)) for claim in claims),
    )


def _rows(claim: Claim, findings: Found) -> list[dict[str, Any]]:
    """What was compared; of a setting that is left open no number is in print, and that is said."""
    if claim.id not in findings:
        return []
    finding = findings[claim.id][1]
    if finding.check != "setting":
        return finding.rows
    return [
        row | {"expected": f"left open; the median of our readings is {row['expected']}"}
        for row in finding.rows
    ]


def _by_page(claims: list[Claim], findings: Found, titles: Mapping[str, str], root: str) -> str:
    """Claims, with what was compared, folded by the pages that check them, in the titles' order."""
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("Compared", "Found", "In print, or by another route", "Outcome")
    )
    pages = ""
    for page, some in _grouped(claims, lambda claim: claim.page, titles).items():
        bodies = "".join(_body(claim, _rows(claim, findings), root) for claim in some)
        table = f'<table class="scorecard"><thead><tr>{head}</tr></thead>{bodies}</table>'
        pages += _group(with_math(titles[page]), some, table)
    return pages


def _grouped(
    claims: list[Claim], key: Callable[[Claim], str], order: Iterable[str]
) -> dict[str, list[Claim]]:
    """Claims by a key of theirs, without empty groups."""
    groups = {name: [claim for claim in claims if key(claim) == name] for name in order}
    return {name: some for name, some in groups.items() if some}


def _group(name: str, claims: list[Claim], content: str) -> str:
    """What can be unfolded, under a line with its verdicts."""
    table = Counter(claim.verdict for claim in claims)
    verdicts = " ".join(
        f"<span>{table[verdict]} {badge(verdict)}</span>" for verdict in VERDICTS if table[verdict]
    )
    return (
        f'<details class="claims"><summary><span class="claims-of">{name}</span> {verdicts}'
        f"</summary>{content}</details>"
    )


def _form(claims: list[Claim]) -> str:
    def select(name: str, values: list[str]) -> str:
        table = Counter(getattr(claim, name) for claim in claims)
        options = "".join(
            f'<option value="{html.escape(value)}">{html.escape(value)} ({table[value]})</option>'
            for value in values
            if table[value]
        )
        return (
            f'<label>{name.capitalize()} <select name="{name}">'
            f'<option value="">all ({len(claims)})</option>{options}</select></label>'
        )

    papers = list(dict.fromkeys(claim.paper for claim in claims))
    kinds = sorted({claim.kind for claim in claims})
    return (
        '<form class="scorecard-filter" role="search" aria-label="Filter the claims" hidden>'
        f"{select('paper', papers)}{select('kind', kinds)}{select('verdict', list(VERDICTS))}"
        '<label>Search <input type="search" name="words" placeholder="theorem 8"></label>'
        '<button type="reset">Show all</button><p role="status"></p></form>'
    )


def _body(claim: Claim, rows: list[dict[str, Any]], root: str) -> str:
    place = link(claim, html.escape(f"{claim.paper}, {claim.where}"), root)
    compared = "".join(
        f"<tr><td>{with_math(row['what'])}</td><td>{with_math(row['measured'])}</td>"
        f"<td>{with_math(row['expected'])}</td><td>{answer(row)}</td></tr>"
        for row in rows
    )
    return (
        f'<tbody id="{claim.id}" data-paper="{html.escape(claim.paper)}" '
        f'data-kind="{claim.kind}" data-verdict="{claim.verdict}">'
        f'<tr><th colspan="4" scope="rowgroup">{place} '
        f"{badge(claim.verdict, claim.correction)}</th></tr>"
        f'<tr><td colspan="4">{with_math(claim.statement)}'
        f"</td></tr>{compared}{_falsifier(claim)}</tbody>"
    )


def _falsifier(claim: Claim) -> str:
    """A line that says which wrong number would have changed the verdict."""
    if claim.id not in falsifiers():
        return ""
    _, _, expression, fault, verdict = falsifiers()[claim.id]
    return (
        '<tr class="falsifier"><td colspan="4">Can it fail? With '
        f"<code>{html.escape(expression)}</code> {fault} the verdict is “{verdict}”.</td></tr>"
    )


def _markdown(claim: Claim, rows: list[dict[str, Any]]) -> str:
    graded = f" ({claim.correction})" if claim.correction else ""
    head = f"{claim.paper}, {claim.where}: {claim.verdict}{graded}."
    lines = [f"**{head}** {claim.statement}", ""]
    lines += [
        f"* {row['what']}: {row['measured']} ({row['expected']}: {answer(row)})" for row in rows
    ]
    return "\n".join(lines)
