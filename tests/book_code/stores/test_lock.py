"""One writer at a time, with processes of their own."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Thread

import pytest

from bayesloss_book.stores.lock import lock_of, writing
from bayesloss_book.stores.results import load_provenance, load_results

EXPERIMENT = """
import os, tempfile, time
from bayesloss_book.stores.results import run_cells

def measure(seed):
    os.close(tempfile.mkstemp(dir="calls", prefix=f"{seed}-")[0])
    while seed == 3 and not os.path.exists("go"):
        time.sleep(0.01)
    time.sleep(0.02)
    return {"value": seed / 7}

def run():
    return run_cells(measure, [{"seed": seed} for seed in range(10)], ".", "test")
"""


def start(folder, command="print(len(experiment.run()))"):
    return subprocess.Popen(
        [sys.executable, "-c", f"import experiment; {command}"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition, process):
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "experiment.py").write_text(EXPERIMENT)
    (tmp_path / "calls").mkdir()
    return tmp_path


def test_three_runs_on_one_store_measure_every_cell_once(folder):
    first = start(folder)
    wait_for(lambda: (folder / "test.csv").exists(), first)
    others = [start(folder), start(folder)]
    waiting = f"{lock_of(Path('test.csv'))} is held by another run: waiting for it to end"
    assert others[0].stderr and others[0].stderr.readline().strip() == waiting
    (folder / "go").touch()
    for process in (first, *others):
        out, err = process.communicate(timeout=300)
        assert (process.returncode, out) == (0, "10\n"), err
    calls = Counter(path.name.partition("-")[0] for path in (folder / "calls").iterdir())
    assert calls == Counter(map(str, range(10)))
    assert sum(run["cells"] for run in load_provenance(folder, "test")["runs"]) == 10
    assert not lock_of(folder / "test.csv").exists()


def test_who_waits_goes_on_where_a_killed_run_stopped(folder):
    first = start(folder)
    wait_for(lambda: len(list((folder / "calls").iterdir())) == 4, first)
    second = start(folder)
    assert second.stderr and "waiting" in second.stderr.readline()
    first.send_signal(signal.SIGKILL)
    first.communicate()
    (folder / "go").touch()
    out, err = second.communicate(timeout=300)
    assert (second.returncode, out) == (0, "10\n"), err
    assert [run["cells"] for run in load_provenance(folder, "test")["runs"]] == [3, 7]
    assert not lock_of(folder / "test.csv").exists()


def test_a_store_can_be_read_at_any_moment_while_it_is_written(folder):
    (folder / "go").touch()
    process = start(folder)
    sizes = []
    while process.poll() is None:
        try:
            sizes.append(len(load_results(folder, "test")))
        except FileNotFoundError:
            assert not sizes
    assert process.communicate()[0] == "10\n"
    assert sizes == sorted(sizes) and len(set(sizes)) > 3


def test_threads_of_one_process_take_turns(tmp_path):
    inside, most = [], []

    def work():
        with writing(tmp_path / "test.csv"):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    threads = [Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 5
    assert os.listdir(tmp_path) == []
