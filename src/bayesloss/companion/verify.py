"""Spot checks of the stored results: ``python -m bayesloss.companion.verify``, or ``make verify``.

From every store in the folder a few cells, chosen at random, are measured again and compared.

On the kind of processor that a store was measured on, every measure must agree to six digits.
Another one adds up in another order. What becomes of that depends on the experiment: a closed form
keeps its digits, a decision near a tie flips, Markov chains part ways. There the differences are
told, and only what is missing, or a number on one side alone, is an error.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import pandas as pd

from bayesloss.companion.provenance import processor
from bayesloss.companion.results import load_provenance, verify

__all__ = ["main"]


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
        try:
            runs = load_provenance(options.folder, name)["runs"]
            elsewhere = sorted({run["processor"] for run in runs} - {processor()})
            rtol = math.inf if elsewhere else 1e-6
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
    near = int((gaps <= 1e-6).sum())
    return (
        f" in {near} of {len(report)} measures, and differ by {gaps.max():.1g} ({worst}) at most; "
        f"stored on {', '.join(elsewhere)}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
