"""`LinkCalibrator` beside scikit-learn's sigmoid and isotonic regression: processor seconds, memory.

Run by ``make bench``. Issue 13 sets the limits: a fit to 1,000 scores in under 0.15 s; to 10^6 in
under 2 s and 500 MB above what the process had before; 10^6 predictions in under 0.2 s.
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
from bayesloss import LinkCalibrator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

method, n, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(0)
s = rng.normal(0, 1.5, n)
y = (rng.random(n) < 1 / (1 + np.exp(-np.where(s > 0, 4 * s, s)))).astype(float)

def fit():
    if method == "link":
        return LinkCalibrator(scale="real").fit(s, y).predict_proba
    if method == "isotonic":
        return IsotonicRegression(out_of_bounds="clip").fit(s, y).predict
    from sklearn.calibration import _sigmoid_calibration
    a, b = _sigmoid_calibration(s, y)
    return lambda t: 1 / (1 + np.exp(a * t + b))

def peak():
    # Not resource.getrusage: its maximum survives fork and exec, so it is pytest's own.
    return int(re.search("VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

if n == 1_000:
    fit()  # what is imported and cached is no part of it
before, begin = peak(), time.process_time()
for _ in range(rounds):
    curve = fit()
fitted = time.process_time()
for _ in range(rounds):
    curve(s)
print(json.dumps({
    "fit s": (fitted - begin) / rounds,
    "predict s": (time.process_time() - fitted) / rounds,
    "MB": peak() - before,
}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory as Linux tells it")
@pytest.mark.benchmark(group="calibrators, a whole process")
@pytest.mark.parametrize("method", ["link", "sigmoid", "isotonic"])
@pytest.mark.parametrize(("n", "rounds"), [(1_000, 5), (1_000_000, 1)])
def test_fit_and_predict(benchmark, method, n, rounds):
    def run():
        command = [sys.executable, "-c", SCRIPT, method, str(n), str(rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    report = benchmark.pedantic(run, rounds=1)
    benchmark.extra_info.update(report)
    print(method, n, report)
    if method == "link":
        assert report["fit s"] < (0.15 if n == 1_000 else 2)
        assert report["predict s"] < 0.2
        assert report["MB"] < 500
