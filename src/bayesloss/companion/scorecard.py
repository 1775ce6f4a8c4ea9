"""The scorecard: the ledger, and what the executed pages found, as tables for the book."""

import html
from collections import Counter
from pathlib import Path

import pandas as pd

from bayesloss.companion.claims import (
    NOT_YET,
    VERDICTS,
    Claim,
    Finding,
    badge,
    findings_in,
    ledger,
    with_math,
)

__all__ = ["HTMLTable", "all_findings", "claims_table", "counts", "quote"]


class HTMLTable:
    """HTML that a notebook shows, with a text for readers and tools that see no HTML."""

    def __init__(self, content: str, text: str) -> None:
        self._content, self._text = content, text

    def _repr_html_(self) -> str:
        return self._content

    def __repr__(self) -> str:
        """The text."""
        return self._text


def all_findings(book: Path) -> dict[str, tuple[str, Finding]]:
    """The findings of all executed pages: from the claim's id to the page and the finding."""
    return {
        finding.id: (str(notebook.relative_to(book).with_suffix("")), finding)
        for notebook in sorted(book.rglob("*.ipynb"))
        if ".ipynb_checkpoints" not in notebook.parts
        for finding in findings_in(notebook)
    }


def counts() -> pd.DataFrame:
    """How many claims of each paper have each verdict, with totals."""
    table = Counter((claim.verdict, claim.paper) for claim in ledger().values())
    papers = list(dict.fromkeys(claim.paper for claim in ledger().values()))
    rows = [[table[verdict, paper] for paper in papers] for verdict in VERDICTS]
    frame = pd.DataFrame(rows, index=pd.Index(VERDICTS, name="verdict"), columns=papers)
    frame["both"] = frame.sum(axis=1)
    frame.loc["all"] = frame.sum()
    return frame


def quote(found: tuple[str, Finding], root: str) -> HTMLTable:
    """A finding shown again on another page, with a link to where it was made.

    Parameters
    ----------
    found : tuple of str and Finding
        The page and the finding, from :func:`all_findings`.
    root : str
        The way from the page to the top of the book, such as "..".
    """
    page, finding = found
    link = f'<p>Checked on <a href="{root}/{page}.html#claim-{finding.id}">{page}</a>.</p>'
    return HTMLTable(finding.html(anchor=False) + link, finding.plain())


def claims_table(paper: str, findings: dict[str, tuple[str, Finding]], root: str) -> HTMLTable:
    """All claims of a paper, in its order: the treated ones, and behind a click the others.

    Parameters
    ----------
    paper : str
    findings : dict
        From :func:`all_findings`.
    root : str
        The way from the page to the top of the book, such as "..".
    """
    claims = [claim for claim in ledger().values() if claim.paper == paper]
    treated = [claim for claim in claims if claim.verdict != NOT_YET]
    others = [claim for claim in claims if claim.verdict == NOT_YET]
    content = _table(treated, findings, root) if treated else "<p>None is treated yet.</p>"
    if others:
        content += (
            f'<details class="scorecard-open"><summary>{len(others)} claims not yet treated'
            f"</summary>{_table(others, findings, root)}</details>"
        )
    return HTMLTable(content, "\n".join(f"{claim.id}: {claim.verdict}" for claim in claims))


def _table(claims: list[Claim], findings: dict[str, tuple[str, Finding]], root: str) -> str:
    rows = "".join(_row(claim, findings, root) for claim in claims)
    return (
        '<div class="claim-scroll"><table class="scorecard"><thead><tr><th>Where</th>'
        "<th>Claim</th><th>Verdict</th><th>Page</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(claim: Claim, findings: dict[str, tuple[str, Finding]], root: str) -> str:
    place = html.escape(claim.page)
    if claim.id in findings:
        page, _ = findings[claim.id]
        place = f'<a href="{root}/{page}.html#claim-{claim.id}">{html.escape(page)}</a>'
    return (
        f"<tr><td>{html.escape(claim.where)}</td><td>{with_math(claim.statement)}</td>"
        f"<td>{badge(claim.verdict)}</td><td>{place}</td></tr>"
    )
