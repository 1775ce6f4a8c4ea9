import math
import re

import pytest

from paperledger.stores import verify as command
from paperledger.stores.needs import DataMissing
from paperledger.stores.results import run_cells
from paperledger.stores.stale import Stale
from paperledger.stores.tables import read, write
from paperledger.stores.tolerances import Within

# What the companion of these tests says of itself.
ELSEWHERE: dict[str, dict[str, Within]] = {}
TIMES: dict[str, dict[str, Within]] = {}
STALE: dict[str, Stale] = {}
SETTINGS = f"""
elsewhere = "{__name__}:ELSEWHERE"
times = "{__name__}:TIMES"
stale = "{__name__}:STALE"
files = "{__name__}:files"

[[extras]]
name = "more"
modules = ["no_such_module", "math"]
stores = ["wanting"]
"""


def files(cell):
    """Images are not on this machine."""
    return {"images": False} if "images" in str(cell) else {}


@pytest.fixture(autouse=True)
def companion(tmp_path, monkeypatch):
    (tmp_path / "paperledger.toml").write_text(SETTINGS, "utf-8")
    monkeypatch.chdir(tmp_path)


HEAD = (
    "1 stores, 4 rows: as they were written\n"
    "up to 4 cells of each of 1 stores, drawn by --seed 1; they took 1 s when they were stored\n"
    "[1/1, 1.0 s] numbers: "
)


def measure(x):
    return {"square": x**2, "half": x / 2, "none": float("nan")}


@pytest.fixture
def store(tmp_path):
    run_cells(measure, [{"x": x} for x in (1.0, 2.0, 3.0, 4.0)], tmp_path, "numbers", n_jobs=1)
    rows, provenance = read(tmp_path / "numbers.csv")
    write(tmp_path / "numbers.csv", [row | {"seconds": 0.25} for row in rows], provenance)
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
    agrees = (
        f"{HEAD}4 cells agree in 12 measures\n"
        "1 of 1 stores agree, in 4 cells; 0 do not; 0 were not checked; "
    )
    assert elsewhere or re.sub(r"\d+ s\n$", "", said) == agrees
    change(store, 16.0, 16.001)
    assert again(store) == 1
    assert "not what is stored, at rtol=1e-06" in capsys.readouterr().out


def test_one_that_magnifies_rounding_has_a_tolerance_elsewhere_only(store, capsys, monkeypatch):
    monkeypatch.setitem(ELSEWHERE, "numbers", {"square {*4.0}": Within(0.02)})
    change(store, 16.0, 16.16)
    assert again(store) == 1
    capsys.readouterr()
    stored_elsewhere(store)
    assert again(store) == 0
    expected = "4 cells agree in 11 of 12 measures, and differ by 0.01 (square) at most; stored on "
    assert f"{HEAD}{expected}Another One" in capsys.readouterr().out
    change(store, 16.16, 16.5)
    assert again(store) == 1
    assert "not what is stored" in capsys.readouterr().out


def test_a_name_alone_is_not_the_same_processor(store, capsys, monkeypatch):
    """As older stores have recorded it: the family is unknown, and the wide tolerance counts."""
    monkeypatch.setitem(ELSEWHERE, "numbers", {"square {*4.0}": Within(0.02)})
    change(store, 16.0, 16.16)
    rows, provenance = read(store / "numbers.csv")
    (run,) = provenance["runs"]
    del run["processor_kind"], run["kernels"]
    write(store / "numbers.csv", rows, provenance)
    assert again(store) == 0
    assert f"stored on {run['processor']} (family not recorded)" in capsys.readouterr().out


def test_emulated_kernels_are_another_processor(store, capsys, monkeypatch):
    monkeypatch.setitem(ELSEWHERE, "numbers", {"square {*4.0}": Within(0.02)})
    change(store, 16.0, 16.16)
    assert again(store) == 1
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert again(store) == 0


def test_a_time_has_a_tolerance_everywhere(store, capsys, monkeypatch):
    monkeypatch.setitem(TIMES, "numbers", {"square {*4.0}": Within(0.5)})
    change(store, 16.0, 20.0)
    assert again(store) == 0
    assert "4 cells agree" in capsys.readouterr().out
    change(store, 20.0, 40.0)
    assert again(store) == 1
    assert "not what is stored" in capsys.readouterr().out


def test_what_is_missing_is_an_error_on_any_processor(store, capsys, monkeypatch):
    monkeypatch.setitem(ELSEWHERE, "numbers", {"*": Within(1.0)})
    stored_elsewhere(store)
    change(store, 16.0, math.nan)
    assert again(store) == 1
    assert "not what is stored" in capsys.readouterr().out


def test_a_folder_without_stores_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main([str(tmp_path)])
    assert "got no .csv" in capsys.readouterr().err


def without_data(x):
    raise DataMissing(f"there is no {x}")


def test_what_will_not_be_checked_is_said_before_anything_is_measured(tmp_path, capsys):
    """A store that wants an extra, one that wants image files, and one that takes long."""
    for name in ("long", "numbers", "wanting"):
        run_cells(measure, [{"x": 1.0}], tmp_path, name)
    run_cells(named, [{"data": "some images"}, {"data": "wine"}], tmp_path, "some")
    run_cells(named, [{"data": "images"}, {"data": "more images"}], tmp_path, "images")
    rows, provenance = read(tmp_path / "long.csv")
    write(tmp_path / "long.csv", [row | {"seconds": 11.0} for row in rows], provenance)
    assert command.main([str(tmp_path), "--seed", "1"]) == 0
    before, _, after = capsys.readouterr().out.partition("[1/2")
    assert "not checked, for they want no_such_module, of the extra 'more': wanting\n" in before
    assert "not checked, for they want the files of images: images\n" in before
    assert "not checked, for they take longer than 10 s: long\n" in before
    assert "with --full only what wants an extra is left out" in before
    assert "some: 1 cells agree" in after
    assert "2 of 5 stores agree, in 2 cells; 0 do not; 3 were not checked" in after
    # A full check measures the long one, and looks for the files.
    assert command.main([str(tmp_path), "--seed", "1", "--full"]) == 0
    assert "4 of 5 stores agree, in 6 cells; 0 do not; 1 were not" in capsys.readouterr().out


def named(data):
    return {"length": len(data)}


def test_data_that_cannot_be_had_are_no_error_of_the_store(tmp_path, capsys, monkeypatch):
    run_cells(measure, [{"x": 1.0}], tmp_path, "numbers")
    monkeypatch.setitem(globals(), "measure", without_data)
    assert command.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "numbers: not checked, its data cannot be had: there is no 1.0\n" in said
    assert said.split("\n")[-2].startswith("0 of 1 stores agree, in 0 cells; 0 do not; 1 were not")


def test_what_was_done_before_an_interrupt_is_summed_up(store, capsys, monkeypatch):
    run_cells(measure, [{"x": 1.0}], store, "others")
    real = command.verify

    def interrupted(folder, name, **options):
        if name == "others":
            raise KeyboardInterrupt
        return real(folder, name, **options)

    monkeypatch.setattr(command, "verify", interrupted)
    assert again(store) == 130
    last = capsys.readouterr().out.split("\n")[-3:-1]
    assert last[0].endswith("others: interrupted")
    assert last[1].startswith("1 of 2 stores agree, in 4 cells; 0 do not; 1 were not checked; ")
    change(store, 16.0, 16.1)
    assert again(store) == 1  # what it found before counts for more


def test_some_stores_alone_can_be_checked(store, capsys):
    run_cells(measure, [{"x": 1.0}], store, "others")
    assert command.main([str(store), "--stores", "others"]) == 0
    assert "1 of 1 stores agree, in 1 cells" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main([str(store), "--stores", "another"])
    said = capsys.readouterr().err
    assert "expected --stores to be some of ['numbers', 'others'], got ['another']" in said


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
        patch.setattr(command, "how_nearly", lambda report, _: reports.append(report) or "")
        assert command.main([str(folder), "--full", "--cells", "2", *options]) == 0
    return set(reports[0]["cell"])


def test_other_cells_are_drawn_each_day_and_the_day_is_said(tmp_path, capsys, monkeypatch):
    run_cells(measure, [{"x": float(x)} for x in range(40)], tmp_path, "numbers")
    today = drawn(tmp_path)
    (seed,) = re.findall(r"drawn by --seed (\d{8});", capsys.readouterr().out)
    assert drawn(tmp_path, "--seed", seed) == today
    assert drawn(tmp_path, "--seed", str(int(seed) + 1)) != today


def test_cells_that_take_long_are_not_drawn_and_that_is_said(store, capsys):
    rows, provenance = read(store / "numbers.csv")
    slow = [row | {"seconds": 1000.0 if row["x"] > 1 else 9.0} for row in rows]
    write(store / "numbers.csv", slow, provenance)
    assert drawn(store, "--seconds", "10") == {"{'x': 1.0}"}
    said = "numbers: 1 cells agree; 3 of 4 take longer than --seconds\n"
    assert said in capsys.readouterr().out
    assert drawn(store, "--seconds", "1") == {"{'x': 1.0}"}  # the quickest, if all are slow
    assert len(drawn(store, "--seconds", "10000")) == 2


def test_rows_to_be_made_anew_are_left_out_and_told(store, capsys, monkeypatch):
    change(store, 16.0, 99.0)
    monkeypatch.setitem(STALE, "numbers", Stale("abc", "squares were others", {"x": (4.0,)}))
    assert again(store) == 0
    said = capsys.readouterr().out
    assert "1 rows of numbers are of commit abc, to be made anew\n" in said
    assert "] numbers: 3 cells agree" in said
    monkeypatch.setitem(STALE, "numbers", Stale("abc", "squares were others"))
    assert again(store) == 0
    said = capsys.readouterr().out
    assert "not checked, for they are of commit abc, to be made anew: numbers" in said
