"""Spot checks of stored results: ``python -m bayesloss_book.stores.verify``, or ``make verify``.

From every store in the folder a few cells, chosen at random, are measured again and compared.

Every measure must agree to six digits. But processors of another kind add up in another order, and
some experiments make that grow: a decision near a tie flips, Markov chains part ways. For those,
and on another kind of processor only, `ELSEWHERE` says how much it may be, and the report how much
it is. What is missing, or a number on one side alone, is an error everywhere.
"""

import argparse
import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from bayesloss_book.stores.provenance import processor
from bayesloss_book.stores.results import load_provenance, verify

__all__ = ["ELSEWHERE", "NEEDS", "main"]

_RTOL = 1e-6

# The largest relative difference on another kind of processor, for stores that magnify rounding;
# the finite ones are two to three times what was seen between AMD EPYC and Intel Xeon.
ELSEWHERE = {
    "asymmetric_losses": 0.03,  # shares of 1,000 decisions, some of them near ties
    "asymmetric_losses_map": 0.03,
    "asymmetric_losses_rounded": 0.03,
    "gp_regression": 0.1,  # among its measures is the size of rounding errors
    "learned_losses_budget": 2e-3,  # without a penalty the search stops on its way to infinity
    "dress_link": math.inf,  # the same, and quantities in the far tails of a link
    "learning_curves": math.inf,  # EM takes another path, in another number of rounds
    "evidence_trap": math.inf,  # searches for a maximum that does not exist
    "laplace_mcmc": math.inf,  # Markov chains
}

# What a store needs beyond the book's environment, and the extra that brings it.
NEEDS = {
    "calibrators_extra": ("probmetrics", "calibrators"),
    "long_chains": ("numpyro", "chains"),
}


def main(arguments: list[str] | None = None) -> int:
    """Verify every store in a folder; return the number of stores that do not agree."""
    parser = argparse.ArgumentParser(description="measure some stored cells again, and compare")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("data/results"))
    parser.add_argument("--cells", type=int, default=3, help="how many cells of each store")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of cells")
    options = parser.parse_args(arguments)
    stores = sorted(path.stem for path in options.folder.glob("*.csv"))
    if not stores:
        parser.error(f"expected stored results in {options.folder}, got no .csv; run `make paper`")
    wrong = 0
    for name in stores:
        module, extra = NEEDS.get(name, ("", ""))
        if module and find_spec(module) is None:
            print(f"{name}: not checked for want of {module}, which the extra {extra!r} brings")
            continue
        try:
            runs = load_provenance(options.folder, name)["runs"]
            elsewhere = sorted({run["processor"] for run in runs} - {processor()})
            rtol = ELSEWHERE.get(name, _RTOL) if elsewhere else _RTOL
            report = verify(
                options.folder, name, n_cells=options.cells, seed=options.seed, rtol=rtol
            )
            print(f"{name}: {report['cell'].nunique()} cells agree{_how_nearly(report, elsewhere)}")
        except (RuntimeError, ValueError) as error:
            wrong += 1
            print(error)
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
