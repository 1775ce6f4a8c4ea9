"""The benchmark of calibrators: every method on the same draws of every set of scores.

All methods of a store, in its parameters, see the same cases. Those that need the extra
``calibrators`` are in stores of their own, as are sizes and tables that came later; in
``calibrators_shuffled`` Kuzushiji-MNIST has its two parts mixed.
"""

import time
import warnings
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any

import numpy as np

from bayesloss import LinkCalibrator
from bayesloss_book import Array
from bayesloss_book.beyond.calibration import rivals
from bayesloss_book.data.score_sets import CURVES, SMALL, Draw, draw, enough, kind, score_sets
from bayesloss_book.data.score_tables import LARGER, TABLES
from bayesloss_book.rivals.baselines import calibration_error, log_loss
from paperledger.stores.results import Folder, run_cells

SIZES = (200, 1_000, 5_000)
DRAWS = 3
MORE = {50: 2, 20_000: 1, 100_000: 1}  # draws of other sizes; the last of curves only
_REAL = {50: 2, 200: 2, 1_000: 2, 5_000: 2, 20_000: 1}  # and of real tables; of larger ones one
STORES: dict[str, dict[str, Any]] = {
    "calibrators": {"methods": list(rivals.STANDARD)},
    "calibrators_extra": {"methods": list(rivals.EXTRA)},
    "calibrators_more": {"methods": list(rivals.STANDARD), "timed": True},
    "calibrators_more_extra": {"methods": list(rivals.EXTRA), "timed": True},
    "calibrators_tables": {"methods": list(rivals.METHODS), "timed": True},
    "calibrators_shuffled": {"methods": list(rivals.METHODS), "shuffled": True},
}

ROUNDING = 1e-6  # by which a probability may leave [0, 1]
_LEVEL = 0.95  # of bands


def cells(
    *, sizes: Sequence[int] = SIZES, draws: int = DRAWS, real: Collection[str] = ()
) -> list[dict[str, Any]]:
    """All draws of the named real tables, or of all sets but real tables: first draws first."""
    return [
        {**one._asdict(), "n": n, "number": number}
        for number in range(draws)
        for one in score_sets()
        for n in sizes
        if (one.data in real if real else kind(one.data) != "real")
        and n <= _cases(one.data)
        and enough(one.data, n)
    ]


def more_cells() -> list[dict[str, Any]]:
    """The cells of the later stores: draws of `MORE`, and real tables at five sizes."""
    found = [
        cell
        for real, draws in (((), MORE), (TABLES, _REAL))
        for cell in cells(sizes=tuple(draws), real=real)
        if cell["number"] < draws[cell["n"]]
    ]
    return sorted(found, key=lambda cell: cell["number"])  # stable


def planned(store: str) -> list[dict[str, Any]]:
    """The cells of a store; of the last two one draw of each size."""
    if store in ("calibrators", "calibrators_extra"):
        return cells()
    if store.startswith("calibrators_more"):
        return more_cells()
    if store == "calibrators_tables":
        return cells(sizes=tuple(_REAL), draws=1, real=LARGER)
    wanted = ("kmnist", "odd")
    return [c for c in cells(sizes=tuple(_REAL), draws=1) if (c["data"], c["task"]) == wanted]


def run(folder: Folder, *, n_jobs: int | None = None) -> None:
    """Measure what is missing in all stores, resumable. One worker, or seconds mean little."""
    for name, parameters in STORES.items():
        run_cells(measure, planned(name), folder, name, parameters=parameters, n_jobs=n_jobs)


def measure(
    *, methods: Sequence[str], timed: bool = False, shuffled: bool = False, **cell: Any
) -> dict[str, float]:
    """What `measure_one` finds on one draw by every method, as "method: measure"."""
    cases = draw(**cell, shuffled=shuffled)
    known = kind(cell["data"]) == "curve"
    return {
        f"{method}: {name}": value
        for method in methods
        for name, value in measure_one(method, cases, known=known, timed=timed).items()
    }


def measure_one(
    method: str, cases: Draw, *, known: bool = False, timed: bool = False
) -> dict[str, float]:
    """Fit one calibrator and measure it.

    ``log_loss`` (nats) and ``brier`` are expectations over the test labels where their
    probabilities are known; ``calibration`` is the distance of confidence and frequency over 15
    equal bins; ``failed`` the share of test cases without a probability, which get the share of
    positives. For `rivals.OURS` also ``coverage`` (NaN where the curve is not ``known``) and
    ``width`` of the 95 % band. If ``timed``, ``fit_seconds`` and ``predict_seconds`` of processor
    time.
    """
    _warm(method)
    scores, y, test_scores, truth, probability = cases
    curve, p, seconds = attempt(
        lambda: rivals.fit(method, scores, y, probability), test_scores, test_scores.shape
    )
    valid = np.isfinite(p) & (p > -ROUNDING) & (p < 1 + ROUNDING)
    p = np.where(valid, p.clip(0, 1), y.mean())
    found = {
        "log_loss": log_loss(p, truth),
        "brier": float((truth * (1 - p) ** 2 + (1 - truth) * p**2).mean()),
        "calibration": calibration_error(p, truth),
        "failed": float(1 - valid.mean()),
    }
    if method == rivals.OURS:
        found |= {"coverage": np.nan, "width": np.nan}
        if not found["failed"]:
            calibrator: LinkCalibrator = curve.calibrator  # type: ignore[union-attr]
            low, high = calibrator.predict_interval(test_scores, _LEVEL)
            within = (low <= truth) & (truth <= high)
            found |= {"coverage": float(within.mean())} if known else {}
            found["width"] = float((high - low).mean())
    return found | (seconds if timed else {})


def attempt(
    fit: Callable[[], rivals.Curve], test: Array, shape: tuple[int, ...]
) -> tuple[rivals.Curve | None, Array, dict[str, float]]:
    """Fit and predict, timed. A method that fails gives no curve, and probabilities NaN."""
    curve = None
    p = np.full(shape, np.nan)
    begin = middle = time.process_time()
    try:
        with warnings.catch_warnings(action="ignore"):
            curve = fit()
            middle = time.process_time()
            p = np.asarray(curve(test), dtype=np.float64).reshape(shape)
    except ImportError:
        raise
    except Exception:  # of other people's code, at its limits: counted
        pass
    seconds = {"fit_seconds": middle - begin, "predict_seconds": time.process_time() - middle}
    return curve, p, seconds


@cache
def _warm(method: str) -> None:
    """Call a method once: what it imports and compiles is no part of its time."""
    scores = np.linspace(0.05, 0.95, 40)
    y = (np.arange(40) % 3 > 0).astype(np.float64)
    attempt(lambda: rivals.fit(method, scores, y, True), scores, scores.shape)


def _cases(data: str) -> int:
    """How many cases a set has to calibrate on, at most."""
    if data in CURVES:
        return 1_000_000
    if kind(data) == "real":
        return (TABLES | LARGER)[data].sizes[1]
    return SMALL[data][2] if data in SMALL else 50_000
