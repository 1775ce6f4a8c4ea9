import hashlib
import json
import random
import resource
import shutil
import signal
from pathlib import Path

import pytest
from forked import Forked

from paperledger.stores.results import load_provenance, load_results, run_cells

RESULTS = Path(__file__).resolve().parents[3] / "data" / "results"


def measure(seed):
    return {"value": seed / 7, "odd": seed % 2 == 1}


@pytest.fixture
def table(tmp_path):
    run_cells(measure, [{"seed": seed} for seed in range(3)], tmp_path, "test")
    return tmp_path / "test.csv"


def test_a_page_in_another_folder_is_told_where_it_runs(table):
    with pytest.raises(FileNotFoundError, match="got no such folder; .* --cwd FOLDER"):
        load_results("../../data/results", "test")
    with pytest.raises(FileNotFoundError, match="got no such file; its page, executed with"):
        load_results(table.parent, "other")


def test_the_seal_is_a_sum_that_anyone_can_take(table):
    stored = json.loads(table.with_suffix(".provenance.json").read_text("utf-8"))
    assert stored["seal"] == {"table": hashlib.sha256(table.read_bytes()).hexdigest()}
    assert "seal" not in load_provenance(table.parent, "test")


@pytest.mark.parametrize("stored", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_no_digit_of_a_stored_table_can_be_changed(stored, tmp_path):
    """Of every store of this repository."""
    text = bytearray(stored.read_bytes())
    rng = random.Random(stored.stem)
    place = rng.choice([i for i, c in enumerate(text) if chr(c).isdigit()])
    text[place] = ord(str((int(chr(text[place])) + rng.randint(1, 9)) % 10))
    (tmp_path / stored.name).write_bytes(text)
    shutil.copy(stored.with_suffix(".provenance.json"), tmp_path)
    with pytest.raises(ValueError, match=rf"{stored.name}.*was changed.*restore both files"):
        load_results(tmp_path, stored.stem)


def test_a_table_that_was_cut_is_refused_at_every_length(table):
    content = table.read_bytes()
    for length in range(len(content)):
        table.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"test\.csv"):
            load_results(table.parent, "test")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '"x"', "{}", "[" * 200_000])
def test_a_provenance_that_is_none_is_refused(table, text):
    table.with_suffix(".provenance.json").write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"test\.csv: expected whole rows and their provenance"):
        load_results(table.parent, "test")


def fill(room):
    """Measure eight cells, and from the fifth on no file can grow beyond what there is room for."""

    def measure(seed):
        if seed == 4:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room,) * 2)
        return {"value": seed / 7}

    run_cells(measure, [{"seed": seed} for seed in range(8)], ".", "test")


@pytest.mark.parametrize("room", [100, 700])  # neither file fits; the table does
def test_a_full_disk_costs_a_row_and_miscounts_none(tmp_path, room):
    assert Forked(fill, tmp_path, room).end()[0] == 1
    assert load_results(tmp_path, "test")["seed"].tolist() == [0, 1, 2, 3]
    assert [run["cells"] for run in load_provenance(tmp_path, "test")["runs"]] == [4]
    left = sorted(path.name for path in tmp_path.glob("*test*") if path.suffix != ".lock")
    assert left == ["test.csv", "test.provenance.json"]
    assert Forked(fill, tmp_path, 2**20).end()[0] == 0
    assert [run["cells"] for run in load_provenance(tmp_path, "test")["runs"]] == [4, 4]
