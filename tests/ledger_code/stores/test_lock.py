import os
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from threading import Thread

import pytest
from forked import Forked

from paperledger.stores.lock import lock_of, writing
from paperledger.stores.results import load_provenance, load_results, run_cells


def measure(seed):
    os.close(tempfile.mkstemp(dir="calls", prefix=f"{seed}-")[0])
    while seed == 3 and not os.path.exists("go"):
        time.sleep(0.01)
    time.sleep(0.02)
    return {"value": seed / 7}


def run():
    return len(run_cells(measure, [{"seed": seed} for seed in range(10)], ".", "test"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "calls").mkdir()
    return tmp_path


def test_three_runs_on_one_store_measure_every_cell_once(folder):
    first = Forked(run, folder)
    first.wait_for((folder / "test.csv").exists)
    others = [Forked(run, folder), Forked(run, folder)]
    waiting = f"{lock_of(Path('test.csv'))} is held by another run: waiting for it to end"
    others[0].wait_for(lambda: others[0].err.strip() == waiting)
    (folder / "go").touch()
    for process in (first, *others):
        assert process.end() == (0, "10\n"), process.err
    calls = Counter(path.name.partition("-")[0] for path in (folder / "calls").iterdir())
    assert calls == Counter(map(str, range(10)))
    assert sum(run["cells"] for run in load_provenance(folder, "test")["runs"]) == 10


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])  # the second as a terminal does
def test_who_waits_goes_on_where_a_killed_run_stopped(folder, sign):
    first = Forked(run, folder)
    first.wait_for(lambda: len(list((folder / "calls").iterdir())) == 4)
    second = Forked(run, folder)
    second.wait_for(lambda: "waiting" in second.err)
    os.kill(first.process.pid, sign)
    first.process.join(60)
    assert first.process.exitcode
    assert load_results(folder, "test")["seed"].tolist() == [0, 1, 2]
    (folder / "go").touch()
    assert second.end() == (0, "10\n"), second.err
    assert [run["cells"] for run in load_provenance(folder, "test")["runs"]] == [3, 7]


def test_a_store_can_be_read_at_any_moment_while_it_is_written(folder):
    (folder / "go").touch()
    process = Forked(run, folder)
    sizes = []
    while process.process.is_alive():
        try:
            sizes.append(len(load_results(folder, "test")))
        except FileNotFoundError:
            assert not sizes
    assert process.end() == (0, "10\n")
    assert sizes == sorted(sizes) and len(set(sizes)) > 3


def test_threads_of_one_process_take_turns(tmp_path):
    inside = []
    most = []

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
    assert os.listdir(tmp_path) == [lock_of(tmp_path / "test.csv").name]
