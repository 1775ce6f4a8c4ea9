"""The ledger of claims, and what the pages found.

``claims.yml`` lists what the two papers claim, with the verdict that the companion gives. On its
page a claim is checked by a function of :mod:`bayesloss_book.ledger.checks`, which returns a
:class:`Finding`. A finding shows itself in the page, and carries its content in a form that the
scorecard and the tests read back from the executed notebook.
"""

import html
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from bayesloss_book.html import with_math

__all__ = [
    "MIME",
    "NOT_YET",
    "VERDICTS",
    "Claim",
    "Finding",
    "findings_in",
    "ledger",
]

NOT_YET = "not yet treated"
_TONES = {  # each verdict's colour in the book's style sheet
    "holds": "holds",
    "holds as corrected": "corrected",
    "fails": "fails",
    "reproduced": "holds",
    "reproduced in pattern": "corrected",
    "not reproduced": "fails",
    "under-specified": "corrected",
    NOT_YET: "open",
}
VERDICTS = tuple(_TONES)
MIME = "application/vnd.bayesloss.claim+json"


@dataclass(frozen=True)
class Claim:
    """One entry of the ledger.

    Attributes
    ----------
    id : str
    paper : {"W&N", "LHG"}
    kind : str
        Such as "theorem", "equation" or "table".
    where : str
        Where in the paper it stands.
    statement : str
        The claim in our words; formulas as printed, between dollar signs.
    page : str
        The page that treats it, such as "learning/auto_mpg".
    verdict : str
        One of :data:`VERDICTS`.
    printed : dict
        Printed numbers, if any.
    doubt : str
        Why it asks for a second look, if it does.
    """

    id: str
    paper: str
    kind: str
    where: str
    statement: str
    page: str
    verdict: str
    printed: dict[str, Any] = field(default_factory=dict)
    doubt: str = ""


@cache
def ledger() -> Mapping[str, Claim]:
    """All claims by id, in the order of the papers.

    Raises
    ------
    ValueError
        If an id stands twice, or a verdict is not one of :data:`VERDICTS`.
    """
    text = resources.files("bayesloss_book.ledger").joinpath("claims.yml").read_text("utf-8")
    claims: dict[str, Claim] = {}
    for entry in yaml.safe_load(text):
        claim = Claim(**entry)
        if claim.id in claims:
            raise ValueError(f"the ledger has two claims {claim.id!r}")
        if claim.verdict not in VERDICTS:
            raise ValueError(f"{claim.id}: expected a verdict of {VERDICTS}, got {claim.verdict!r}")
        claims[claim.id] = claim
    return claims


@dataclass(frozen=True)
class Finding:
    """What a check found. In a notebook it shows itself as a box.

    Attributes
    ----------
    id : str
    verdict : str
    rows : list of dict
        What was compared: "what", "measured", "expected" (texts) and "ok".
    note : str
        What the reader should take from it.
    """

    id: str
    verdict: str
    rows: list[dict[str, Any]]
    note: str = ""

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return {
            "text/plain": self.plain(),
            "text/html": self.html(),
            MIME: asdict(self),
        }

    def plain(self) -> str:
        """The finding as text."""
        claim = ledger()[self.id]
        lines = [f"{claim.paper}, {claim.where}: {self.verdict}"]
        lines += [
            f"  {row['what']}: {row['measured']} (expected {row['expected']})"
            f"{'' if row['ok'] else '  <- does not agree'}"
            for row in self.rows
        ]
        return "\n".join([*lines, self.note] if self.note else lines)

    def html(self, anchor: bool = True) -> str:
        """The finding as a box in HTML; with an anchor, the scorecard's links lead to it."""
        claim = ledger()[self.id]
        body = "".join(
            f"<tr><td>{with_math(row['what'])}</td><td>{with_math(row['measured'])}</td>"
            f"<td>{with_math(row['expected'])}</td><td>{'yes' if row['ok'] else 'no'}</td></tr>"
            for row in self.rows
        )
        note = f"<p>{with_math(self.note)}</p>" if self.note else ""
        place = f' id="claim-{self.id}"' if anchor else ""
        return (
            f'<div class="claim claim-{_TONES[self.verdict]}"{place}>'
            f'<p class="claim-head">{badge(self.verdict)} '
            f"{html.escape(claim.paper)}, {html.escape(claim.where)}</p>"
            f"<p>{with_math(claim.statement)}</p>"
            '<div class="claim-scroll"><table><thead><tr><th>What</th><th>Measured</th>'
            f"<th>Expected</th><th>Agrees</th></tr></thead><tbody>{body}</tbody></table></div>"
            f"{note}</div>"
        )


def findings_in(notebook: Path) -> Iterator[Finding]:
    """The findings that an executed notebook carries in its outputs, in order."""
    content = json.loads(notebook.read_text("utf-8"))
    for cell in content["cells"]:
        for output in cell.get("outputs", []):
            if MIME in output.get("data", {}):
                yield Finding(**output["data"][MIME])


def badge(verdict: str) -> str:
    """The verdict as HTML, in its colour; the word says it without the colour."""
    return (
        f'<span class="claim-{_TONES[verdict]}"><span class="claim-verdict">{verdict}</span></span>'
    )
