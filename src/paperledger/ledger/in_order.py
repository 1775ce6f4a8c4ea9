"""The claims of a paper in the order of its print, each in a line, with what was found."""

import html
import re
from collections.abc import Callable, Collection, Mapping, Sequence

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
    return _listed(known[place], lines, findings, root, more or {}, where_in)


def with_verdicts(
    paper: str, verdicts: Collection[str], lines: Mapping[str, str], findings: Found, root: str
) -> HTMLTable:
    """The claims of a paper that have one of some verdicts, shown as in :func:`beside`.

    Raises
    ------
    ValueError
        If a claim has no line.
    """
    in_print = [claim for claims in sections(paper).values() for claim in claims]
    chosen = [claim for claim in in_print if claim.verdict in verdicts]
    return _listed(chosen, lines, findings, root, {}, lambda claim: claim.where)


def _listed(
    claims: Sequence[Claim],
    lines: Mapping[str, str],
    findings: Found,
    root: str,
    more: Mapping[str, str],
    place_of: Callable[[Claim], str],
) -> HTMLTable:
    """Claims, each in a line, with what was found, and what is set below it."""
    if missing := [claim.id for claim in claims if claim.id not in lines]:
        raise ValueError(f"expected a line for every claim, none for {missing}")
    entries = ""
    told = []
    for claim in claims:
        finding = findings[claim.id][1]
        place = place_of(claim)
        line = lines[claim.id]
        entries += _entry(claim, place, line, finding, root, more.get(claim.id, ""))
        told.append(f"{place}: {line} {claim.verdict}. {found_in_a_line(finding)}")
    return HTMLTable(f'<div class="beside">{entries}</div>', "\n".join(told))


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


def _entry(claim: Claim, place: str, line: str, finding: Finding, root: str, more: str) -> str:
    numbered = " beside-numbered" if NUMBERED.match(where_in(claim)) else ""
    note = "" if finding.verdict == "holds" or not finding.note else f" {finding.note}"
    return (
        f'<div class="beside-claim{numbered}" id="{claim.id}">'
        f'<p class="beside-place">{link(claim, html.escape(place), root)}</p>'
        f'<p class="beside-line">{with_math(line)}</p>'
        f'<p class="beside-verdict">{badge(claim.verdict, claim.correction)}</p>'
        f'<p class="beside-found">{with_math(found_in_a_line(finding) + note)}</p>{more}</div>'
    )
