import csv
import functools
import io
import json
import math
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from threadpoolctl import threadpool_info

from paperledger.stores import tables
from paperledger.stores.results import load_provenance, load_results, run_cells, runs, verify

# So that workers find these functions whatever folder pytest was started from.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

CELLS = [{"kind": kind, "seed": seed} for kind in ("a", "b") for seed in range(3)]


def measure(kind, seed, scale=1.0, touch="", pause=0.0):
    """Measure something that depends on rounding; the first cell may take longest."""
    if touch:
        os.close(tempfile.mkstemp(dir=touch, prefix=f"{kind}{seed}-")[0])
    time.sleep(pause if (kind, seed) == ("a", 0) else 0)
    x = torch.randn(300, 300, generator=torch.Generator().manual_seed(seed))
    return {
        "trace": scale * torch.trace(x @ x @ x).item(),
        "torch_threads": max(torch_threads()),
        "other_threads": max(pool["num_threads"] for pool in threadpool_info()),
        "workers": joblib.effective_n_jobs(2),  # a cell's own, as a meta-estimator may ask for
    }


def test_an_experiment_runs_into_a_folder(tmp_path):
    runs(measure, lambda: CELLS[:1], "one", scale=2.0)(tmp_path, n_jobs=1)
    expected = measure(**CELLS[0], scale=2.0)["trace"]
    assert load_results(tmp_path, "one")["trace"].tolist() == [expected]
    assert load_provenance(tmp_path, "one")["parameters"] == {"scale": 2.0}


def torch_threads():
    info = torch.__config__.parallel_info()
    return [int(n) for n in re.findall(r"(?:get_num|mkl_get_max)_threads\(\) : (\d+)", info)]


def without_seconds(folder, name="test"):
    """Return the lines of a stored table without their last column, the seconds."""
    lines = (folder / f"{name}.csv").read_text().splitlines()
    assert lines[0].endswith(",seconds")
    return [line.rpartition(",")[0] for line in lines]


def touched(folder):
    return sorted(path.name.partition("-")[0] for path in folder.iterdir())


# --- the same measures, whatever the order and the number of workers


def test_rows_do_not_depend_on_workers_and_nothing_is_said_off_a_terminal(tmp_path, capfd):
    slow_first = {"pause": 0.1}
    for n_jobs in (1, 2):
        store = tmp_path / str(n_jobs)
        table = run_cells(measure, CELLS, store, "test", parameters=slow_first, n_jobs=n_jobs)
        assert table[["kind", "seed"]].to_dict("records") == CELLS
    with joblib.parallel_config(backend="threading", n_jobs=2):
        run_cells(measure, CELLS, tmp_path / "config", "test", parameters=slow_first)
    assert load_provenance(tmp_path / "config", "test")["runs"][0]["n_jobs"] == 2
    expected = without_seconds(tmp_path / "1")
    assert without_seconds(tmp_path / "2") == expected
    assert without_seconds(tmp_path / "config") == expected
    verify(tmp_path / "1", "test", n_cells=1)
    assert capfd.readouterr() == ("", "")


def test_rows_stand_in_the_order_asked_for(tmp_path):
    run_cells(measure, CELLS, tmp_path / "forth", "test")
    run_cells(measure, CELLS[::-1], tmp_path / "back", "test")
    header, *rows = without_seconds(tmp_path / "forth")
    assert without_seconds(tmp_path / "back") == [header, *rows[::-1]]

    # What was stored and is not asked for stays, at the end; the columns may come in any order.
    run_cells(measure, CELLS[:2], tmp_path / "parts", "test")
    swapped = [{"seed": cell["seed"], "kind": cell["kind"]} for cell in CELLS[:0:-1]]
    table = run_cells(measure, swapped, tmp_path / "parts", "test")
    assert table[["seed", "kind"]].to_dict("records") == swapped
    stored = load_results(tmp_path / "parts", "test")[["kind", "seed"]].to_dict("records")
    assert stored == [*CELLS[:0:-1], CELLS[0]]


def test_threads_are_fixed_in_a_cell_and_restored_after_it(tmp_path):
    before = torch_threads()[0], [pool["num_threads"] for pool in threadpool_info()]
    torch.set_num_threads(3)
    try:
        for threads in (1, 2):
            for n_jobs in (1, 2):
                name = f"test-{threads}-{n_jobs}"
                table = run_cells(
                    measure, CELLS[:3], tmp_path, name, n_jobs=n_jobs, threads=threads
                )
                assert set(table["torch_threads"]) == {threads}
                assert set(table["other_threads"]) == {threads}
                assert set(table["workers"]) == {1}  # to wait for, on a cluster, for ever
        assert set(torch_threads()) == {3}
    finally:
        torch.set_num_threads(before[0])
    assert [pool["num_threads"] for pool in threadpool_info()] == before[1]


def lonely(seed, folder):
    """Count the cells that run in this process at the same time, and look for the row before."""
    mark = Path(folder) / f"{os.getpid()}-{seed}"
    table = Path(folder) / "processes.csv"
    mark.touch()
    time.sleep(0.05)
    together = len(list(Path(folder).glob(f"{os.getpid()}-*")))
    mark.unlink()
    deadline = time.monotonic() + 5
    while not (stored := table.exists() and f"\n{seed - 2}," in table.read_text()):
        if seed < 2 or not table.exists() or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    found = {"together": together, "process": os.getpid(), "thread": threading.get_ident()}
    return found | {"stored": stored or seed < 2}


def test_a_cell_has_its_process_to_itself_and_is_stored_as_soon_as_it_is_done(tmp_path):
    cells = [{"seed": seed} for seed in range(4)]
    parameters = {"folder": str(tmp_path)}
    with joblib.parallel_config(backend="threading", n_jobs=4):
        table = run_cells(lonely, cells, tmp_path, "threads", parameters=parameters)
    assert set(table["together"]) == {1}
    assert set(table["process"]) == {os.getpid()} and len(set(table["thread"])) > 1
    table = run_cells(lonely, cells, tmp_path, "processes", parameters=parameters, n_jobs=2)
    assert os.getpid() not in set(table["process"]) and table["stored"].all()
    table = run_cells(lonely, cells, tmp_path, "by default", parameters=parameters)
    assert set(table["thread"]) == {threading.get_ident()}


# --- types


def peculiar(text, size, rate, flag, call):
    meddled = bool(call)
    call.append(text)
    return {
        "third": np.float64(rate) / 3,
        "nan": math.nan,
        "infinite": -math.inf,
        "count": np.int64(2**53 + 1),
        "converged": np.bool_(flag),
        "tensor": torch.tensor(0.1, dtype=torch.float32),
        "sometimes_whole": 1 if flag else 0.5,
        "meddled": meddled,
    }


def test_values_and_types_survive_the_file(tmp_path):
    texts = ["1", "1.0", "True", "nan", "NA", "", " ", 'a,b "c"', "line\nline\r\n", "λ", "null"]
    cells: list[dict[str, Any]] = [
        {"text": text, "size": -(10**18) + i, "rate": 10.0 ** (37 * i - 200) / 7, "flag": i % 2 > 0}
        for i, text in enumerate(texts)
    ]

    def run(cells):
        return run_cells(peculiar, cells, tmp_path, "test", parameters={"call": []})

    table = run(cells[:-1])
    pd.testing.assert_frame_equal(load_results(tmp_path, "test"), table, check_exact=True)
    assert table["third"].tolist() == [cell["rate"] / 3 for cell in cells[:-1]]
    assert not table["meddled"].any()
    assert table["count"].dtype == "int64" and table["converged"].dtype == "bool"
    before = (tmp_path / "test.csv").read_bytes()
    run(cells)  # reads all, finds all but one, and writes all
    assert (tmp_path / "test.csv").read_bytes().startswith(before)
    assert [run["cells"] for run in load_provenance(tmp_path, "test")["runs"]] == [10, 1]
    with (tmp_path / "test.csv").open(newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)] == texts


# --- resuming


def test_only_missing_cells_are_measured(tmp_path):
    calls = tmp_path / "calls"
    calls.mkdir()
    arguments: dict[str, Any] = {"parameters": {"touch": str(calls)}}
    run_cells(measure, CELLS[1:3], tmp_path, "test", **arguments)
    run_cells(measure, CELLS, tmp_path, "test", **arguments)
    assert touched(calls) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert [run["cells"] for run in load_provenance(tmp_path, "test")["runs"]] == [2, 4]

    files = {path: (path.read_bytes(), path.stat()) for path in tmp_path.glob("test.*")}
    table = run_cells(measure, CELLS[::-1], tmp_path, "test", **arguments)
    assert table[["kind", "seed"]].to_dict("records") == CELLS[::-1]
    assert len(touched(calls)) == 6
    assert {path: (path.read_bytes(), path.stat()) for path in files} == files
    assert len(files) == 2


def smooth(seed, scale):
    return {"value": scale * seed / 7, "odd": seed % 2 == 1, "nan": math.nan, "zero": 0.0}


class Crash(BaseException):
    """What no handler of exceptions expects."""


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("after", range(4))
def test_a_crash_at_any_write_leaves_whole_rows_and_their_number(
    tmp_path, monkeypatch, call, after
):
    cells = [{"seed": seed} for seed in range(3)]

    def run(folder):
        run_cells(smooth, cells, folder, "test", parameters={"scale": 3.0})

    original: Callable[..., None] = getattr(os, call)
    count = 0

    def crash(*arguments):
        nonlocal count
        if count == after:
            if call == "fsync":  # half-way through the temporary file
                for path in tmp_path.glob(".*.tmp"):
                    os.truncate(path, 20)
            raise Crash
        count += 1
        original(*arguments)

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(os, call, crash)
        run(tmp_path)
    # Of two writes a row; the first rename, of the provenance, stores both files.
    stored = (after + (call == "replace")) // 2
    if stored > 0:
        assert len(load_results(tmp_path, "test")) == stored
        assert load_provenance(tmp_path, "test")["runs"][0]["cells"] == stored
    run(tmp_path)
    assert sum(run["cells"] for run in load_provenance(tmp_path, "test")["runs"]) == 3
    run(tmp_path / "whole")
    assert without_seconds(tmp_path) == without_seconds(tmp_path / "whole")
    assert list(tmp_path.glob(".*.tmp")) == []


# --- failures


class Unpicklable(Exception):
    """An exception that cannot travel between processes."""

    def __init__(self, message, _):
        super().__init__(message)


def faulty(seed, folder):
    """Fail for two seeds until a file appears."""
    if seed in (0, 2) and not (Path(folder) / "mended").exists():
        raise Unpicklable(f"no luck with {seed}", lambda: None)
    return {"value": seed / 3}


def test_a_failed_cell_is_named_and_costs_no_other(tmp_path):
    cells = [{"seed": seed} for seed in range(5)]
    arguments: dict[str, Any] = {"parameters": {"folder": str(tmp_path)}, "n_jobs": 2}
    with pytest.raises(RuntimeError, match="2 of 5 cells failed") as error:
        run_cells(faulty, cells, tmp_path, "test", **arguments)
    assert "{'seed': 0}" in str(error.value) and "{'seed': 2}" in str(error.value)
    assert "in faulty" in str(error.value) and "no luck with" in str(error.value)
    assert load_results(tmp_path, "test")["seed"].tolist() == [1, 3, 4]
    (tmp_path / "mended").touch()
    run_cells(faulty, cells, tmp_path, "test", **arguments)
    assert load_results(tmp_path, "test")["seed"].tolist() == [0, 1, 2, 3, 4]
    assert load_provenance(tmp_path, "test")["runs"][-1]["cells"] == 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"value": None}, "expected int, float or bool"),
        ({"value": [1.0]}, "expected int, float or bool"),
        ({"value": np.ones(1).astype(str)}, "expected int, float or bool"),
        ({"seed": 1.0}, "a name of its own, got 'seed'"),
    ],
)
def test_what_is_no_measure_is_refused(tmp_path, value, said):
    with pytest.raises(RuntimeError, match=rf"seed.*0[\s\S]*{said}"):
        run_cells(lambda seed: value, [{"seed": 0}], tmp_path, "test")


def test_measures_have_the_same_names_in_every_cell(tmp_path):
    with pytest.raises(ValueError, match=r"expected the columns .*'x'.* got .*'seed': 1, 'y'"):
        run_cells(lambda seed: {"xy"[seed]: 1.0}, [{"seed": 0}, {"seed": 1}], tmp_path, "test")
    assert load_results(tmp_path, "test")["seed"].tolist() == [0]


# --- refusals


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([{}], "expected cells"),
        ([{"a": 1, "seconds": 2.0}], "none called seconds"),
        ([{"a": 1}, {"a": 2}, {"a": 1}], r"each cell once, got \{'a': 1\} twice"),
        ([{"a": 1}, {"b": 1}], r"\{'a': 'int'\}, got \{'b': 'int'\} in \{'b': 1\}"),
        ([{"a": 1}, {"a": True}], r"'int'\}, got \{'a': 'bool'\}"),
        ([{"a": np.float64(1)}], r"of str, int, float or bool.*float64"),
        ([{"a": math.nan}], "finite"),
    ],
)
def test_unfit_cells_are_refused(tmp_path, cells, message):
    with pytest.raises(ValueError, match=message):
        run_cells(measure, cells, tmp_path, "test")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("function", "cells", "arguments", "message"),
    [
        (measure, CELLS, {"parameters": {"scale": 3.0}}, r"'scale': stored 2.0, asked 3.0"),
        (measure, CELLS, {"parameters": {"scale": 2}}, r"'scale': stored 2.0, asked 2\."),
        (measure, CELLS, {"parameters": {"touch": ""}}, r"'touch': stored nothing, asked \"\""),
        (measure, CELLS, {"threads": 2}, r"threads: stored 1, asked 2"),
        (smooth, CELLS, {}, r"function: stored .*:measure\", asked .*:smooth"),
        (measure, [{"kind": "a", "seed": 0.0}], {}, r"'seed': stored .int., asked .float."),
        (measure, [{**CELLS[0], "c": 1}], {}, r"'c': stored nothing, asked .int."),
    ],
)
def test_another_origin_is_refused(tmp_path, function, cells, arguments, message):
    run_cells(measure, CELLS[:2], tmp_path, "test", parameters={"scale": 2.0})
    before = without_seconds(tmp_path)
    with pytest.raises(ValueError, match=message) as error:
        run_cells(function, cells, tmp_path, "test", **({"parameters": {"scale": 2.0}} | arguments))
    assert "Delete it" in str(error.value) and "test.csv" in str(error.value)
    assert without_seconds(tmp_path) == before


def test_unfit_parameters_are_refused_and_deleting_the_table_is_enough_to_begin_anew(tmp_path):
    with pytest.raises(ValueError, match="parameters that JSON can hold"):
        run_cells(measure, CELLS, tmp_path, "test", parameters={"scale": math.nan})
    hidden: Any = functools.partial(measure, scale=2.0)
    with pytest.raises(ValueError, match="expected a function"):
        run_cells(hidden, CELLS, tmp_path, "test")
    run_cells(measure, CELLS[:2], tmp_path, "test")
    (tmp_path / "test.csv").unlink()
    run_cells(measure, CELLS[:1], tmp_path, "test", parameters={"scale": 2.0})
    provenance = load_provenance(tmp_path, "test")
    assert provenance["parameters"] == {"scale": 2.0} and len(provenance["runs"]) == 1


def test_missing_results_say_what_makes_them(tmp_path):
    for read in (load_results, load_provenance, verify):
        with pytest.raises(FileNotFoundError, match=r"test\.csv.*scale=\"paper\""):
            read(tmp_path, "test")


def test_a_damaged_store_is_refused_by_runs_too(tmp_path):
    run_cells(measure, CELLS[:2], tmp_path, "test")
    (tmp_path / "test.provenance.json").unlink()
    with pytest.raises(ValueError, match=r"test\.csv.*restore both files"):
        run_cells(measure, CELLS, tmp_path, "test")


# --- provenance


def test_provenance_tells_where_the_rows_come_from(tmp_path):
    with joblib.parallel_config(backend="threading"):
        run_cells(measure, CELLS[:2], tmp_path, "test", parameters={"pause": 0.2}, n_jobs=2)
    provenance = load_provenance(tmp_path, "test")
    (run,) = provenance.pop("runs")
    assert provenance == {
        "experiment": "test",
        "function": f"{__name__}:measure",
        "parameters": {"pause": 0.2},
        "threads": 1,
        "columns": {"kind": "str", "seed": "int"},
    }
    start = pd.Timestamp(run["start"])
    end = pd.Timestamp(run["end"])
    assert start.utcoffset() == pd.Timedelta(0) and start <= end <= pd.Timestamp.now("UTC")
    assert run["cells"] == 2 and run["n_jobs"] == 2 and 0.2 < run["seconds"] < 60
    assert run["versions"]["torch"] == torch.__version__
    names = "python bayesloss numpy scipy scikit-learn torch pandas"
    assert list(run["versions"]) == names.split()
    assert run["processor"] and run["platform"]
    assert str(tmp_path) not in json.dumps(run)


# --- verification


def alter(folder, column, change):
    """Change one column of a stored table, as a measure that has changed would."""
    rows, stored = tables.read(folder / "test.csv")
    tables.write(folder / "test.csv", [row | {column: change(row[column])} for row in rows], stored)


def test_verify_measures_a_handful_again(tmp_path):
    cells = [{"seed": seed} for seed in range(1, 9)]
    run_cells(smooth, cells, tmp_path, "test", parameters={"scale": 3.0})
    report = verify(tmp_path, "test", n_cells=2, seed=1)
    assert list(report) == ["cell", "measure", "stored", "recomputed", "ok"]
    assert report["measure"].tolist() == ["value", "odd", "nan", "zero"] * 2
    assert report["ok"].all()
    pd.testing.assert_frame_equal(report, verify(tmp_path, "test", n_cells=2, seed=1))
    assert {verify(tmp_path, "test", n_cells=1, seed=seed)["cell"][0] for seed in range(9)} > set(
        report["cell"]
    )
    assert len(verify(tmp_path, "test", n_cells=100)) == 8 * 4

    alter(tmp_path, "value", lambda value: value * (1 + 1e-8))
    alter(tmp_path, "seconds", lambda value: value + 1)
    alter(tmp_path, "zero", lambda value: value + 1e-15)
    assert verify(tmp_path, "test")["ok"].all()
    with pytest.raises(RuntimeError, match="not what is stored"):
        verify(tmp_path, "test", rtol=1e-9)


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("value", lambda value: value * (1 + 1e-5)),
        ("value", lambda value: math.nan),
        ("odd", lambda value: not value),
        ("nan", lambda value: 1.0),
        ("zero", lambda value: 1e-9),
    ],
)
def test_verify_fails_when_a_stored_number_is_another(tmp_path, column, change):
    run_cells(smooth, [{"seed": 3}], tmp_path, "test", parameters={"scale": 3.0})
    alter(tmp_path, column, change)
    with pytest.raises(RuntimeError, match=rf"not what is stored[\s\S]*'seed': 3.*{column}") as e:
        verify(tmp_path, "test")
    assert len(str(e.value).splitlines()) == 3  # the one row that is wrong


def test_verify_fails_when_measures_come_or_go(tmp_path, monkeypatch):
    run_cells(smooth, [{"seed": 3}], tmp_path, "test", parameters={"scale": 3.0})
    renamed = {"worth" if name == "value" else name: v for name, v in smooth(3, 3.0).items()}
    monkeypatch.setitem(globals(), "smooth", lambda seed, scale: renamed)
    with pytest.raises(RuntimeError, match=r"value[\s\S]*worth"):
        verify(tmp_path, "test")


def test_verify_says_why_it_cannot(tmp_path, monkeypatch):
    def local(seed):
        return {"value": seed}

    run_cells(local, [{"seed": 3}], tmp_path, "test")
    with pytest.raises(ValueError, match=r"'test' was made by .*local, which is not there"):
        verify(tmp_path, "test")
    with pytest.raises(ValueError, match="expected cells to verify, got 1 rows, n_cells=0"):
        verify(tmp_path, "test", n_cells=0)
    (tmp_path / "mended").touch()
    run_cells(faulty, [{"seed": 0}], tmp_path, "faulty", parameters={"folder": str(tmp_path)})
    (tmp_path / "mended").unlink()
    with pytest.raises(RuntimeError, match=r"'seed': 0[\s\S]*no luck with 0"):
        verify(tmp_path, "faulty")


# --- progress


def test_progress_on_a_terminal_counts_missing_cells(tmp_path, monkeypatch):
    run_cells(measure, CELLS[:2], tmp_path, "test")
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    run_cells(measure, CELLS, tmp_path, "test")
    assert "4/4" in terminal.getvalue() and "test" in terminal.getvalue()


# --- last, since the workers that the tests before shared do not outlive it


def deadly(seed):
    """Take the worker down, as the kernel does when memory runs out."""
    if seed == 5:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": seed}


def test_a_dead_worker_raises_and_the_rows_stay(tmp_path):
    with pytest.raises(TerminatedWorkerError):
        run_cells(deadly, [{"seed": seed} for seed in range(6)], tmp_path, "test", n_jobs=2)
    assert load_results(tmp_path, "test")["seed"].tolist() == [0, 1, 2, 3, 4]
