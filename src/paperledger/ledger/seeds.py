"""Execute each page that has a `seed` with other seeds, and count the verdicts that move.

    python -m paperledger.ledger.seeds [PAGE ...] [--seeds 1 2 3]

Numbers may move with the seed; a verdict that does is a finding, and a page must reach its end. The
counts are stored as they are made, for the scorecard; rows of a page whose code has changed since
are made anew. The executed pages are kept in _build/seeds.
"""

import argparse
import hashlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import papermill

from paperledger.configuration import configuration
from paperledger.kernels import ENVIRONMENT, KERNEL, STOPPED
from paperledger.ledger.claims import findings_in, ledger
from paperledger.ledger.falsify import digest
from paperledger.pages import notebooks
from paperledger.stores import tables
from paperledger.stores.results import crossed, load_results, run_cells

STORE = "verdicts_by_seed"


def pages_with_seed(book: Path) -> list[str]:
    """The names of the pages that have a seed."""
    return [
        name
        for name, path in notebooks(book).items()
        if any(re.search(r"^seed = \d", code, re.MULTILINE) for code in _codes(path))
    ]


def _codes(notebook: Path) -> list[str]:
    """The code of a page's cells."""
    cells = nbformat.read(notebook, as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


def code_of(page: str, book: Path) -> int:
    """A number that changes with the code of a page's cells, and not with their layout.

    The cell that refuses impossible parameters changes nothing that the others find.
    """
    codes = _codes(book / f"{page}.ipynb")
    each = [digest(code) for code in codes if "check_parameters(" not in code]
    return int(hashlib.sha256(" ".join(each).encode()).hexdigest()[:12], 16)


def measure(*, page: str, seed: int) -> dict[str, int]:
    """Execute a page of the companion with a seed, to its end or to where it stops."""
    book = configuration().pages
    output = _executed(page, seed)
    output.parent.mkdir(parents=True, exist_ok=True)
    os.environ.update(ENVIRONMENT)  # of the kernel
    at: dict[str, Any] = {"progress_bar": False, "cwd": str((book / page).parent), **KERNEL}
    stopped = False
    try:
        papermill.execute_notebook(book / f"{page}.ipynb", output, {"seed": seed}, **at)
    except STOPPED:
        stopped = True
    counts = {"verdicts": len(list(findings_in(output))), "moved": len(_moved(output))}
    counts |= {"untrue": len(_untrue(output)), "stopped": int(stopped)}
    return counts | {"code": code_of(page, book)}


def _executed(page: str, seed: int) -> Path:
    return configuration().root / "_build" / "seeds" / str(seed) / f"{page}.ipynb"


def _moved(notebook: Path) -> list[str]:
    """The verdicts that are not those of the ledger."""
    found = ((each.id, each.verdict, ledger()[each.id].verdict) for each in findings_in(notebook))
    return [f"{id}: {verdict}, not {own}" for id, verdict, own in found if verdict != own]


def _untrue(notebook: Path) -> list[str]:
    """The sentences that a page found not to be so."""
    cells = nbformat.read(notebook, as_version=4).cells
    text = "".join(part.get("text", "") for cell in cells for part in cell.get("outputs", []))
    return re.findall(r"LedgerWarning: (the page says.*)", text)


def by_page(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a page: verdicts, seeds tried, and at how many of them something is otherwise."""
    rows = rows.assign(moved=rows["moved"] > 0, untrue=rows["untrue"] > 0)
    pages = rows.groupby("page")
    counts = pages[["moved", "untrue", "stopped"]].sum().astype(int)
    counts.columns = ["a verdict moved", "a sentence did not hold", "the page stopped"]
    counts.insert(0, "verdicts", pages["verdicts"].max())
    counts.insert(1, "seeds", pages.size())
    return counts


def drop_stale(folder: Path, book: Path) -> None:
    """Take out the stored rows of pages whose code is another by now."""
    table = folder / f"{STORE}.csv"
    if table.exists():
        rows, origin = tables.read(table)
        code = {page: code_of(page, book) for page in pages_with_seed(book)}
        kept = [row for row in rows if row["code"] == code.get(row["page"])]
        if not kept:
            table.unlink()
        elif len(kept) < len(rows):
            tables.write(table, kept, origin)


def main(arguments: Sequence[str] | None = None, n_jobs: int = -1) -> int:
    """Run what is not stored; the exit status is 1 if a page stopped or a verdict moved."""
    settings = configuration()
    pages = pages_with_seed(settings.pages)
    parser = argparse.ArgumentParser(description="Pages with other seeds: which verdicts stay?")
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(1, settings.seeds + 1)])
    parser.add_argument("--folder", type=Path, default=settings.results)
    parser.add_argument("page", nargs="*", choices=[[], *pages], help="all if none")
    chosen = parser.parse_args(arguments)
    drop_stale(chosen.folder, settings.pages)
    cells = crossed(seed=chosen.seeds, page=chosen.page or pages)
    run_cells(measure, cells, chosen.folder, STORE, n_jobs=n_jobs)
    rows = load_results(chosen.folder, STORE)
    print(by_page(rows).to_string())
    odd = rows[rows[["moved", "untrue", "stopped"]].any(axis=1)]
    for row in odd.to_dict("records"):
        what = ", ".join(f"{row[name]} {name}" for name in ("moved", "untrue", "stopped"))
        print(f"{row['page']}, seed {row['seed']}: {what}")
        output = _executed(row["page"], row["seed"])
        if output.exists():
            moved = _moved(output)
            untrue = _untrue(output)
            # Or the page there is of another run.
            if (len(moved), len(untrue)) == (row["moved"], row["untrue"]):
                print(*(f"    {each}" for each in moved + untrue), sep="\n")
    return int(bool(odd[["moved", "stopped"]].to_numpy().any()))


if __name__ == "__main__":
    from paperledger.ledger import seeds  # so that the store names this module

    sys.exit(seeds.main())
