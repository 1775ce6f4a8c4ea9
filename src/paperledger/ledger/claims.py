"""The ledger of claims, and what the pages found.

``claims.yml`` lists what the papers claim, with the verdict that the companion gives, and what the
companion claims beyond them, as of the paper that its configuration calls its `own`. None of that
is counted among the papers' verdicts, and it holds or is taken out. On its page a claim is checked
by a function of :mod:`paperledger.ledger.checks`, which returns a :class:`Finding`. A finding shows
itself in the page, and carries its content in a form that the scorecard and the tests read back
from the executed notebook.
"""

import ast
import html
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from paperledger.configuration import FILE, Configuration, configuration
from paperledger.html import with_math
from paperledger.pages import notebooks

NOT_YET = "not yet treated"
VERDICTS = (
    "holds",
    "holds as corrected",
    "fails",
    "reproduced",
    "reproduced in pattern",
    "not reproduced",
    "under-specified",
    NOT_YET,
)
CORRECTIONS = {  # from the lightest to the gravest: what has to be corrected
    "wording": "a sentence says too much, or the wrong thing",
    "misprint": "a sign, a letter or a prime in a formula",
    "condition": "it is so under a condition that is not printed",
    "formula": "a formula, constant, unit or step is another one",
}
TRUE = "must be true"  # expected of a line that can be true or false
MIME = "application/vnd.paperledger.claim+json"


@dataclass(frozen=True)
class Claim:
    """One entry of the ledger."""

    id: str
    paper: str
    kind: str  # such as "theorem", "equation" or "table"
    where: str  # where in the paper it stands
    statement: str  # the claim in our words; formulas as printed, between dollar signs
    page: str  # the page that treats it, such as "learning/auto_mpg"
    verdict: str  # one of :data:`VERDICTS`
    # what has to be corrected, one of :data:`CORRECTIONS`, if it holds as corrected
    correction: str = ""
    printed: dict[str, Any] = field(default_factory=dict)  # printed numbers, if any
    doubt: str = ""  # why it asks for a second look, if it does


def ledger(settings: Configuration | None = None) -> Mapping[str, Claim]:
    """All claims of the companion by id, in the order of the papers.

    Parameters
    ----------
    settings : Configuration, default=None
        Of the companion; None for that in which the current folder lies.

    Raises
    ------
    FileNotFoundError
        If there is no such file, as where the current folder is in no companion.
    ValueError
        If two claims have the same id, or one has a verdict or a correction that there is not, or
        is of a paper that the configuration does not name, where it names any.
    """
    settings = settings or configuration()
    path = settings.claims
    if not path.is_file():
        raise FileNotFoundError(
            f"expected the claims in {path}, got no such file; {FILE} in this folder or above it "
            "says where they are"
        )
    papers = (*settings.papers, settings.own) if settings.papers else ()
    return _read(path, papers, path.stat().st_mtime_ns)


@lru_cache(maxsize=2)  # of a companion, and of one that is installed
def _read(path: Path, papers: tuple[str, ...], changed: int) -> Mapping[str, Claim]:
    """The claims in a file, read once until it is changed."""
    claims: dict[str, Claim] = {}
    for entry in yaml.safe_load(path.read_text("utf-8")):
        claim = Claim(**entry)
        if claim.id in claims:
            raise ValueError(f"the ledger has two claims {claim.id!r}")
        if claim.verdict not in VERDICTS:
            raise ValueError(f"{claim.id}: expected a verdict of {VERDICTS}, got {claim.verdict!r}")
        known = CORRECTIONS if claim.verdict == "holds as corrected" else ("",)
        if claim.correction not in known:
            raise ValueError(
                f"{claim.id}: expected a correction of {(*known,)}, got {claim.correction!r}"
            )
        if papers and claim.paper not in papers:
            raise ValueError(f"{claim.id}: expected a paper of {papers}, got {claim.paper!r}")
        claims[claim.id] = claim
    return claims


def of_papers() -> list[Claim]:
    """The claims of the papers, in their order."""
    return [claim for claim in ledger().values() if claim.paper != configuration().own]


@dataclass(frozen=True)
class Finding:
    """What a check found. In a notebook it shows itself as a box."""

    id: str
    verdict: str
    # what was compared: "what", "measured", "expected" (texts) and "ok"; "group", if there is one,
    # heads the lines that have it in common
    rows: list[dict[str, Any]]
    note: str = ""  # what the reader should take from it
    check: str = "statement"  # which check found it

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return {"text/plain": self.plain(), "text/html": self.html(), MIME: asdict(self)}

    def plain(self) -> str:
        """The finding as text."""
        claim = ledger()[self.id]
        graded = f" ({self.correction})" if self.correction else ""
        lines = [f"{claim.paper}, {claim.where}: {self.verdict}{graded}"]
        for group, rows in self.groups():
            lines += [f"  {group}:"] if group else []
            lines += [f"  {row['what']}: {row['measured']}{self._aside(row)}" for row in rows]
        return "\n".join([*lines, self.note] if self.note else lines)

    def html(self, anchor: bool = True) -> str:
        """The finding as a box in HTML; with an anchor, the scorecard's links lead to it."""
        claim = ledger()[self.id]
        columns = _COLUMNS[self.check]
        head = "".join(f'<th scope="col">{title}</th>' for title in columns.values())
        body = ""
        for group, rows in self.groups():
            if group:
                body += f'<tr><th colspan="{len(columns)}" scope="rowgroup">{group}</th></tr>'
            for row in rows:
                expected = "" if row["expected"] == TRUE else row["expected"]
                shown = row | {"expected": expected, "answer": answer(row)}
                cells = "".join(f"<td>{with_math(shown[key])}</td>" for key in columns)
                body += f"<tr>{cells}</tr>"
        note = f"<p>{with_math(self.note)}</p>" if self.note else ""
        place = f' id="claim-{self.id}"' if anchor else ""
        return (
            f'<div class="claim {_css(self.verdict)}"{place}>'
            f'<p class="claim-head">{badge(self.verdict, self.correction)} '
            f"{html.escape(claim.paper)}, {html.escape(claim.where)}</p>"
            f"<p>{with_math(claim.statement)}</p>"
            f'<div class="claim-scroll"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>{note}</div>"
        )

    @property
    def correction(self) -> str:
        """What has to be corrected, if it holds as corrected."""
        return ledger()[self.id].correction if self.verdict == "holds as corrected" else ""

    def groups(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """The lines under their heads, in order."""
        by_head = groupby(self.rows, key=lambda row: row.get("group", ""))
        return [(head, list(rows)) for head, rows in by_head]

    def _aside(self, row: dict[str, Any]) -> str:
        if self.check == "setting":
            return ""
        return f" ({row['expected']}: {answer(row)})"


_COLUMNS = {  # of the box of each check
    "formula": {"what": "What", "measured": "Difference", "expected": "From", "answer": "It"},
    "statement": {"what": "Must be true", "measured": "What was found", "answer": "It is"},
    "numbers": {"what": "What", "measured": "Here", "expected": "In print", "answer": "It"},
    "setting": {"what": "Reading", "measured": "Result"},
}


def answer(row: dict[str, Any]) -> str:
    """What came out of a line, in a word."""
    if row["expected"] == TRUE:
        return "true" if row["ok"] else "false"
    return "agrees" if row["ok"] else "differs"


def findings_in(notebook: Path) -> Iterator[Finding]:
    """The findings that an executed notebook carries in its outputs, in order."""
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            if MIME in output.get("data", {}):
                yield Finding(**output["data"][MIME])


def disagreements(book: Path, entries: Mapping[str, Claim], pages: Collection[str]) -> list[str]:
    """What the ledger and the findings in a book's executed pages have against each other.

    A companion has a test that there is nothing; ``pages`` are those that the book has.
    """
    found: dict[str, list[tuple[str, Finding]]] = {}
    for page, notebook in notebooks(book).items():
        for finding in findings_in(notebook):
            found.setdefault(finding.id, []).append((page, finding))
    wrong = [f"{id}: checked, but not in the ledger" for id in found if id not in entries]
    for claim in entries.values():
        checks = found.get(claim.id, [])
        if claim.verdict == NOT_YET:
            wrong += [f"{claim.id}: checked on {page}, but {NOT_YET}" for page, _ in checks]
            continue
        if claim.page not in pages:
            wrong.append(f"{claim.id}: treated, but there is no page {claim.page}")
        if not checks:
            wrong.append(f"{claim.id}: {claim.verdict}, but no executed page checks it")
        for page, finding in checks:
            if page != claim.page:
                wrong.append(f"{claim.id}: checked on {page}, the ledger says {claim.page}")
            if finding.verdict != claim.verdict:
                wrong.append(f"{claim.id}: {finding.verdict} on {page}, not {claim.verdict}")
    return wrong


def numbers_in(notebook: Path) -> dict[str, int | float | str]:
    """The numbers that an executed notebook gives to its text by ``glue``, as they stand there."""
    content = json.loads(notebook.read_text("utf-8"))
    outputs = [output for cell in content["cells"] for output in cell.get("outputs", [])]
    return {
        output["metadata"]["scrapbook"]["name"]: ast.literal_eval("".join(texts))
        for output in outputs
        if (texts := output.get("data", {}).get("application/papermill.record/text/plain"))
    }


def badge(verdict: str, correction: str = "") -> str:
    """The verdict as HTML, in its colour, with what has to be corrected behind it."""
    graded = (
        f' <span class="claim-correction" title="{CORRECTIONS[correction]}">{correction}</span>'
        if correction
        else ""
    )
    shown = f'<span class="claim-verdict">{verdict}</span>{graded}'
    return f'<span class="{_css(verdict)}">{shown}</span>'


def _css(verdict: str) -> str:
    """The class of a verdict in the book's style sheet, which gives it a colour and a sign."""
    return "claim-" + verdict.replace(" ", "-")
