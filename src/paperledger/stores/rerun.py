"""Measure all of a store anew: ``python -m paperledger.stores.rerun NAME``.

A store's provenance names the function, its parameters and the cells, so that no more is needed.
The rows go to ``_build/rerun`` as they are done, and a killed run is taken up where it stopped; at
the end they are compared with the stored ones. `how_to_rerun` is the table of what that takes.
"""

import argparse
import html
import pkgutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from paperledger.configuration import configuration
from paperledger.html import HTMLTable
from paperledger.stores.needs import extra_of, files
from paperledger.stores.provenance import UNRECORDED, current_runs, described, machine
from paperledger.stores.results import COMPARED, compared, run_cells
from paperledger.stores.tables import Row, read
from paperledger.stores.verify import RTOL, allowed, how_nearly, made_elsewhere


def main(arguments: list[str] | None = None) -> int:
    """Measure a store anew and compare; the exit status is 1 where it is not what is stored."""
    parser = argparse.ArgumentParser(description="measure a store anew, and compare")
    parser.add_argument("name")
    settings = configuration()
    parser.add_argument("--folder", type=Path, default=settings.results)
    parser.add_argument("--into", type=Path, default=settings.root / "_build" / "rerun")
    parser.add_argument("--jobs", type=int, default=1, help="how many cells at a time")
    options = parser.parse_args(arguments)
    rows, provenance = read(options.folder / f"{options.name}.csv")
    cells = [{column: row[column] for column in provenance["columns"]} for row in rows]
    again = run_cells(
        pkgutil.resolve_name(provenance["function"]),
        cells,
        options.into,
        options.name,
        parameters=provenance["parameters"],
        n_jobs=options.jobs,
        threads=provenance["threads"],
    )
    elsewhere = made_elsewhere(provenance, machine())
    within = allowed(options.name, elsewhere)
    report: list[tuple[Any, ...]] = []
    for cell, row, now in zip(cells, rows, again.to_dict("records"), strict=True):
        report += compared(cell, row, {str(n): v for n, v in now.items()}, RTOL, within)
    frame = pd.DataFrame(report, columns=COMPARED)
    wrong = frame[~frame["ok"]]
    if len(wrong):
        print(f"{options.name}: {len(wrong)} of {len(frame)} measures are not what is stored")
        print(wrong.to_string(index=False))
        return 1
    print(f"{options.name}: {len(cells)} cells agree{how_nearly(frame, elsewhere)}")
    return 0


def how_to_rerun(folder: Path, pages: Iterable[str]) -> pd.DataFrame:
    """A row a store: its page, rows, seconds, needs, processors, and the last run.

    The page is that which the measuring function is for, of ``pages``, or "". The seconds are those
    of the rows that there are, one after the other; runs that were superseded are in no number.
    """
    known = list(pages)
    table = []
    for path in sorted(folder.glob("*.csv")):
        rows, provenance = read(path)
        runs = current_runs(provenance)
        processors = [described(run).removesuffix(UNRECORDED) for run in runs]
        last = runs[-1]
        entry = {
            "store": path.stem,
            "page": _page(provenance["function"], known),
            "rows": len(rows),
            "seconds": sum(row["seconds"] for row in rows),
            "needs": _needs(path.stem, rows),
            "processors": list(dict.fromkeys(processors)),
            "last run": last["end"][:10],
            "commit": last["commit"][:10],
        }
        table.append(entry)
    return pd.DataFrame(table)


def shown(table: pd.DataFrame, root: str) -> HTMLTable:
    """The table of `how_to_rerun`; ``root`` leads to the top, for links to the pages."""
    names = ("Rows", "Takes", "Needs", "Processor", "Last run")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    bodies = ""
    lines = []
    for _, row in table.iterrows():
        texts = [
            f"{row['rows']:,}",
            _duration(row["seconds"]),
            row["needs"],
            "; ".join(row["processors"]),
            f"{row['last run']}, {row['commit']}",
        ]
        store = f"<code>{row['store']}</code>"
        link = f'<a href="{root}/{row["page"]}.html">{store}</a>' if row["page"] else store
        cells = "".join(f"<td>{html.escape(text)}</td>" for text in texts)
        # A line of its own, or a phone would break the name into syllables.
        name = f'<tr><th colspan="{len(names)}" scope="rowgroup">{link}</th></tr>'
        bodies += f"<tbody>{name}<tr>{cells}</tr></tbody>"
        lines.append(f"* `{row['store']}`: {'; '.join(filter(None, texts))}")
    return HTMLTable(
        f"<table><thead><tr>{head}</tr></thead>{bodies}</table>",
        "\n".join(line.removeprefix("* ").replace("`", "") for line in lines),
        "\n".join(lines),
    )


def _page(function: str, pages: list[str]) -> str:
    module = function.partition(":")[0].removeprefix(f"{configuration().package}.")
    path = module.replace(".", "/")
    return next((page for page in pages if path == page or path.startswith(f"{page}/")), "")


def _needs(store: str, rows: Iterable[Row]) -> str:
    names = sorted({name for row in rows for name in files(row)})
    parts = [f"files of {', '.join(names)}"] if names else []
    extra = extra_of(store)
    if extra:
        parts.append(f"the extra {extra.name}")
    return "; ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f}\u00a0s"
    return f"{seconds / 60:.0f}\u00a0min" if seconds < 6000 else f"{seconds / 3600:.1f}\u00a0h"


if __name__ == "__main__":
    raise SystemExit(main())
