import importlib
from functools import partial
from pathlib import Path

import pytest

from bayesloss_book.learning.em_cost import fits
from paperledger.stores import results
from paperledger.stores.results import load_provenance, load_results

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "data" / "results"
BOOK = ROOT / "src" / "bayesloss_book"
# Rows kept from wider plans; what seeds are asked for is said on the command line.
MORE = {"calibrators_more": 14, "sparse_means": 3}
BY_COMMAND = {"verdicts_by_seed"}


@pytest.fixture(scope="module")
def asked():
    """How every `run...(folder)` of the book calls `run_cells`: {store: (measure, cells, how)}."""
    found = {}

    def spy(measure, cells, folder, name, **how):
        found[name] = measure, cells, how.get("parameters", {})

    for path in sorted(BOOK.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        if "stores.results import" not in path.read_text(encoding="utf-8"):
            continue
        module = importlib.import_module(name)
        calls = [
            function
            for key, function in vars(module).items()
            if key.split("_")[0] == "run" and key != "run_cells"
        ]
        if module is fits:
            calls = [partial(fits.run, name=store) for store in fits.STORES]
        with pytest.MonkeyPatch.context() as patch:
            for home in (module, results):
                patch.setattr(home, "run_cells", spy, raising=False)
            for call in calls:
                call(RESULTS)
    return found


def test_every_store_is_asked_for(asked):
    assert asked.keys() | BY_COMMAND == {path.stem for path in RESULTS.glob("*.csv")}


def test_what_is_asked_for_is_stored(asked):
    for name, (measure, cells, parameters) in asked.items():
        origin = load_provenance(RESULTS, name)
        rows = load_results(RESULTS, name)
        assert origin["function"] == f"{measure.__module__}:{measure.__name__}"
        assert origin["parameters"] == parameters, name
        wanted = {tuple(cell[column] for column in cells[0]) for cell in cells}
        stored = set(rows[list(cells[0])].itertuples(index=False, name=None))
        assert len(stored) == len(rows) and len(wanted) == len(cells), name
        assert wanted <= stored and len(stored - wanted) == MORE.get(name, 0), name
