"""The scorecard's picture and table of headlines, made from the ledger and what pages found."""

from collections.abc import Mapping
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from paperledger.html import HTMLTable, with_math
from paperledger.ledger.claims import Finding, badge, ledger, of_papers
from paperledger.ledger.scorecard import Found, link
from paperledger.ledger.under_specified import sway

# The colours are those of the chips, in style.css; the shape alone tells the verdicts apart.
MARKS = {
    "holds": ("#006b4f", "o"),
    "holds as corrected": ("#005f99", "^"),
    "reproduced": ("#006b4f", "D"),
    "reproduced in pattern": ("#4a4fa0", "s"),
    "under-specified": ("#785800", "P"),
    "not reproduced": ("#a83c00", "X"),
    "fails": ("#a3123a", "v"),
    "not yet treated": ("#5b6470", "."),
}


def draw_verdicts(titles: Mapping[str, str]) -> Figure:
    """Draw one mark a claim of the papers, in a row for each page, in the titles' order."""
    claims = of_papers()
    if missing := {claim.page for claim in claims} - set(titles):
        raise ValueError(f"expected a title for every page with claims, none for {missing}")
    pages = [page for page in titles if any(claim.page == page for claim in claims)]
    figure, axes = plt.subplots(figsize=(5.8, 0.27 * len(pages) + 1.1))
    order = list(MARKS)
    for row, page in enumerate(pages):
        verdicts = sorted((c.verdict for c in claims if c.page == page), key=order.index)
        for verdict, (colour, marker) in MARKS.items():
            places = [k + 1 for k, one in enumerate(verdicts) if one == verdict]
            axes.plot(places, [row] * len(places), marker, color=colour, markersize=6.5)
        axes.text(len(verdicts) + 1.2, row, str(len(verdicts)), va="center", color="#4D4D4D")
    axes.set_yticks(range(len(pages)), [titles[page] for page in pages])
    axes.set_ylim(len(pages) - 0.4, -0.6)
    axes.xaxis.set_visible(False)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(left=False)
    figure.legend(
        handles=[
            Line2D([], [], color=colour, marker=marker, linestyle="", label=f"{verdict} ({count})")
            for verdict, (colour, marker) in MARKS.items()
            if (count := sum(claim.verdict == verdict for claim in claims))
        ],
        loc="outside lower center",
        ncols=3,
    )
    return figure


class Headline(NamedTuple):
    """How a claim is put to a reader who has not read the paper."""

    title: str  # what the claim is about
    # which line of its finding is shown. With None the lines are counted or, for a setting that was
    # left open, their range is given.
    line: str | None = None
    printed: str = "{}"  # a frame for what is printed; "{}" is its place
    ours: str = "{}"  # a frame for what was found. The value itself always comes from the finding.


def headlines(rows: Mapping[str, Headline], findings: Found, root: str) -> HTMLTable:
    """Some claims with what is printed, what we found, and the verdict."""
    lines = []
    body = ""
    for id, row in rows.items():
        claim = ledger()[id]
        finding = findings[id][1]
        if "{}" not in row.ours:
            raise ValueError(f'{id}: expected a place "{{}}" for what was found, got {row.ours!r}')
        frames = zip((row.printed, row.ours), _found(finding, row.line), strict=True)
        printed, ours = (frame.replace("{}", value) for frame, value in frames)
        title = f"{claim.paper}: {row.title}"
        lines.append(f"{title}: in print {printed}; here {ours}; {finding.verdict}")
        body += (
            f'<tr><th scope="row">{link(claim, with_math(title), root)} {badge(finding.verdict)}'
            f"</th><td>{with_math(printed)}</td><td>{with_math(ours)}</td></tr>"
        )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Claim", "In print", "Here"))
    return HTMLTable(
        f'<table class="headlines"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>',
        "\n".join(lines),
        "\n".join(f"* {line}" for line in lines),
    )


def _found(finding: Finding, line: str | None) -> tuple[str, str]:
    """What a headline says is printed, and what was found."""
    if line is not None:
        rows = {row["what"]: row for row in finding.rows}
        if line not in rows:
            raise ValueError(f"{finding.id} has no line {line!r}, only {list(rows)}")
        row = rows[line]
        return (row["expected"] if "±" in row["expected"] else line), row["measured"]
    if finding.verdict == "under-specified":
        results, _, _ = sway(finding)
        return "left open", f"{min(results.values()):g} to {max(results.values()):g}"
    numbers = [row for row in finding.rows if "±" in row["expected"]]
    agree = sum(row["ok"] for row in numbers)
    return f"{len(numbers)} numbers", f"{agree} within the tolerance"
