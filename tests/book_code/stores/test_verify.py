import fnmatch
import math
import re
from pathlib import Path

import pytest

from bayesloss_book.data import DataError
from bayesloss_book.stores import verify as command
from bayesloss_book.stores.results import Within, run_cells
from bayesloss_book.stores.tables import read, write

ROOT = Path(__file__).resolve().parents[3]


HEAD = "1 stores, 4 rows: as they were written\nup to 4 cells of each, drawn by --seed 1:\n"


def measure(x):
    return {"square": x**2, "half": x / 2, "none": float("nan")}


@pytest.fixture
def store(tmp_path):
    run_cells(measure, [{"x": x} for x in (1.0, 2.0, 3.0, 4.0)], tmp_path, "numbers", n_jobs=1)
    return tmp_path


def change(store, old, new):
    rows, provenance = read(store / "numbers.csv")
    assert old in {row["square"] for row in rows}
    changed = [row | {"square": new} if row["square"] == old else row for row in rows]
    write(store / "numbers.csv", changed, provenance)


def again(store):
    return command.main([str(store), "--cells", "4", "--seed", "1"])


def stored_elsewhere(store):
    rows, provenance = read(store / "numbers.csv")
    provenance["runs"][0]["processor"] = "Another One"
    write(store / "numbers.csv", rows, provenance)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_store_agrees_to_six_digits_on_every_processor(store, capsys, elsewhere):
    if elsewhere:
        stored_elsewhere(store)
    assert again(store) == 0
    said = capsys.readouterr().out
    assert elsewhere or said == HEAD + "numbers: 4 cells agree in 12 measures\n"
    change(store, 16.0, 16.001)
    assert again(store) == 1
    assert "not what is stored, at rtol=1e-06" in capsys.readouterr().out


def test_one_that_magnifies_rounding_has_a_tolerance_elsewhere_only(store, capsys, monkeypatch):
    monkeypatch.setitem(command.ELSEWHERE, "numbers", {"square {*4.0}": Within(0.02)})
    change(store, 16.0, 16.16)
    assert again(store) == 1
    capsys.readouterr()
    stored_elsewhere(store)
    assert again(store) == 0
    expected = (
        HEAD + "numbers: 4 cells agree in 11 of 12 measures, and differ by 0.01 (square) at most; "
    )
    assert capsys.readouterr().out == expected + "stored on Another One\n"
    change(store, 16.16, 16.5)
    assert again(store) == 1
    assert "not what is stored" in capsys.readouterr().out


def test_a_time_has_a_tolerance_everywhere(store, capsys, monkeypatch):
    monkeypatch.setitem(command.TIMES, "numbers", {"square {*4.0}": Within(0.5)})
    change(store, 16.0, 20.0)
    assert again(store) == 0
    assert "4 cells agree" in capsys.readouterr().out
    change(store, 20.0, 40.0)
    assert again(store) == 1
    assert "not what is stored" in capsys.readouterr().out


def test_what_is_missing_is_an_error_on_any_processor(store, capsys, monkeypatch):
    monkeypatch.setitem(command.ELSEWHERE, "numbers", {"*": Within(1.0)})
    stored_elsewhere(store)
    change(store, 16.0, math.nan)
    assert again(store) == 1
    assert "not what is stored" in capsys.readouterr().out


def test_every_time_has_a_tolerance():
    for path in (ROOT / "data" / "results").glob("*.csv"):
        header = path.read_text("utf-8").partition("\n")[0].split(",")
        if any(name.endswith("_seconds") for name in header):
            assert "*_seconds *" in command.TIMES.get(path.stem, {}), path


def test_a_folder_without_stores_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main([str(tmp_path)])
    assert "got no .csv; run `make paper`" in capsys.readouterr().err


def test_tolerances_are_finite_and_fit_measures_that_there_are():
    for name, patterns in [*command.ELSEWHERE.items(), *command.TIMES.items()]:
        rows, provenance = read(ROOT / "data" / "results" / f"{name}.csv")
        measures = {
            f"{measure} { {n: row[n] for n in provenance['columns']} }"
            for row in rows
            for measure in row
            if measure not in provenance["columns"]
        }
        for pattern, within in patterns.items():
            assert math.isfinite(within.relative) and math.isfinite(within.absolute)
            assert within.relative < 1
            assert fnmatch.filter(measures, pattern), (name, pattern)
            assert not within.error or within.error in rows[0]


@pytest.mark.parametrize(
    ("within", "then", "now", "allowed"),
    [
        (Within(), 1.0, 1.0 + 1e-13, True),
        (Within(), 1.0, 1.0 + 1e-11, False),
        (Within(0.1), -10.0, -9.0, True),
        (Within(0.1), -10.0, -8.9, False),
        (Within(absolute=0.5), -0.2, 0.3, True),
        (Within(absolute=0.5), -0.2, 0.31, False),
        (Within(error="se"), 0.0, 25.0, True),  # 5 sqrt(3^2 + 4^2)
        (Within(error="se"), 25.1, 0.0, False),
        (Within(0.5), math.nan, math.nan, True),
        (Within(0.5), math.inf, math.inf, True),
        (Within(0.5), math.inf, 1e300, False),
        (Within(0.5), math.inf, -math.inf, False),
        (Within(0.5, absolute=9.0), 1.0, math.nan, False),
        (Within(0.5), True, False, False),
    ],
)
def test_how_much_may_differ(within, then, now, allowed):
    assert within.allows("x", {"x": then, "se": 3.0}, {"x": now, "se": 4.0}) is allowed
    assert not within.allows("x", {"x": then}, {}) and not within.allows("x", {}, {"x": now})


def without_data(x):
    raise DataError(f"there is no {x}")


def test_what_cannot_be_checked_is_said(tmp_path, capsys, monkeypatch):
    """A store whose data are not here, and one whose function needs an extra that is not."""
    for name in ("numbers", "wanting"):
        run_cells(measure, [{"x": 1.0}], tmp_path, name)
    monkeypatch.setitem(globals(), "measure", without_data)
    monkeypatch.setattr(command, "NEEDS", {"wanting": ("no_such_module", "more")})
    assert command.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "wanting: not checked for want of no_such_module" in said
    assert "numbers: not checked, its data cannot be had: there is no 1.0\n" in said


def test_a_changed_table_ends_it_before_anything_is_measured(store, capsys, monkeypatch):
    run_cells(measure, [{"x": 1.0}], store, "others")
    path = store / "numbers.csv"
    path.write_text(path.read_text("utf-8").replace("16.0", "16.1"), "utf-8")
    monkeypatch.setitem(globals(), "measure", None)
    assert command.main([str(store)]) == 1
    out = capsys.readouterr().out
    assert "the table was changed" in out
    assert out.endswith("1 of 2 stores are damaged: nothing was measured again\n")


def drawn(folder, *options):
    reports = []
    patched = pytest.MonkeyPatch()
    with patched.context() as patch:
        patch.setattr(command, "_how_nearly", lambda report, _: reports.append(report) or "")
        assert command.main([str(folder), "--cells", "2", *options]) == 0
    return set(reports[0]["cell"])


def test_other_cells_are_drawn_each_day_and_the_day_is_said(tmp_path, capsys, monkeypatch):
    run_cells(measure, [{"x": float(x)} for x in range(40)], tmp_path, "numbers")
    today = drawn(tmp_path)
    (seed,) = re.findall(r"drawn by --seed (\d{8}):", capsys.readouterr().out)
    assert drawn(tmp_path, "--seed", seed) == today
    assert drawn(tmp_path, "--seed", str(int(seed) + 1)) != today


def test_cells_that_take_long_are_not_drawn_and_that_is_said(store, capsys):
    rows, provenance = read(store / "numbers.csv")
    slow = [row | {"seconds": 1000.0 if row["x"] > 1 else 9.0} for row in rows]
    write(store / "numbers.csv", slow, provenance)
    assert drawn(store, "--seconds", "10") == {"{'x': 1.0}"}
    said = "numbers: 1 cells agree; 3 of 4 cells take longer than --seconds\n"
    assert capsys.readouterr().out.endswith(said)
    assert drawn(store, "--seconds", "1") == {"{'x': 1.0}"}  # the quickest, if all are slow
    assert len(drawn(store, "--seconds", "10000")) == 2
