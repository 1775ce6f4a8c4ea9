"""Workers and kernels of a killed run end with it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

EXPERIMENT = """
import os, time
from bayesloss_book.stores.results import run_cells

def measure(seed):
    open(f"{os.getpid()}.pid", "w").close()
    time.sleep(300)
    return {"value": seed}

if __name__ == "__main__":
    import experiment
    run_cells(experiment.measure, [{"seed": seed} for seed in range(4)], ".", "test", n_jobs=2)
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


def test_workers_end_with_the_run_that_was_killed(tmp_path):
    (tmp_path / "experiment.py").write_text(EXPERIMENT)
    run = subprocess.Popen([sys.executable, "experiment.py"], cwd=tmp_path)
    try:
        wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    workers = [int(path.stem) for path in tmp_path.glob("*.pid")]
    assert run.pid not in workers
    wait_until(lambda: not any(map(alive, workers)))
