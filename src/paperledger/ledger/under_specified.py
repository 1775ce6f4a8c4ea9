"""What the papers leave open, as a table: the choice that was made, and how much it matters."""

import html
from collections.abc import Mapping

from paperledger.html import HTMLTable, with_math
from paperledger.ledger.claims import Claim, Finding, ledger
from paperledger.ledger.scorecard import Found, link

# of the little scales, in pixels
WIDTH = 320
HEIGHT = 28
MARGIN = 8


def settings_table(paper: str, choices: Mapping[str, str], findings: Found, root: str) -> HTMLTable:
    """The settings that a paper leaves open and on which a result depends, in its order."""
    claims = {
        claim.id: claim
        for claim in ledger().values()
        if claim.paper == paper and claim.verdict == "under-specified"
    }
    if set(choices) != set(claims):
        odd = sorted(set(choices) ^ set(claims))
        raise ValueError(f"expected a choice for each under-specified claim of {paper}, odd: {odd}")
    entries = [(claim, choices[id], findings[id][1]) for id, claim in claims.items()]
    bodies = "".join(_body(*entry, root) for entry in entries)
    return HTMLTable(
        f'<table class="settings"><colgroup><col><col></colgroup>{bodies}</table>',
        "\n".join(f"{finding.id}: {_range(finding)}" for _, _, finding in entries),
        "\n\n".join(_markdown(*entry) for entry in entries),
    )


def sway(finding: Finding) -> tuple[dict[str, float], float, float]:
    """The results under each reading of a setting, their median, and what would not matter."""
    if finding.check != "setting":
        raise ValueError(f"{finding.id} is no setting but of the check {finding.check!r}")
    middle, half = finding.rows[0]["expected"].split(" ± ")
    results = {row["what"]: float(row["measured"]) for row in finding.rows}
    return results, float(middle), float(half)


def _range(finding: Finding) -> str:
    """The results in words: from the least to the greatest, and what that is in tolerances."""
    results, _, half = sway(finding)
    least = min(results, key=results.__getitem__)
    greatest = max(results, key=results.__getitem__)
    shown = {row["what"]: row["measured"] for row in finding.rows}
    times = (results[greatest] - results[least]) / (2 * half)
    spread = f"{times:.0f}" if times >= 10 else f"{times:.1f}"
    return (
        f"from {shown[least]} ({least}) to {shown[greatest]} ({greatest}): "
        f"{spread} times what would not matter"
    )


def _body(claim: Claim, choice: str, finding: Finding, root: str) -> str:
    place = link(claim, html.escape(claim.where), root)
    matters = f"{with_math(_range(finding))}.{_scale(finding)}{with_math(finding.note)}"
    rows = {
        "Left open": with_math(claim.doubt),
        "Our choice": with_math(choice),
        "How much": matters,
    }
    return (
        f'<tbody id="{claim.id}"><tr><th colspan="2" scope="rowgroup">{place}</th></tr>'
        f'<tr><td colspan="2">{with_math(claim.statement)}</td></tr>'
        + "".join(f'<tr><th scope="row">{k}</th><td>{v}</td></tr>' for k, v in rows.items())
        + "</tbody>"
    )


def _scale(finding: Finding) -> str:
    """A dot for the result of each reading, on the band that would count as no dependence."""
    results, middle, half = sway(finding)
    low = min(*results.values(), middle - half)
    high = max(*results.values(), middle + half)

    def place(value: float) -> float:
        return round(MARGIN + (value - low) / (high - low) * (WIDTH - 2 * MARGIN), 1)

    left = place(middle - half)
    right = place(middle + half)
    level = HEIGHT / 2
    dots = "".join(
        f'<circle cx="{place(value)}" cy="{level}" r="5"/>' for value in results.values()
    )
    said = f"{len(results)} readings as dots; the band is what would not matter"
    return (
        f'<svg class="sway" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{said}">'
        f'<rect x="{left}" y="3" width="{max(right - left, 1):.1f}" height="{HEIGHT - 6}"/>'
        f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{level}" y2="{level}"/>{dots}</svg>'
    )


def _markdown(claim: Claim, choice: str, finding: Finding) -> str:
    return "\n".join(
        [
            f"**{claim.where}.** {claim.statement}",
            "",
            f"* Left open: {claim.doubt}",
            f"* Our choice: {choice}",
            f"* How much it matters: {_range(finding)}. {finding.note}",
        ]
    )
