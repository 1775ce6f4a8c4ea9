"""Each page that has a `seed`, run with others; a table of its verdicts by seed.

    python tools/seeds.py [PAGE ...] [--seeds 1 2 3]

Numbers may move with the seed; a verdict that does is a finding, and a page must reach its end. The
executed pages are kept in _build/seeds.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import nbformat
import notebooks
from nbformat import NotebookNode

from bayesloss_book.ledger.claims import findings_in, ledger

OUTPUT = notebooks.ROOT / "_build" / "seeds"


class Run(NamedTuple):
    """A page with a seed: its verdicts by claim, what it says that is not so, where it stopped."""

    verdicts: dict[str, str]
    not_so: list[str]
    stopped: str

    def odd(self) -> list[str]:
        """What is not as committed."""
        moved = [
            f"{id}: {verdict}, not {ledger()[id].verdict}"
            for id, verdict in self.verdicts.items()
            if verdict != ledger()[id].verdict
        ]
        return moved + self.not_so + [f"stopped: {self.stopped}"] * bool(self.stopped)


def committed_seed(notebook: NotebookNode) -> int | None:
    """The seed in a page's parameters cell; None if there is none."""
    found = re.search(r"^seed = (\d+)", notebooks.parameters_of(notebook), re.MULTILINE)
    return int(found[1]) if found else None


def run(name: str, seed: int, book: Path = notebooks.BOOK) -> Run:
    """Execute a page from its source with another seed, to its end or to where it stops."""
    output, stopped = OUTPUT / str(seed) / f"{name}.ipynb", ""
    try:
        notebooks.execute_with(name, output, book, given={"seed": seed}, progress_bar=False)
    except notebooks.STOPPED as error:
        stopped = notebooks.plain(error).strip().splitlines()[-1]
    cells = nbformat.read(output, as_version=4).cells
    text = "".join(part.get("text", "") for cell in cells for part in cell.get("outputs", []))
    said = re.findall(r"LedgerWarning: (the page says.*)", text)
    return Run({found.id: found.verdict for found in findings_in(output)}, said, stopped)


def table(runs: dict[str, dict[int, Run]]) -> list[str]:
    """A line for each page, and below it what is not as committed, with the seeds."""
    lines = []
    for page, by_seed in runs.items():
        ids = {id for run in by_seed.values() for id in run.verdicts}
        odd = {seed: run.odd() for seed, run in by_seed.items()}
        several = sum(map(bool, odd.values()))
        told = f"otherwise with {several} of {len(odd)} seeds" if several else "as committed"
        lines.append(f"{page:<34}{len(ids):>3} verdicts  {told}")
        for what in dict.fromkeys(what for some in odd.values() for what in some):
            seeds = ", ".join(str(seed) for seed, some in odd.items() if what in some)
            lines.append(f"    {what}  (seed {seeds})")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all; the exit status is 1 if a page stopped or a verdict moved."""
    os.environ.update(notebooks.ENVIRONMENT)
    own = {name: committed_seed(notebooks.from_source(name)) for name in notebooks.pages()}
    own = {name: seed for name, seed in own.items() if seed is not None}
    parser = argparse.ArgumentParser(description="Pages with other seeds: which verdicts stay?")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 21)))
    parser.add_argument("page", nargs="*", choices=[[], *own], help="all if none")
    chosen = parser.parse_args(arguments)
    runs: dict[str, dict[int, Run]] = {}
    for name in chosen.page or own:
        for seed in (seed for seed in chosen.seeds if seed != own[name]):
            print(f"{name}, seed {seed}", flush=True)
            runs.setdefault(name, {})[seed] = run(name, seed)
    print("", *table(runs), sep="\n")
    every = [found for by_seed in runs.values() for found in by_seed.values()]
    return int(any(found._replace(not_so=[]).odd() for found in every))


if __name__ == "__main__":
    sys.exit(main())
