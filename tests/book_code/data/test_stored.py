"""The stored results of this book are found, and each knows where it comes from."""

import importlib
from pathlib import Path

import pytest

from bayesloss_book.data import stored
from paperledger.stores.results import load_provenance

RESULTS = Path(__file__).resolve().parents[3] / "data" / "results"


def test_stored_results_are_found_in_a_clone_and_beside_installed_code(tmp_path, monkeypatch):
    assert stored.stored_results() == RESULTS
    module = tmp_path / "bayesloss_book" / "data" / "stored.py"
    monkeypatch.setattr(stored, "__file__", str(module))
    assert stored.stored_results() == tmp_path.parent / "data" / "results"
    (tmp_path / "bayesloss_book" / "results").mkdir(parents=True)
    assert stored.stored_results() == tmp_path / "bayesloss_book" / "results"


@pytest.mark.parametrize("table", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_a_store_knows_its_function_and_was_measured_from_a_clean_tree(table):
    """Where it is today, and where it was at the commits that the rows were measured at."""
    found = load_provenance(table.parent, table.stem)
    module, _, function = found["function"].partition(":")
    assert module.startswith(("bayesloss_book.", "paperledger."))
    assert callable(getattr(importlib.import_module(module), function))
    assert all(run.get("function", found["function"]) for run in found["runs"])
    assert all(run["commit"] and "dirty" not in run["commit"] for run in found["runs"])
