"""Eight public calls with the threads that a machine gives by default, and with one.

    python benchmarks/threads.py [rounds [calls]]

Each measurement is a process of its own. On quiet cores, then beside four busy processes, rounds
alternate between both numbers of threads. Printed are medians over the rounds of the seconds on
the wall clock and of all cores together, and how many times as long the default takes as one
thread. The last two calls are large: there threads ought to pay where cores are quiet.
"""

import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
BUSY = 4  # processes
REPEATS = 9  # of a small call in its process


def data(n: int, d: int) -> tuple[Any, Any]:
    """Inputs, and labels that follow a logistic regression."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = (2 * X @ rng.normal(size=d) / d**0.5 + rng.logistic(size=n) > 0).astype(int)
    return X, y


def linkgistic() -> Callable[[], Any]:
    """426 x 30, as the first table of README's example."""
    from bayesloss import LinkgisticClassifier

    X, y = data(426, 30)
    return lambda: LinkgisticClassifier().fit(X, y)


def linkgistic_predictions() -> Callable[[], Any]:
    """Of 2,000 rows."""
    from bayesloss import LinkgisticClassifier

    X, y = data(2_000, 30)
    model = LinkgisticClassifier(max_iter=3).fit(X, y)
    return lambda: [model.predict_proba(X) for _ in range(100)]


def expectation_propagation() -> Callable[[], Any]:
    """426 x 30, with the search for the kernel."""
    from bayesloss import GPClassifier

    X, y = data(426, 30)
    return lambda: GPClassifier().fit(X, y)


def regression() -> Callable[[], Any]:
    """500 points."""
    from bayesloss import ISGPRegressor

    x, y = data(500, 1)
    return lambda: ISGPRegressor().fit(x, y)


def calibrator() -> Callable[[], Any]:
    """2,000 scores."""
    from bayesloss import LinkCalibrator

    X, y = data(2_000, 1)
    return lambda: LinkCalibrator().fit(X[:, 0], y)


def many_classes() -> Callable[[], Any]:
    """2,000 scores of ten classes, with intervals."""
    from bayesloss import SoftmaxCalibrator

    scores, _ = data(2_000, 10)
    y = (scores + np.random.default_rng(1).gumbel(size=scores.shape)).argmax(axis=1)
    return lambda: SoftmaxCalibrator().fit(scores, y).predict_interval(scores)


def large_linkgistic() -> Callable[[], Any]:
    """60,000 x 784."""
    from bayesloss import LinkgisticClassifier

    X, y = data(60_000, 784)
    return lambda: LinkgisticClassifier().fit(X, y)


def large_gaussian_process() -> Callable[[], Any]:
    """A kernel matrix of 5,000 x 5,000."""
    from bayesloss import GPClassifier

    X, y = data(5_000, 10)
    return lambda: GPClassifier("laplace", length_scale=3.0, amplitude=3.0).fit(X, y)


CALLS = {
    call.__name__: call
    for call in (
        linkgistic,
        linkgistic_predictions,
        expectation_propagation,
        regression,
        calibrator,
        many_classes,
        large_linkgistic,
        large_gaussian_process,
    )
}


def measure(name: str) -> tuple[float, float]:
    """Seconds on the wall clock and of the processor: medians after the first of small calls."""
    call = CALLS[name]()
    repeats = 1
    if not name.startswith("large"):
        call()
        repeats = REPEATS
    wall = []
    processor = []
    for _ in range(repeats):
        begin = time.perf_counter(), time.process_time()
        call()
        wall.append(time.perf_counter() - begin[0])
        processor.append(time.process_time() - begin[1])
    return statistics.median(wall), statistics.median(processor)


def in_process(name: str, one: bool) -> tuple[float, float]:
    """The same in a process of its own, with one thread or the default."""
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    if one:
        environment |= dict.fromkeys(VARIABLES, "1")
    command = [sys.executable, __file__, "--call", name]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    wall, processor = map(float, ran.stdout.split())
    return wall, processor


def spin() -> None:
    """Keep a core busy."""
    while True:
        pass


def compare(where: str, rounds: int, names: list[str]) -> None:
    """Print a line a call."""
    print(f"{where}: seconds (of all cores) by default, with one thread, and their ratios")
    for name in names:
        default = []
        one = []
        for _ in range(rounds):
            default.append(in_process(name, one=False))
            one.append(in_process(name, one=True))
        wall, processor = map(statistics.median, zip(*default, strict=True))
        wall_1, processor_1 = map(statistics.median, zip(*one, strict=True))
        print(
            f"  {name:24s} {wall:7.2f} ({processor:7.2f}) {wall_1:7.2f} "
            f"({processor_1:7.2f})   {wall / wall_1:5.2f} ({processor / processor_1:5.2f})",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--call"]:
        print(*measure(sys.argv[2]))
        sys.exit()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    names = sys.argv[2:] or list(CALLS)
    compare("quiet", rounds, names)
    busy = [multiprocessing.Process(target=spin, daemon=True) for _ in range(BUSY)]
    for process in busy:
        process.start()
    compare(f"beside {BUSY} busy processes", rounds, names)
