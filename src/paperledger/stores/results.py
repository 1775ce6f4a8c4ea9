"""Store the results of experiments: a row a cell, resumable, with their provenance.

An experiment is a pure function ``measure(**parameters, **cell)`` that returns a dict of numbers,
and a list of cells, dicts of scalars. `run_cells` measures the missing cells and keeps
``<name>.csv``, a row a cell (the cell, its measures, ``seconds``), and ``<name>.provenance.json``.

The measures do not depend on the order of the cells or on the number of workers: a cell has its
process to itself while it runs, with a fixed number of threads, and seeds its own generators.
Import libraries at the top of the module of ``measure``: one that is first loaded inside a cell
brings its own number of threads.

Only the parent process writes, whole files and atomically: a kill at any moment loses the running
cells and nothing else. Of two runs on one store the second waits, and finds the rows of the first.
"""

import copy
import inspect
import json
import math
import os
import pkgutil
import random
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from tqdm import tqdm

from paperledger.stores.lock import writing
from paperledger.stores.needs import DataMissing
from paperledger.stores.orphans import end_with
from paperledger.stores.provenance import environment
from paperledger.stores.tables import Row, is_half_done, is_stored, read, settle, write
from paperledger.stores.tolerances import Within, first_fitting
from paperledger.threads import fixed_threads

Cell = Mapping[str, str | int | float | bool]
Measure = Callable[..., Mapping[str, Any]]
Key = tuple[object, ...]
Folder = str | os.PathLike[str]

COMPARED = ["cell", "measure", "stored", "recomputed", "ok"]

_ONE_CELL_AT_A_TIME = threading.RLock()


def run_cells(
    measure: Measure,
    cells: Sequence[Cell],
    folder: Folder,
    name: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
    threads: int = 1,
) -> pd.DataFrame:
    """Measure and store the cells that are missing; the rows of `cells`, in their order."""
    columns = _columns(cells)
    origin = _origin(measure, name, columns, parameters or {}, threads)
    table = Path(folder) / f"{name}.csv"
    asked: dict[Key, Cell] = {}
    for cell in cells:
        if _key(cell, columns) in asked:
            raise ValueError(f"expected each cell once, got {dict(cell)} twice")
        asked[_key(cell, columns)] = cell
    rows, _ = _stored(table, origin)
    if asked.keys() - rows.keys() or is_half_done(table):
        with writing(table):
            settle(table)
            rows, runs = _stored(table, origin)  # another run may have stored them meanwhile
            missing = [dict(cell) for key, cell in asked.items() if key not in rows]
            run: dict[str, Any] = {"start": _now(), "end": "", "cells": 0, "seconds": 0.0}
            run |= {"n_jobs": effective_n_jobs(n_jobs), **environment(measure)}
            begin = time.perf_counter()
            with closing(_measured(measure, origin, missing, n_jobs)) as measured:
                for row in measured:
                    header = list(next(iter(rows.values()), row))
                    if row.keys() != set(header):
                        raise ValueError(
                            f"{table}: expected the columns {header}, got {row}; delete the file "
                            "or choose another name"
                        )
                    rows[_key(row, columns)] = row
                    run |= {"end": _now(), "seconds": round(time.perf_counter() - begin, 3)}
                    run["cells"] += 1
                    in_order = [rows[key] for key in dict.fromkeys([*asked, *rows]) if key in rows]
                    write(table, in_order, origin | {"runs": [*runs, run]})
    return pd.DataFrame([rows[key] for key in asked])


def runs(
    measure: Measure, cells: Callable[[], Sequence[Cell]], name: str, **parameters: Any
) -> Callable[..., None]:
    """A function of a folder, and of ``n_jobs``, that measures all cells that a store misses."""

    def run(folder: Folder, *, n_jobs: int | None = None) -> None:
        run_cells(measure, cells(), folder, name, parameters=parameters, n_jobs=n_jobs)

    return run


def _key(row: Cell, columns: Iterable[str]) -> Key:
    return tuple(row[column] for column in columns)


def _stored(table: Path, origin: dict[str, Any]) -> tuple[dict[Key, Row], list[dict[str, Any]]]:
    """The rows that there are, by their cells, and the runs that stored them."""
    if not is_stored(table):
        return {}, []
    rows, provenance = read(table)
    _refuse_other_origin(provenance, origin, table)
    return {_key(row, origin["columns"]): row for row in rows}, provenance["runs"]


def _measured(
    measure: Measure, origin: dict[str, Any], cells: list[Row], n_jobs: int | None
) -> Generator[Row, None, None]:
    """The rows of some cells as they are done; at the end an error that names those that failed."""
    failures = []
    # Not in batches: a kill would lose the finished cells of a batch with the running one.
    parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
    work = (delayed(_measure_cell)(measure, origin, cell, os.getpid()) for cell in cells)
    name = origin["experiment"]
    with (
        closing(parallel(work)) as results,
        tqdm(results, total=len(cells), desc=name, disable=_quiet()) as progress,
    ):
        for cell, measures in progress:
            if isinstance(measures, str):
                failures.append(f"{cell}: {measures}")
                progress.set_postfix(failed=len(failures))
            else:
                yield {**cell, **measures}
    if failures:
        raise RuntimeError(
            f"{name!r}: {len(failures)} of {len(cells)} cells failed; the others are stored, and "
            "the next run tries these again:\n"
            + "\n".join([failures[0], *(f.splitlines()[0] for f in failures[1:])])
        )


def crossed(**columns: Iterable[Any]) -> list[dict[str, Any]]:
    """A cell for each combination of values, of which those of the last column change fastest."""
    return [dict(zip(columns, values, strict=True)) for values in product(*columns.values())]


def load_results(folder: Folder, name: str) -> pd.DataFrame:
    """Read all stored rows, exactly as they were measured."""
    return pd.DataFrame(read(Path(folder) / f"{name}.csv")[0])


def load_provenance(folder: Folder, name: str) -> dict[str, Any]:
    """Read where the stored rows come from; raises what `load_results` raises.

    ``experiment``, ``function`` (module:name), ``parameters``, ``threads``, ``columns`` (the types
    of the cells' columns) and ``runs``, those that stored something: ``start`` and ``end`` (UTC;
    the end is the last row stored), ``cells``, ``seconds`` (on the wall clock), ``n_jobs``,
    ``commit`` (``-dirty`` if a Python file differs from it, None outside a repository),
    ``function`` (its name at that commit, where it was moved since), ``replaced`` (how many of its
    rows a later run measured anew), ``versions``, and the ``platform`` and what
    :func:`~paperledger.stores.provenance.machine` says of the parent process.
    """
    return read(Path(folder) / f"{name}.csv")[1]


def verify(
    folder: Folder,
    name: str,
    *,
    n_cells: int = 3,
    seed: int = 0,
    seconds: float = math.inf,
    rtol: float = 1e-6,
    within: Mapping[str, Within] | None = None,
    possible: Callable[[Row], bool] = lambda row: True,
) -> pd.DataFrame:
    """Measure a random handful of stored cells again, by the function that the provenance names.

    Numbers agree within `rtol` times the larger, or within 1e-12, or else within what `within` says
    of the first pattern that fits "measure cell". Of the `possible` rows those are drawn that
    `draw_rows` draws; when they have taken `seconds` here, those that are left stay unmeasured.
    Returns a row a cell and measure, all of them ok.
    """
    rows, provenance = read(Path(folder) / f"{name}.csv")
    drawn = draw_rows([row for row in rows if possible(row)], n_cells, seed, seconds)
    if not drawn:
        raise ValueError(f"{name!r}: expected cells to verify, got {len(rows)} rows, {n_cells=}")
    try:
        measure = pkgutil.resolve_name(provenance["function"])
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{name!r} was made by {provenance['function']}, which is not there: {error!r}. If the "
            "function was moved, run its page; if it was changed, delete the store to measure anew"
        ) from error
    report: list[tuple[Any, ...]] = []
    begin = time.perf_counter()
    for row in drawn:
        # Some took little because others had left something in a cache.
        if report and time.perf_counter() - begin > seconds:
            break
        cell = {column: row[column] for column in provenance["columns"]}
        try:
            again = _measure(measure, provenance, cell)
        except DataMissing:
            raise
        except Exception as error:
            raise RuntimeError(f"{name!r}: {cell}: {traceback.format_exc()}") from error
        report += compared(cell, row, again, rtol, within or {})
    frame = pd.DataFrame(report, columns=COMPARED)
    if not frame["ok"].all():
        wrong = frame[~frame["ok"]].to_string(index=False)
        raise RuntimeError(f"{name!r}: not what is stored, at {rtol=}\n{wrong}")
    return frame


def compared(
    cell: Cell, row: Row, again: Row, rtol: float, within: Mapping[str, Within]
) -> list[tuple[Any, ...]]:
    """Return `COMPARED` of each measure of a cell, as it was stored and as it is now."""
    report: list[tuple[Any, ...]] = []
    for column in [c for c in row | again if c not in cell and c != "seconds"]:
        ok = first_fitting(within, column, cell, Within(rtol)).allows(column, row, again)
        report.append((str(cell), column, row.get(column), again.get(column), ok))
    return report


def draw_rows(rows: Sequence[Row], n_cells: int, seed: int, seconds: float) -> list[Row]:
    """Draw up to `n_cells` rows that took `seconds` together, or else the quickest of all."""
    quick = [row for row in rows if row["seconds"] <= seconds]
    if rows and not quick:
        quick = [min(rows, key=lambda row: row["seconds"])]
    drawn: list[Row] = []
    spent = 0.0
    for row in random.Random(seed).sample(quick, min(n_cells, len(quick))):
        if not drawn or spent + row["seconds"] <= seconds:
            drawn.append(row)
            spent += row["seconds"]
    return drawn


def _measure_cell(
    measure: Measure, origin: dict[str, Any], cell: Row, run: int
) -> tuple[Row, Row | str]:
    """Measure one cell; return it with its measures and seconds, or with a traceback."""
    end_with(run)
    try:
        return cell, _measure(measure, origin, cell)
    except Exception:  # as text: not every exception can travel between processes
        return cell, traceback.format_exc()


def _measure(measure: Measure, origin: dict[str, Any], cell: Row) -> Row:
    """Return the measures of one cell and its seconds."""
    # A copy: what a cell did to its parameters would reach the next one, in the same process.
    parameters = copy.deepcopy(origin["parameters"])
    # Sequential: what scikit-learn hands to joblib inside a cell would otherwise wait for workers
    # of the cluster, all of them occupied by cells that wait.
    alone = parallel_config(backend="sequential")
    with _ONE_CELL_AT_A_TIME, fixed_threads(origin["threads"]), alone:
        begin = time.perf_counter()
        measures = measure(**parameters, **cell)
        seconds = round(time.perf_counter() - begin, 6)
    numbers = {n: v.item() if hasattr(v, "item") else v for n, v in measures.items()}
    for n, v in numbers.items():
        if type(v) not in (int, float, bool) or n in cell or n == "seconds":
            raise ValueError(
                f"expected int, float or bool, and a name of its own, got {n!r}: {v!r}"
            )
    return {**numbers, "seconds": seconds}


def _columns(cells: Sequence[Cell]) -> dict[str, str]:
    """Return the type of each column of the cells, or raise ValueError."""
    if not cells or not cells[0] or "seconds" in cells[0]:
        raise ValueError(f"expected cells with columns, and none called seconds, got {cells!r}")
    columns = {n: type(value).__name__ for n, value in cells[0].items()}
    for cell in cells:
        types = {n: type(value).__name__ for n, value in cell.items()}
        if types != columns or not {*types.values()} <= {"str", "int", "float", "bool"}:
            raise ValueError(
                "expected cells of str, int, float or bool, and the same types in all cells: "
                f"{columns}, got {types} in {cell}"
            )
        if any(isinstance(value, float) and not math.isfinite(value) for value in cell.values()):
            raise ValueError(f"expected finite numbers, got {cell}")
    return columns


def _origin(
    measure: Measure,
    name: str,
    columns: dict[str, str],
    parameters: Mapping[str, Any],
    threads: int,
) -> dict[str, Any]:
    """Return what all rows of a store have in common, or raise ValueError."""
    if not inspect.isfunction(measure):
        raise ValueError(f"expected a function, whose name can be recorded, got {measure!r}")
    try:
        fixed = json.loads(json.dumps(dict(parameters), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected parameters that JSON can hold, got: {error}") from error
    function = f"{measure.__module__}:{measure.__qualname__}"
    origin = {"experiment": name, "function": function, "parameters": fixed}
    return origin | {"threads": threads, "columns": columns}


def _refuse_other_origin(stored: dict[str, Any], asked: dict[str, Any], table: Path) -> None:
    """Raise ValueError, with the differences, if the store was made in another way than asked."""

    def flat(origin: dict[str, Any]) -> dict[str, str]:
        items = {n: origin[n] for n in ("function", "threads")}
        items |= {f"parameter {n!r}": value for n, value in origin["parameters"].items()}
        items |= {f"column {n!r}": kind for n, kind in origin["columns"].items()}
        # As JSON, in which 1, 1.0 and true differ.
        return {n: json.dumps(value, sort_keys=True) for n, value in items.items()}

    was = flat(stored)
    now = flat(asked)
    differences = [
        f"{n}: stored {was.get(n, 'nothing')}, asked {now.get(n, 'nothing')}"
        for n in was | now
        if was.get(n) != now.get(n)
    ]
    if differences:
        raise ValueError(
            f"{table} was made in another way: {'; '.join(differences)}. Delete it to measure all "
            "cells anew, or choose another name"
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _quiet() -> bool | None:
    """No progress bar off a terminal, unless one is asked for, as for a kernel, which has none."""
    return False if os.environ.get("PAPERLEDGER_PROGRESS") else None
