"""Spot checks of stored results: ``python -m paperledger.stores.verify``.

First the checksums of all tables; then from each store a few cells, other ones each day, are
measured again. A quick check spends seconds on each store and downloads nothing: what needs more is
left out, and said before anything is measured. ``--full`` leaves out only what needs an extra that
is not installed.

Every measure but a time must agree to six digits. On another kind of processor, or on one of which
a store has not recorded what kind it was, the tolerances that the configuration names as
`elsewhere` say how much some may differ, and the report how much they do.
"""

import argparse
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from paperledger.configuration import configuration
from paperledger.stores.needs import DataMissing, extra_of, missing_data, missing_modules
from paperledger.stores.provenance import current_runs, described, is_like, machine
from paperledger.stores.results import draw_rows, verify
from paperledger.stores.stale import is_stale, stale_rows
from paperledger.stores.tables import Row, read
from paperledger.stores.tolerances import Within

RTOL = 1e-6
# Seconds a store, and those of its quickest cell where all cells take longer. A quick check takes a
# minute and a half then, where nothing is missing.
_QUICK = (2.0, 10.0)
_FULL = (20.0, math.inf)
_INTERRUPTED = 130  # the status of what Ctrl-C ended


@dataclass(frozen=True)
class Store:
    """A store as it was read."""

    name: str
    rows: list[Row]
    provenance: dict[str, Any]

    def missing(self, row: Row) -> str:
        """What is missing on this machine to measure a row again, in words."""
        return missing_data(row)


@dataclass(frozen=True)
class Plan:
    """Which rows of a store are to be measured again, or why none is."""

    store: Store
    drawn: list[Row]
    left_out: str
    possible: Callable[[Row], bool] = lambda row: True

    @property
    def seconds(self) -> float:
        """How long the rows took when they were stored."""
        return sum(row["seconds"] for row in self.drawn)


def main(arguments: list[str] | None = None) -> int:
    """Verify the stores in a folder; return how many do not agree, or 130 if interrupted."""
    parser = _parser()
    options = parser.parse_args(arguments)
    seconds, options.longest = _FULL if options.full else _QUICK
    options.seconds = options.seconds or seconds
    known = sorted(path.stem for path in options.folder.glob("*.csv"))
    if not known:
        parser.error(f"expected stored results in {options.folder}, got no .csv")
    if unknown := sorted(set(options.stores) - set(known)):
        parser.error(f"expected --stores to be some of {known}, got {unknown}")
    stores, broken = _read(options.folder, options.stores or known)
    if broken:
        print(f"{broken} of {len(stores) + broken} stores are damaged: nothing was measured again")
        return broken
    try:
        plans = [_plan(store, options) for store in stores]
    except DataMissing as error:
        parser.error(str(error))
    _announce(plans, options)
    return _measure(plans, options)


def _parser() -> argparse.ArgumentParser:
    today = int(datetime.now(UTC).strftime("%Y%m%d"))
    parser = argparse.ArgumentParser(description="measure some stored cells again, and compare")
    parser.add_argument("folder", nargs="?", type=Path, default=configuration().results)
    parser.add_argument("--stores", nargs="*", default=[], metavar="NAME", help="all if none")
    parser.add_argument(
        "--full", action="store_true", help="long cells too, and download data that are not here"
    )
    parser.add_argument("--cells", type=int, default=3, help="how many cells of each store")
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"how long they took together: {_QUICK[0]:g}, or {_FULL[0]:g} with --full",
    )
    parser.add_argument(
        "--seed", type=int, default=today, help="of the choice of cells, today's date if not given"
    )
    return parser


def _read(folder: Path, names: Sequence[str]) -> tuple[list[Store], int]:
    """The stores that are as they were written, and how many are not, which are told."""
    stores = []
    broken = 0
    for name in names:
        try:
            rows, provenance = read(folder / f"{name}.csv")
        except ValueError as error:
            broken += 1
            print(error, flush=True)
        else:
            stores.append(Store(name, rows, provenance))
    return stores, broken


def _plan(store: Store, options: argparse.Namespace) -> Plan:
    extra = extra_of(store.name)
    missing = missing_modules(store.name)
    if extra and missing:
        return Plan(store, [], f"want {', '.join(missing)}, of the extra {extra.name!r}")

    def possible(row: Row) -> bool:
        return not is_stale(store.name, row) and (options.full or not store.missing(row))

    if all(is_stale(store.name, row) for row in store.rows):
        return Plan(store, [], f"are {stale_rows(store.name)}")
    rows = [row for row in store.rows if possible(row)]
    if not rows:
        return Plan(store, [], f"want {store.missing(store.rows[0])}")
    drawn = draw_rows(rows, options.cells, options.seed, options.seconds)
    plan = Plan(store, drawn, "", possible)
    if plan.seconds > max(options.seconds, options.longest):
        return Plan(store, [], f"take longer than {options.longest:g} s")
    return plan


def _announce(plans: Sequence[Plan], options: argparse.Namespace) -> None:
    """Say what will be measured, how long it takes, and what will not be measured, and why."""
    rows = sum(len(plan.store.rows) for plan in plans)
    print(f"{len(plans)} stores, {rows:,} rows: as they were written")
    reasons: dict[str, list[str]] = {}
    for plan in plans:
        if plan.left_out:
            reasons.setdefault(plan.left_out, []).append(plan.store.name)
    for reason, names in reasons.items():
        print(f"not checked, for they {reason}: {', '.join(names)}")
    for plan in plans:
        stale = sum(is_stale(plan.store.name, row) for row in plan.store.rows)
        if stale and not plan.left_out:
            print(f"{stale} rows of {plan.store.name} are {stale_rows(plan.store.name)}")
    if not options.full and reasons:
        print("with --full only what wants an extra is left out; it takes far longer")
    taken = [plan for plan in plans if plan.drawn]
    seconds = sum(plan.seconds for plan in taken)
    print(
        f"up to {options.cells} cells of each of {len(taken)} stores, drawn by --seed "
        f"{options.seed}; they took {seconds:.0f} s when they were stored",
        flush=True,
    )


def _measure(plans: Sequence[Plan], options: argparse.Namespace) -> int:
    """Measure what is planned, and say after each store, and at the end, what came out."""
    here = machine()
    taken = [plan for plan in plans if plan.drawn]
    agree = cells = wrong = 0
    status = 0
    begin = time.monotonic()
    try:
        for place, plan in enumerate(taken, 1):
            store = plan.store
            head = f"[{place}/{len(taken)}, {plan.seconds:.1f} s] {store.name}: "
            print(head, end="", flush=True)
            elsewhere = made_elsewhere(store.provenance, here)
            try:
                # Fits warned when they were stored, too.
                with warnings.catch_warnings(action="ignore"):
                    report = verify(
                        options.folder,
                        store.name,
                        n_cells=options.cells,
                        seed=options.seed,
                        seconds=options.seconds,
                        rtol=RTOL,
                        within=allowed(store.name, elsewhere),
                        possible=plan.possible,
                    )
            except DataMissing as error:
                print(f"not checked, its data cannot be had: {error}", flush=True)
                continue
            except (RuntimeError, ValueError) as error:
                wrong += 1
                print(error, flush=True)
                continue
            agree += 1
            cells += report["cell"].nunique()
            never = sum(row["seconds"] > options.seconds for row in store.rows)
            slow = f"; {never} of {len(store.rows)} take longer than --seconds" if never else ""
            near = how_nearly(report, elsewhere)
            print(f"{report['cell'].nunique()} cells agree{near}{slow}", flush=True)
    except KeyboardInterrupt:
        print("interrupted")
        status = _INTERRUPTED
    print(
        f"{agree} of {len(plans)} stores agree, in {cells} cells; {wrong} do not; "
        f"{len(plans) - agree - wrong} were not checked; {time.monotonic() - begin:.0f} s"
    )
    return wrong or status


def made_elsewhere(provenance: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """The machines that a store was made on and that are not certain to compute as this one."""
    return sorted({described(run) for run in current_runs(provenance) if not is_like(run, here)})


def allowed(name: str, elsewhere: Sequence[str]) -> dict[str, Within]:
    """How much measures of a store may differ, by patterns, if it was made on those machines."""
    within: dict[str, Within] = {}
    for setting in ("times", "elsewhere") if elsewhere else ("times",):
        tolerances = configuration().named(setting)
        within |= tolerances.get(name, {}) if tolerances else {}
    return within


def how_nearly(report: pd.DataFrame, elsewhere: Sequence[str]) -> str:
    """How nearly measures agree that all are within what is allowed, in words."""
    if not elsewhere:
        return f" in {len(report)} measures"
    stored, again = (report[name].astype(float).to_numpy() for name in ("stored", "recomputed"))
    scale = np.fmax(np.fmax(np.abs(stored), np.abs(again)), np.finfo(float).tiny)
    gaps = np.nan_to_num(np.abs(stored - again) / scale)
    worst = report["measure"].iloc[int(gaps.argmax())]
    near = int((gaps <= RTOL).sum())
    return (
        f" in {near} of {len(report)} measures, and differ by {gaps.max():.1g} ({worst}) at most; "
        f"stored on {', '.join(elsewhere)}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
