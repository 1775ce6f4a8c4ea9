"""The claims of a paper in the order of its print, each in a line, with what was found."""

import html
import re
from collections.abc import Mapping

from paperledger.html import HTMLTable, with_math
from paperledger.ledger.claims import Claim, Finding, badge, ledger
from paperledger.ledger.scorecard import Found, link
from paperledger.ledger.under_specified import sway

PLACE = re.compile(
    r"Abstract|Sections? \d+(?:\.\d+)?|Appendix(?: [A-Z](?:\.\d+)?| \d+\.\d+)?|Broader Impact"
)
NUMBERED = re.compile(r"(?:Equation|Figure|Table|Theorem|Lemma|Definition|Remark) \(?\d")


def section(claim: Claim) -> str:
    """The section of the paper that a claim stands in, the first where it stands in several.

    Raises
    ------
    ValueError
        If the place of the claim names none.
    """
    found = PLACE.match(claim.where)
    if found is None:
        raise ValueError(
            f"{claim.id}: expected a place that begins with a section, got {claim.where!r}"
        )
    return found[0]


def sections(paper: str) -> dict[str, list[Claim]]:
    """The claims of a paper by section, both in the order of the print."""
    found: dict[str, list[Claim]] = {}
    for claim in ledger().values():
        if claim.paper == paper:
            found.setdefault(section(claim), []).append(claim)
    return found


def beside(
    paper: str,
    place: str,
    lines: Mapping[str, str],
    findings: Found,
    root: str,
    more: Mapping[str, str] | None = None,
) -> HTMLTable:
    """What one section of a paper claims: a line each, the verdict, what was found, and a link.

    Parameters
    ----------
    paper, place : str
        As the ledger and :func:`sections` call them.
    lines : mapping of str to str
        What each claim of the papers says, in a line.
    findings : mapping
        Those of :func:`paperledger.ledger.scorecard.all_findings`.
    root : str
        The way from the page to the top of the book.
    more : mapping of str to str, optional
        HTML that is set below a claim, such as a figure.

    Raises
    ------
    ValueError
        If the paper has no such section, or a claim of it no line.
    """
    known = sections(paper)
    if place not in known:
        raise ValueError(f"expected a section of {paper}, one of {list(known)}, got {place!r}")
    claims = known[place]
    if missing := [claim.id for claim in claims if claim.id not in lines]:
        raise ValueError(f"expected a line for every claim, none for {missing}")
    entries = [
        _entry(claim, lines[claim.id], findings[claim.id][1], root, (more or {}).get(claim.id, ""))
        for claim in claims
    ]
    told = [
        f"{where_in(claim)}: {lines[claim.id]} {claim.verdict}. "
        f"{found_in_a_line(findings[claim.id][1])}"
        for claim in claims
    ]
    return HTMLTable(f'<div class="beside">{"".join(entries)}</div>', "\n".join(told))


def where_in(claim: Claim) -> str:
    """Where a claim stands in its section: an equation, a figure, or the text."""
    place = section(claim)
    rest = claim.where.removeprefix(place).strip(" ,")
    if rest.startswith("and "):
        return claim.where
    return rest[:1].upper() + rest[1:] if rest else "Text"


def found_in_a_line(finding: Finding) -> str:
    """What a check found, in a line; formulas stand between dollar signs."""
    rows = finding.rows
    if finding.check == "setting":
        results, _, _ = sway(finding)
        shown = {row["what"]: row["measured"] for row in rows}
        least = min(results, key=results.__getitem__)
        most = max(results, key=results.__getitem__)
        return f"{len(rows)} readings: from {shown[least]} ({least}) to {shown[most]} ({most})."
    if finding.check == "numbers":
        numbers = [row for row in rows if "±" in row["expected"]]
        agree = sum(row["ok"] for row in numbers)
        return f"{agree} of {len(numbers)} numbers agree within the tolerance."
    if finding.check == "formula":
        by_form = [f"{row['what'].removeprefix('the formula ')}: {_off(row)}" for row in rows]
        return _sentence(f"{'; '.join(by_form)}. Compared with {rows[0]['expected']}.")
    wrong = [row for row in rows if not row["ok"]]
    row = (wrong or rows)[0]
    others = len(rows) - 1
    more = f" ({others} more {'line' if others == 1 else 'lines'})" if others else ""
    return _sentence(f"{'Not so: ' if wrong else ''}{row['what']}: {row['measured']}{more}.")


def _sentence(text: str) -> str:
    """A text that begins with a capital, or as it did with a formula."""
    return text[:1].upper() + text[1:]


def _off(row: Mapping[str, str]) -> str:
    """How far a formula is from the truth."""
    return row["measured"] if row["measured"].startswith("within") else f"off by {row['measured']}"


def _entry(claim: Claim, line: str, finding: Finding, root: str, more: str) -> str:
    numbered = " beside-numbered" if NUMBERED.match(where_in(claim)) else ""
    note = "" if finding.verdict == "holds" or not finding.note else f" {finding.note}"
    return (
        f'<div class="beside-claim{numbered}" id="{claim.id}">'
        f'<p class="beside-place">{link(claim, html.escape(where_in(claim)), root)}</p>'
        f'<p class="beside-line">{with_math(line)}</p>'
        f'<p class="beside-verdict">{badge(claim.verdict, claim.correction)}</p>'
        f'<p class="beside-found">{with_math(found_in_a_line(finding) + note)}</p>{more}</div>'
    )
