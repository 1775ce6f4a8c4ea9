"""`make verify`: strict, but for named stores on another kind of processor."""

import math
from pathlib import Path

import pytest

from bayesloss_book.stores import verify as command
from bayesloss_book.stores.results import run_cells
from bayesloss_book.stores.seal import read, write

ROOT = Path(__file__).resolve().parents[3]


def measure(x):
    return {"square": x**2, "half": x / 2, "none": float("nan")}


@pytest.fixture
def store(tmp_path):
    run_cells(measure, [{"x": x} for x in (1.0, 2.0, 3.0, 4.0)], tmp_path, "numbers", n_jobs=1)
    return tmp_path


def change(store: Path, old: float, new: float) -> None:
    """Put another square into the store, with a good seal."""
    rows, provenance = read(store / "numbers.csv")
    assert old in {row["square"] for row in rows}
    changed = [row | {"square": new} if row["square"] == old else row for row in rows]
    write(store / "numbers.csv", changed, provenance)


def stored_elsewhere(store: Path) -> None:
    rows, provenance = read(store / "numbers.csv")
    provenance["runs"][0]["processor"] = "Another One"
    write(store / "numbers.csv", rows, provenance)


def test_a_store_of_this_processor_agrees_to_six_digits(store, capsys):
    assert command.main([str(store), "--cells", "4"]) == 0
    assert capsys.readouterr().out == "numbers: 4 cells agree in 12 measures\n"
    change(store, 16.0, 16.001)
    assert command.main([str(store), "--cells", "4"]) == 1
    assert "not what is stored, at rtol=1e-06" in capsys.readouterr().out


def test_a_store_of_another_processor_agrees_to_six_digits_too(store, capsys):
    stored_elsewhere(store)
    assert command.main([str(store), "--cells", "4"]) == 0
    change(store, 16.0, 16.001)
    assert command.main([str(store), "--cells", "4"]) == 1
    assert "not what is stored, at rtol=1e-06" in capsys.readouterr().out


def test_one_that_magnifies_rounding_has_a_tolerance_elsewhere_only(store, capsys, monkeypatch):
    monkeypatch.setitem(command.ELSEWHERE, "numbers", 0.02)
    change(store, 16.0, 16.16)
    assert command.main([str(store), "--cells", "4"]) == 1
    capsys.readouterr()
    stored_elsewhere(store)
    assert command.main([str(store), "--cells", "4"]) == 0
    expected = "numbers: 4 cells agree in 11 of 12 measures, and differ by 0.01 (square) at most; "
    assert capsys.readouterr().out == expected + "stored on Another One\n"
    change(store, 16.16, 16.5)
    assert command.main([str(store), "--cells", "4"]) == 1
    assert "not what is stored, at rtol=0.02" in capsys.readouterr().out


def test_what_is_missing_is_an_error_on_any_processor(store, capsys, monkeypatch):
    monkeypatch.setitem(command.ELSEWHERE, "numbers", math.inf)
    stored_elsewhere(store)
    change(store, 16.0, math.nan)
    assert command.main([str(store), "--cells", "4"]) == 1
    assert "not what is stored" in capsys.readouterr().out


def test_tolerances_are_of_stores_that_there_are():
    stores = {path.stem for path in (ROOT / "data" / "results").glob("*.csv")}
    assert set(command.ELSEWHERE) <= stores


def test_a_folder_without_stores_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main([str(tmp_path)])
    assert "got no .csv; run `make paper`" in capsys.readouterr().err


def test_what_cannot_be_checked_is_said(tmp_path, capsys, monkeypatch):
    """A store whose function needs an extra that is not installed."""
    (tmp_path / "wanting.csv").write_text("")
    monkeypatch.setattr(command, "NEEDS", {"wanting": ("no_such_module", "more")})
    assert command.main([str(tmp_path)]) == 0
    assert "wanting: not checked for want of no_such_module" in capsys.readouterr().out
