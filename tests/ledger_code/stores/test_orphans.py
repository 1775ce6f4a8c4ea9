import importlib
import subprocess
import sys
import time
from pathlib import Path

from paperledger.stores.results import load_provenance, load_results, run_cells

EXPERIMENT = """
import os, time
from paperledger.stores.results import run_cells

def measure(seed):
    open(f"{seed}-{os.getpid()}.pid", "w").close()
    while seed >= 4 and not os.path.exists("go"):
        time.sleep(0.05)
    return {"value": seed / 7}

if __name__ == "__main__":
    import experiment
    run_cells(experiment.measure, [{"seed": seed} for seed in range(8)], ".", "test", n_jobs=2)
"""


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(condition):
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stored(folder):
    table = folder / "test.csv"
    return load_results(folder, "test")["seed"].tolist() if table.exists() else []


def test_workers_end_with_the_run_that_was_killed_and_the_next_loses_only_their_cells(
    tmp_path, monkeypatch
):
    (tmp_path / "experiment.py").write_text(EXPERIMENT)
    run = subprocess.Popen([sys.executable, "experiment.py"], cwd=tmp_path)
    try:
        wait_until(
            lambda: len(list(tmp_path.glob("[45]-*.pid"))) == 2 and len(stored(tmp_path)) > 3
        )
    finally:
        run.kill()
        run.wait()
    workers = [int(path.stem.partition("-")[2]) for path in tmp_path.glob("*.pid")]
    assert run.pid not in workers
    wait_until(lambda: not any(map(alive, workers)))
    assert stored(tmp_path) == [0, 1, 2, 3]

    (tmp_path / "go").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    experiment = importlib.import_module("experiment")
    del sys.modules["experiment"]  # the next test has one of its own
    table = run_cells(experiment.measure, [{"seed": seed} for seed in range(8)], ".", "test")
    assert table["value"].tolist() == [seed / 7 for seed in range(8)]
    assert [run["cells"] for run in load_provenance(".", "test")["runs"]] == [4, 4]
