"""Each page that has a `seed`, run with others; a table of its verdicts by seed.

    python tools/seeds.py [PAGE ...] [--seeds 1 2 3]

Numbers may move with the seed; a verdict that does is a finding, and a page must reach its end. The
executed pages are kept in _build/seeds.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import nbformat
import notebooks
import papermill
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError

from bayesloss_book.ledger.claims import findings_in, ledger

__all__ = ["Run", "committed_seed", "main", "run", "table"]

OUTPUT = notebooks.ROOT / "_build" / "seeds"


class Run(NamedTuple):
    """A page with a seed: its verdicts by claim, what it says that is not so, where it stopped."""

    verdicts: dict[str, str]
    not_so: list[str]
    stopped: str


def committed_seed(notebook: NotebookNode) -> int | None:
    """The seed in a page's parameters cell; None if there is none."""
    for cell in notebook.cells:
        for node in (
            ast.parse(cell.source).body if "parameters" in cell.metadata.get("tags", []) else []
        ):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "seed":
                return int(ast.literal_eval(node.value))
    return None


def run(name: str, seed: int, book: Path = notebooks.BOOK) -> Run:
    """Execute a page from its source with another seed, to its end or to where it stops."""
    output = OUTPUT / str(seed) / f"{name}.ipynb"
    notebooks.write(notebooks.from_source(name, book), output)
    stopped = ""
    try:
        papermill.execute_notebook(
            output,
            output,
            parameters={"seed": seed},
            kernel_name="python3",
            extra_arguments=notebooks.QUIET,
            cwd=notebooks.notebook_path(name, book).parent,
            progress_bar=False,
        )
    except (PapermillExecutionError, DeadKernelError) as error:
        stopped = notebooks.plain(error).strip().splitlines()[-1]
    streams = [
        line
        for cell in nbformat.read(output, as_version=4).cells
        for shown in cell.get("outputs", [])
        for line in shown.get("text", "").splitlines()
        if "LedgerWarning: the page says" in line
    ]
    said = [line.partition("LedgerWarning: ")[2] for line in streams]
    return Run({found.id: found.verdict for found in findings_in(output)}, said, stopped)


def table(runs: dict[str, dict[int, Run]]) -> list[str]:
    """A line for each page, and below it what is not as committed, with the seeds."""
    lines = []
    for page, by_seed in runs.items():
        ids = dict.fromkeys(id for run in by_seed.values() for id in run.verdicts)
        odd: dict[str, list[int]] = {}
        for seed, found in by_seed.items():
            moved = [
                f"{id}: {verdict}, not {ledger()[id].verdict}"
                for id, verdict in found.verdicts.items()
                if verdict != ledger()[id].verdict
            ]
            for what in moved + found.not_so + [f"stopped: {found.stopped}"] * bool(found.stopped):
                odd.setdefault(what, []).append(seed)
        seeds = sorted({seed for some in odd.values() for seed in some})
        told = f"otherwise with {len(seeds)} of {len(by_seed)} seeds" if odd else "as committed"
        lines.append(f"{page:<34}{len(ids):>3} verdicts  {told}")
        lines += [f"    {what}  (seed {', '.join(map(str, some))})" for what, some in odd.items()]
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
    every = [(found, id) for some in runs.values() for found in some.values() for id in [*found[0]]]
    moved = any(found.verdicts[id] != ledger()[id].verdict for found, id in every)
    return int(moved or any(found.stopped for some in runs.values() for found in some.values()))


if __name__ == "__main__":
    sys.exit(main())
