"""What whole fits cost, beside what people use for the same task.

Each cell is a process of its own with one thread. All fits have scikit-learn's tolerance, 1e-4, and
penalty, C = 1, unless the name of the problem says otherwise.
"""

import json
import math
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import norm
from scipy.special import expit
from sklearn.base import is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from bayesloss import ISGPRegressor, LinkgisticClassifier
from bayesloss_book import Array
from bayesloss_book.data.data_sets import DataError, load_images
from paperledger.stores.results import Folder, crossed, run_cells

_N_TEST = 5000
_WORDS = 50_000


class Problem(NamedTuple):
    """Data to fit to, and data to judge by."""

    X: Any
    y: NDArray
    X_test: Any
    y_test: NDArray

    @classmethod
    def split(cls, X: Any, y: NDArray, n_test: int = _N_TEST) -> "Problem":
        """The last rows are to judge by."""
        return cls(X[:-n_test], y[:-n_test], X[-n_test:], y[-n_test:])


def _fashion(kind: int | None) -> Problem:
    """Fashion-MNIST, 60,000 x 784: ten classes, or one against the rest."""
    parts = []
    for part in ("train", "test"):
        X, y = load_images("fashion-mnist", part)
        parts += [X.reshape(len(X), -1) / 255.0, y if kind is None else (y == kind).astype(int)]
    return Problem(*parts)


def _gaussian(n: int, d: int) -> Problem:
    """Independent normal inputs, and a logistic link."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n + _N_TEST, d))
    score = X @ rng.normal(size=d) * (2 / math.sqrt(d))
    return Problem.split(X, (rng.random(len(X)) < expit(score)).astype(int))


def _weighed(counts: Any) -> Any:
    """Words' counts, brought to the usual form: logarithms, rare words count more, unit length."""
    n, d = counts.shape
    counts.sum_duplicates()
    seen = np.bincount(counts.indices, minlength=d)
    counts.data = (1 + np.log(counts.data)) * (np.log((1 + n) / (1 + seen)) + 1)[counts.indices]
    return sparse.csr_array(sparse.diags_array(1 / norm(counts, axis=1)) @ counts)


def _labelled(X: Any, score: Array, rng: np.random.Generator) -> Problem:
    score = 3 * (score - score.mean()) / score.std()
    return Problem.split(X, (rng.random(len(score)) < expit(score)).astype(int))


def text(n: int = 20_000, d: int = _WORDS) -> Problem:
    """Documents of 100 independent words from d: 2 in 1000 numbers are stored."""
    length = 100
    rng = np.random.default_rng(0)
    n += _N_TEST
    odds = np.sqrt(1 / np.arange(1, d + 1))
    places = np.repeat(np.arange(n), length), rng.choice(d, n * length, p=odds / odds.sum())
    X = _weighed(sparse.csr_array((np.ones(n * length), places), (n, d)))
    return _labelled(X, X @ rng.standard_t(3, d), rng)


def topics(n: int = 20_000, d: int = _WORDS) -> Problem:
    """Documents of a few of 20 topics and of unequal length, words by Zipf's law in each."""
    n_topics = 20
    rng = np.random.default_rng(0)
    n += _N_TEST
    odds = np.exp(2 * rng.normal(size=(n_topics, d))) / np.arange(1, d + 1)
    upto = (odds / odds.sum(1, keepdims=True)).cumsum(1)
    share = rng.dirichlet(np.full(n_topics, 0.1), n)
    lengths = rng.poisson(100 * np.exp(0.5 * rng.normal(size=n) - 0.125)).clip(5)
    row = np.repeat(np.arange(n), lengths)
    topic = (rng.random(len(row))[:, None] > share.cumsum(1)[row]).sum(1).clip(0, n_topics - 1)
    chance = rng.random(len(row))
    words = np.empty(len(row), dtype=np.int64)
    for k in range(n_topics):
        words[topic == k] = np.searchsorted(upto[k], chance[topic == k]).clip(0, d - 1)
    X = _weighed(sparse.csr_array((np.ones(len(row)), (row, words)), (n, d)))
    return _labelled(X, X @ rng.standard_t(3, d) + 2 * (share @ rng.normal(size=n_topics)), rng)


def _curve(n: int) -> Problem:
    """A monotone curve with noise; it is judged by without."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 1))
    X_test = np.linspace(-0.99, 0.99, _N_TEST)[:, None]
    y = rng.normal(scale=0.2, size=n)
    y += np.tanh(3 * X[:, 0])
    return Problem(X, y, X_test, np.tanh(3 * X_test[:, 0]))


PROBLEMS: dict[str, Callable[[], Problem]] = {
    **{f"Fashion-MNIST, class {k} of ten": partial(_fashion, k) for k in range(10)},
    "Fashion-MNIST, ten classes": partial(_fashion, None),
    "1,000 x 10": lambda: _gaussian(1_000, 10),
    "5,000 x 1,000": lambda: _gaussian(5_000, 1_000),
    "1,000,000 x 50": lambda: _gaussian(1_000_000, 50),
    "text, 20,000 x 50,000, C = 1": text,
    "text, 20,000 x 50,000, C = 10": text,
    "topics, 20,000 x 50,000, C = 1": topics,
    "topics, 20,000 x 50,000, C = 10": topics,
    "a curve through 1,000,000": lambda: _curve(10**6),
    "a curve through 10,000,000": lambda: _curve(10**7),
}

# What the page shows. Ten classes together take many minutes: `make bench` has them, or `run`.
STORES = ("fit_cost", "fit_cost_ten", "fit_cost_sparse", "fit_cost_curves")
OURS = ("linkgistic", "one against the rest", "ISGP")


def _model(problem: str, method: str) -> Any:
    C = float(problem.rpartition("C = ")[2]) if "C = " in problem else 1.0
    if method == "linkgistic":
        return LinkgisticClassifier(C=C)
    if method == "one against the rest":
        return LinkgisticClassifier(C=C, multi_class="ovr")
    if method == "lbfgs":
        return LogisticRegression(C=C, tol=1e-4, max_iter=10_000)
    if method == "ISGP":
        return ISGPRegressor()
    if method == "isotonic":
        return IsotonicRegression(out_of_bounds="clip")
    raise ValueError(f"expected a method that is known, got {method!r}")


def fit(problem: str, method: str) -> dict[str, float]:
    """Fit in this process; what :func:`measure` returns."""
    X, y, X_test, y_test = PROBLEMS[problem]()
    model = _model(problem, method)
    before = _resident()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.process_time()
        model.fit(X, y)
        cpu = time.process_time() - begin
    peak = _resident("VmHWM")
    if is_regressor(model):
        loss = float(np.mean((model.predict(X_test) - y_test) ** 2))
    else:
        loss = log_loss(y_test, model.predict_proba(X_test))
    return {
        "cpu_seconds": cpu,
        "peak_mb": peak,
        "beyond_mb": peak - before,
        "data_mb": (X.data.nbytes if sparse.issparse(X) else X.nbytes) / 2**20,
        "rounds": int(np.max(getattr(model, "n_iter_", 0))),
        "converged": not any(issubclass(each.category, ConvergenceWarning) for each in caught),
        "loss": loss,
    }


def _resident(what: str = "VmRSS") -> float:
    """Megabytes in memory, now or, from the last call for now, at most; as Linux tells it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return math.nan
    if what == "VmRSS":
        Path("/proc/self/clear_refs").write_text("5")
    found = re.search(rf"{what}:\s+(\d+) kB", status.read_text())
    return int(found[1]) / 1024 if found else math.nan


def measure(*, problem: str, method: str, repeat: int) -> dict[str, float]:
    """Fit in a process of its own.

    ``cpu_seconds`` of the fit; ``peak_mb`` of the process, ``beyond_mb`` what was there before the
    fit, and ``data_mb`` of the inputs; ``rounds``; whether it ``converged``; ``loss``, the mean log
    loss of data held out, for a curve the mean squared error. ``repeat`` only tells repetitions
    apart.
    """
    one = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-m", __name__, problem, method],
        capture_output=True,
        text=True,
        env=os.environ | one,
    )
    if done.returncode:
        before, _, missing = done.stderr.rpartition(f"{DataError.__name__}: ")
        if before:  # without data nothing is wrong with the fit
            raise DataError(missing.strip())
        raise RuntimeError(f"{problem}, {method}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def cells() -> list[dict[str, Any]]:
    """All problems with ours and a rival; three repetitions of what is short."""
    found = []
    for problem in PROBLEMS:
        methods = ["linkgistic", "lbfgs"]
        if problem.endswith("ten classes"):
            methods = ["linkgistic", "one against the rest", "lbfgs"]
        elif problem.startswith("a curve"):
            methods = ["ISGP", "isotonic"]
        long = problem.startswith(("Fashion", "a curve"))
        found += crossed(method=methods, repeat=range(1 if long else 3), problem=[problem])
    return found


def run(folder: Folder, name: str, chosen: str = "") -> None:
    """Measure what a store misses, of the problems whose name has the given part."""
    some = [cell for cell in cells() if chosen in cell["problem"] and name == _store(cell)]
    run_cells(measure, some, folder, name, n_jobs=1, threads=1)


def _store(cell: Mapping[str, Any]) -> str:
    """Where a cell is kept: stores are measured one by one, when what they measure has changed."""
    problem = cell["problem"]
    kinds = {"Fashion-MNIST, ten": "_ten", "t": "_sparse", "a curve": "_curves"}
    return "fit_cost" + next((k for start, k in kinds.items() if problem.startswith(start)), "")


def table(results: pd.DataFrame) -> pd.DataFrame:
    """Medians of the repetitions: ours, and what others do beside it, NaN if not measured."""
    middle = results.groupby(["problem", "method"], sort=False).median(numeric_only=True)
    rows = []
    for problem in PROBLEMS:
        at = middle[middle.index.get_level_values("problem") == problem].droplevel(0)
        ours = at[at.index.isin(OURS)]
        rivals = at[~at.index.isin(OURS)]
        other = rivals.iloc[0] if len(rivals) else pd.Series(math.nan, at.columns)
        for method, mine in ours.iterrows():
            rows.append(
                {
                    "problem": problem + (", one by one" if method == OURS[1] else ""),
                    "seconds": mine["cpu_seconds"],
                    "others' seconds": other["cpu_seconds"],
                    "ratio": mine["cpu_seconds"] / other["cpu_seconds"],
                    "loss": mine["loss"],
                    "others' loss": other["loss"],
                    "MB": mine["beyond_mb"],
                }
            )
    return pd.DataFrame(rows)


def readable(beside: pd.DataFrame) -> pd.DataFrame:
    """The table of :func:`table`, rounded, as text."""

    def text_of(value: float, digits: int) -> str:
        if math.isnan(value):
            return "not measured"
        return f"{value:.{digits}f}" if value == 0 or abs(value) > 1e-3 else f"{value:.0e}"

    digits = {"seconds": 2, "others' seconds": 2, "ratio": 1, "loss": 3, "others' loss": 3, "MB": 0}
    shown = {
        name: [text_of(value, number) for value in beside[name]] for name, number in digits.items()
    }
    return pd.DataFrame(shown, index=pd.Index(beside["problem"], name=None))


if __name__ == "__main__":
    print(json.dumps(fit(*sys.argv[1:])))
