"""`ISGPRegressor` on many points: seconds and peak memory of a process of its own.

Run by ``make bench``. Issue 2 sets the limits: 100,000 points with M = 64 in under 20 s and 2 GB.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, re, sys, time
from pathlib import Path
import numpy as np
from bayesloss import ISGPRegressor

n, n_basis = map(int, sys.argv[1:])
generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (n, 1))
y = np.tanh(3 * X[:, 0]) + 0.2 * generator.normal(size=n)
def peak():
    # Not resource.getrusage: its maximum survives fork and exec, so it is pytest's own.
    return int(re.search("VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
before, begin = peak(), time.perf_counter()
model = ISGPRegressor(n_basis=n_basis).fit(X, y)
fitted = time.perf_counter()
mean, std = model.predict(X, return_std=True)
print(json.dumps({
    "fit s": fitted - begin,
    "predict s": time.perf_counter() - fitted,
    "peak MB": peak(),
    "MB before": before,
    "rms error": float(np.sqrt(np.mean((mean - np.tanh(3 * X[:, 0])) ** 2))),
    "noise": model.noise_variance_ ** 0.5,
    "evaluations": model.n_iter_,
    "converged": model.converged_,
}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory as Linux tells it")
@pytest.mark.benchmark(group="ISGPRegressor, M = 64, a whole process")
@pytest.mark.parametrize("n", [1_000, 100_000, 1_000_000])
def test_fit_and_predict(benchmark, n):
    def run():
        command = [sys.executable, "-c", SCRIPT, str(n), "64"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    report = benchmark.pedantic(run, rounds=3 if n < 10**6 else 1)
    benchmark.extra_info.update(report)
    print(n, report)
    assert report["converged"]
    assert report["noise"] == pytest.approx(0.2, rel=0.1)
    if n == 100_000:
        assert report["fit s"] < 20
        assert report["peak MB"] < 2048
