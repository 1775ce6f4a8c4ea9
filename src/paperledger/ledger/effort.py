"""What it took to check a paper, page by page: claims, comparisons, stored rows and core hours."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from paperledger.ledger.claims import of_papers
from paperledger.ledger.scorecard import Found
from paperledger.stores.rerun import how_to_rerun


def effort(paper: str, findings: Found, results: Path, pages: Iterable[str]) -> pd.DataFrame:
    """A row a page that checks claims of a paper, and their sum.

    Parameters
    ----------
    paper : str
        As the ledger calls it.
    findings : mapping
        Those of :func:`paperledger.ledger.scorecard.all_findings`.
    results : pathlib.Path
        The folder of the stores.
    pages : iterable of str
        The names of all pages.

    Returns
    -------
    pandas.DataFrame
        The number of ``claims`` of the paper, of ``comparisons`` that their checks make, of
        ``stored rows`` that the page measured, and the ``core hours`` that these took.
    """
    stored = how_to_rerun(results, pages).groupby("page")[["rows", "seconds"]].sum()
    claims = [claim for claim in of_papers() if claim.paper == paper]
    rows = {}
    for page in dict.fromkeys(claim.page for claim in claims):
        here = [claim for claim in claims if claim.page == page]
        rows[page] = {
            "claims": len(here),
            "comparisons": sum(len(findings[claim.id][1].rows) for claim in here),
            "stored rows": int(stored["rows"].get(page, 0)),
            "core hours": float(stored["seconds"].get(page, 0)) / 3600,
        }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("page")
    table.loc["all"] = table.sum()
    whole = ["claims", "comparisons", "stored rows"]
    return table.astype(dict.fromkeys(whole, int))
