"""Stores that cannot be edited unnoticed: the seal, the errors, half-done writes, full disks."""

import hashlib
import json
import random
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bayesloss_book.stores.results import load_provenance, load_results, run_cells
from bayesloss_book.stores.seal import main, read, seal

RESULTS = Path(__file__).resolve().parents[3] / "data" / "results"
CELLS = [{"kind": kind, "seed": seed} for kind in ("a", "b") for seed in range(3)]


def measure(kind: str, seed: int) -> dict[str, Any]:
    return {"value": seed / 7, "odd": seed % 2 == 1}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    run_cells(measure, CELLS, tmp_path, "test")
    return tmp_path / "test.csv"


def unsealed(table: Path, change: Callable[[dict[str, Any]], object] = lambda stored: None) -> None:
    """Take the seal away, as older code never made one, and change the provenance."""
    path = table.with_suffix(".provenance.json")
    stored = json.loads(path.read_text("utf-8"))
    stored.pop("seal", None)
    change(stored)
    path.write_text(json.dumps(stored, indent=2) + "\n", "utf-8")


def test_the_seal_is_two_sums_that_anyone_can_take(table: Path) -> None:
    """The second is over the text before it, with the braces closed."""
    text = table.with_suffix(".provenance.json").read_text("utf-8")
    stamp = json.loads(text)["seal"]
    assert stamp["header"] == table.read_text("utf-8").splitlines()[0].split(",")
    assert stamp["table"] == hashlib.sha256(table.read_bytes()).hexdigest()
    before, own, _ = text.partition(',\n    "provenance": ')
    assert own and stamp["provenance"] == hashlib.sha256(f"{before}\n  }}\n}}".encode()).hexdigest()
    assert "seal" not in load_provenance(table.parent, "test")


def digits(folder: Path) -> list[tuple[Path, int]]:
    """Return a place of a digit in every file, a hundred of them at random."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".csv", ".json"))
    rng = random.Random(20261122)
    places = []
    for path in [*files, *rng.choices(files, k=100)]:
        text = path.read_bytes()
        places.append((path, rng.choice([i for i, c in enumerate(text) if chr(c).isdigit()])))
    return places


def test_no_digit_of_any_store_can_be_changed(tmp_path: Path) -> None:
    """Every store of this repository, table and provenance."""
    assert RESULTS.is_dir()
    found = 0
    for path, place in digits(RESULTS):
        name = path.name.partition(".")[0]
        copies = [shutil.copy(p, tmp_path) for p in RESULTS.glob(f"{name}.*")]
        assert len(copies) == 2
        text = bytearray(path.read_bytes())
        text[place] = ord(str((int(chr(text[place])) + 1 + place % 9) % 10))
        (tmp_path / path.name).write_bytes(text)
        with pytest.raises(ValueError, match=path.name):
            load_results(tmp_path, name)
        found += 1
    assert found >= 2 * len(list(RESULTS.glob("*.csv"))) + 100


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind,seed,value", "kind,seed,worth", r"line 1: .*got \['worth'\] instead of \['value'\]"),
        ("odd,seconds\n", "odd,seconds,more\n", r"line 1: .*got \['more'\] instead of \[\]"),
        ("kind,seed,", "seed,kind,", "line 1: .*another order"),
        ("kind,seed,value,odd", "kind,seed,odd,odd", "line 1: .*'value'"),
        ("a,2,", "a,1,", r"line 4: expected each cell once, got that of line 3: \('a', 1\)"),
        ("a,2,", "a,two,", "line 4: column 'seed': expected int, got 'two'"),
        ("a,2,", "a,2.0,", "line 4: column 'seed': expected int, got '2.0'"),
        ("b,0,0.0", "b,0,null", "line 5: column 'value': expected number, got 'null'"),
        ("b,0,0.0", 'b,0,"""x"""', "line 5: column 'value': expected number, got"),
        ("b,0,0.0", "b,0,", "line 5: column 'value': expected number, got ''"),
        ("b,0,0.0", "b,0," + 5000 * "1", "line 5: column 'value': expected number"),
        ("b,0,0.0", "b,0," + 200_000 * "[", "line 5: "),
        ("b,0,0.0", "b,0", "line 5: expected 5 columns, got 4"),
        ("b,0,0.0", 'b,"0,0.0', "line 7: unexpected end of data"),
        ("b,0,0.0", "b,0,\0", "line 5: column 'value'"),
        ("b,0,0.0", "b,0,0.1", " was changed after it was written: its seal is broken"),
        ("b,0,0.0", "b,0,0.00", " was changed after it was written"),
        ("\n", "\r\n", " was changed after it was written"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(table: Path, old: str, new: str, message: str) -> None:
    text = table.read_bytes().decode("utf-8")
    assert old in text
    table.write_bytes(text.replace(old, new).encode())
    with pytest.raises(ValueError, match=rf"test\.csv.*{message}") as error:
        load_results(table.parent, "test")
    assert "restore both files" in str(error.value)


def test_a_table_that_was_cut_is_refused_at_every_length(table: Path) -> None:
    content = table.read_bytes()
    for length in range(len(content)):
        table.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"test\.csv"):
            load_results(table.parent, "test")


def test_bytes_that_are_no_text_are_named_by_their_line(table: Path) -> None:
    table.write_bytes(table.read_bytes().replace(b"b,0,", b"b\xff,0,"))
    with pytest.raises(ValueError, match=r"test\.csv, line 5: expected UTF-8, got b'\\xff'"):
        load_results(table.parent, "test")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda stored: stored.pop("runs"), "'runs' to be list, got None"),
        (lambda stored: stored.update(columns=["kind"]), "'columns' to be dict, got"),
        (lambda stored: stored.update(threads=True), "'threads' to be int, got True"),
        (lambda stored: stored["columns"].update(seed="complex"), "'seed' to be .*got 'complex'"),
        (lambda stored: stored["runs"].append(3), "in run 1, to be a JSON object, got 3"),
        (lambda stored: stored["runs"][0].pop("processor"), "in run 0, 'processor' to be str"),
        (lambda stored: stored["runs"][0].update(cells=6.0), "in run 0, 'cells' to be int"),
        (lambda stored: stored["runs"][0].update(cells=7), "expected 7 rows, .*got 6"),
        (lambda stored: stored["runs"][0].update(replaced=1), "expected 5 rows, .*got 6"),
        (lambda stored: stored["columns"].update(more="int"), r"line 1: no column \['more'\]"),
    ],
)
def test_what_is_wrong_with_a_provenance_is_named(
    table: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    unsealed(table, change)
    with pytest.raises(ValueError, match=rf"test\..*{message}"):
        seal(table)
    with pytest.raises(ValueError, match=r"test\.provenance.*restore both files"):
        load_results(table.parent, "test")


@pytest.mark.parametrize("stamp", [None, [], {}, {"header": 3}])
def test_a_seal_of_another_shape_is_broken(table: Path, stamp: object) -> None:
    unsealed(table, lambda stored: stored.update(seal=stamp))
    with pytest.raises(ValueError, match=r"test\.provenance\.json was changed"):
        load_results(table.parent, "test")


def test_a_store_without_a_seal_says_what_makes_one(table: Path) -> None:
    unsealed(table)
    message = r"test\.provenance\.json: expected a seal, got none.*bayesloss_book\.stores\.seal"
    with pytest.raises(ValueError, match=message):
        load_results(table.parent, "test")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '"x"', "[" * 200_000, "\ufeff{}"])
def test_a_provenance_that_is_none_is_named(table: Path, text: str) -> None:
    table.with_suffix(".provenance.json").write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"test\.provenance\.json: expected "):
        load_results(table.parent, "test")


def test_one_more_space_in_the_provenance_breaks_the_seal(table: Path) -> None:
    path = table.with_suffix(".provenance.json")
    for old, new in ((": 1,", ":  1,"), ('"threads": 1,', '"threads": 1, "threads": 1,')):
        text = path.read_text("utf-8")
        path.write_text(text.replace(old, new, 1), "utf-8")
        with pytest.raises(ValueError, match=r"test\.provenance\.json was changed"):
            load_results(table.parent, "test")
        path.write_text(text, "utf-8")
    load_results(table.parent, "test")


# --- the command


def test_the_command_seals_what_has_no_seal_and_nothing_else(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read(table)
    files = {path: path.read_bytes() for path in table.parent.iterdir()}
    unsealed(table)
    assert main([str(table.parent)]) == 0
    assert capsys.readouterr().out == "test: sealed\n"
    assert {path: path.read_bytes() for path in table.parent.iterdir()} == files
    assert main([str(table.parent)]) == 0 and capsys.readouterr().out == ""
    assert read(table) == before and not seal(table)

    table.write_text(table.read_text("utf-8").replace("b,0,0.0", "b,0,0.1"), "utf-8")
    assert main([str(table.parent)]) == 1
    assert "its seal is broken" in capsys.readouterr().out
    unsealed(table, lambda stored: stored["runs"][0].update(cells=1))
    assert main([str(table.parent)]) == 1
    assert "expected 1 rows" in capsys.readouterr().out


# --- writing


FULL = """
import json, resource, signal, sys
from bayesloss_book.stores.results import run_cells

def measure(seed):
    if seed == 4:  # from here on no file can grow beyond what is there
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
    return {"value": seed / 7}

if __name__ == "__main__":
    run_cells(measure, [{"seed": seed} for seed in range(8)], ".", "test")
"""


@pytest.mark.parametrize("room", [100, 700])  # neither file fits; the table does
def test_a_full_disk_costs_a_row_and_miscounts_none(tmp_path: Path, room: int) -> None:
    (tmp_path / "full.py").write_text(textwrap.dedent(FULL))
    done = subprocess.run(
        [sys.executable, "full.py", str(room)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1 and "OSError" in done.stderr
    assert load_results(tmp_path, "test")["seed"].tolist() == [0, 1, 2, 3]
    assert [run["cells"] for run in load_provenance(tmp_path, "test")["runs"]] == [4]
    assert sorted(path.name for path in tmp_path.glob("*test*")) == [
        "test.csv",
        "test.provenance.json",
    ]
    subprocess.run(
        [sys.executable, "full.py", str(2**20)], cwd=tmp_path, check=True, capture_output=True
    )
    assert [run["cells"] for run in load_provenance(tmp_path, "test")["runs"]] == [4, 4]
