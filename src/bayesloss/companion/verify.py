"""Spot checks of the stored results: ``python -m bayesloss.companion.verify``, or ``make verify``.

From every store in the folder a few cells, chosen at random, are measured again and compared.
"""

import argparse
from pathlib import Path

from bayesloss.companion.results import verify

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
            report = verify(options.folder, name, n_cells=options.cells, seed=options.seed)
            print(f"{name}: {report['cell'].nunique()} cells agree in {len(report)} measures")
        except (RuntimeError, ValueError) as error:
            wrong += 1
            print(error)
    return wrong


if __name__ == "__main__":
    raise SystemExit(main())
