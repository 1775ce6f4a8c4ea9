"""The benchmark of calibrators of many classes: sets of scores, cells, measures.

All of it was fixed before any calibrator saw it, but for `TUNED`, on which the settings of
`SoftmaxCalibrator` were chosen. Images are dealt out anew at random, so that what is learned holds
in the test cases. The matrix without a prior is left out: it takes longer than all others together.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier

from bayesloss_book import Array
from bayesloss_book.beyond.calibration import rivals
from bayesloss_book.beyond.calibration.benchmark import ROUNDING, attempt
from bayesloss_book.data import score_sets as scores
from bayesloss_book.data import score_tables as tables
from bayesloss_book.rivals.baselines import SMALLEST, calibration_error
from paperledger.stores.results import Folder, run_cells

SIZES = (200, 1_000, 5_000)
DRAWS = 2
STORES = {
    "calibrators_many": {"methods": list(rivals.MANY_STANDARD)},
    "calibrators_many_extra": {"methods": list(rivals.MANY_EXTRA)},
}
MODELS: dict[str, Callable[[], Any]] = {
    **{name: make for name, make in scores.MODELS.items() if name != "linear SVM"},
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=20, random_state=0),
}
_IMAGES = ("mnist", "fashion-mnist", "kmnist")
_SUM = 1e-3  # by which a sum of probabilities may differ from 1: some methods have single precision
_SIZES = (4_000, 10_000, 10_000)  # to train, to calibrate and to test on: images and mixtures
_DIGITS = (300, 1_000)
DATA = {
    **{name: _SIZES[1] for name in _IMAGES},
    "digits": _DIGITS[1],
    **{name: _SIZES[1] for name in tables.MIXTURES},
    **{name: table.sizes[1] for name, table in tables.MANY.items()},
}
TUNED = "mnist"


class Draw(NamedTuple):
    """Probabilities and labels to calibrate on, probabilities and truth to test on."""

    p: Array  # (n, K)
    y: NDArray[np.int64]  # (n,)
    # (m, K), the truth has the probabilities of the classes given the inputs where data are
    # simulated, and else a 1 for the label
    test: Array
    truth: Array  # (m, K)


def cells(*, sizes: Sequence[int] = SIZES, draws: int = DRAWS) -> list[dict[str, Any]]:
    """All cells: of the first draw of every set at every size, then of the second, and so on."""
    return [
        {"data": data, "task": "many", "model": model, "n": n, "number": number}
        for number in range(draws)
        for i, (data, most) in enumerate(DATA.items())
        for model in list(MODELS)[i % 2 :: 2]
        for n in sizes
        if n <= most
    ]


def run(folder: Folder, *, n_jobs: int | None = None) -> None:
    """Measure what is missing in both stores, resumable. One worker, or seconds mean little."""
    for name, parameters in STORES.items():
        run_cells(measure, cells(), folder, name, parameters=parameters, n_jobs=n_jobs)


def measure(
    *, methods: Sequence[str], data: str, task: str, model: str, n: int, number: int
) -> dict[str, float]:
    """Calibrate one draw by every method, and measure the probabilities of the test cases.

    For each method ``log_loss`` in nats and ``brier``, summed over classes, both expectations where
    the truth is known; ``calibration`` of the largest probability over 15 equal bins; ``failed``;
    ``fit_seconds`` and ``predict_seconds`` of processor time.
    """
    found = draw(data, model, n, number)
    return {
        f"{method}: {name}": value
        for method in methods
        for name, value in _measure_one(method, *found).items()
    }


@lru_cache(maxsize=2)
def draw(data: str, model: str, n: int, number: int) -> Draw:
    """The cases of one cell, with each class among them: a draw without is drawn again."""
    p, y, test, truth = _scores(data, model, number if data == "digits" else 0)
    if n > len(p):
        raise ValueError(f"expected at most {len(p)} cases of {data}, got n = {n}")
    for again in range(1_000):
        seed = [sum(map(ord, f"{data}, many, {model}")), n, number, again]
        rows = np.random.default_rng(seed).choice(len(p), n, replace=False)
        if len(np.unique(y[rows])) == p.shape[1]:
            return Draw(p[rows], y[rows], test, truth)
    raise ValueError(f"expected all {p.shape[1]} classes among {n} cases of {data}, found fewer")


def _measure_one(
    method: str, p: Array, y: NDArray[np.int64], test: Array, truth: Array
) -> dict[str, float]:
    _warm(method)
    _, found, seconds = attempt(lambda: rivals.fit_many(method, p, y), test, truth.shape)
    within = np.isfinite(found) & (found > -ROUNDING) & (found < 1 + ROUNDING)
    valid = within.all(axis=1) & (np.abs(found.sum(axis=1) - 1) < _SUM)
    found = np.where(valid[:, None], found.clip(0, 1), np.bincount(y) / len(y))
    found /= found.sum(axis=1, keepdims=True)
    bounded = np.clip(found, SMALLEST, 1)
    sure = found.max(axis=1)
    best = found.argmax(axis=1)
    return {
        "log_loss": float(-xlogy(truth, bounded).sum(axis=1).mean()),
        # E |p - e_y|^2 = |p|^2 - 2 p . truth + 1.
        "brier": float(((found**2).sum(axis=1) - 2 * (found * truth).sum(axis=1) + 1).mean()),
        "calibration": calibration_error(sure, truth[np.arange(len(truth)), best]),
        "failed": float(1 - valid.mean()),
        **seconds,
    }


@cache
def _warm(method: str) -> None:
    """Call a method once: what it imports and compiles is no part of its time."""
    p = np.random.default_rng(0).dirichlet(np.ones(3), 60)
    attempt(lambda: rivals.fit_many(method, p, np.arange(60) % 3), p, p.shape)


@lru_cache(maxsize=2)
def _scores(data: str, model: str, part: int) -> tuple[Array, NDArray[np.int64], Array, Array]:

    def make() -> dict[str, Any]:
        X, y, X_pool, y_pool, X_test, truth = _cases(data, part)
        with warnings.catch_warnings(action="ignore"):  # an early stop is part of the setting
            fitted = MODELS[model]().fit(X, y)
            p = fitted.predict_proba(X_pool)
            test = fitted.predict_proba(X_test)
        return {"p": p, "y": y_pool, "test": test, "truth": truth}

    found = scores.cached(f"{data}, many, {model}, {part}", make)
    return found["p"], found["y"], found["test"], found["truth"]


@lru_cache(maxsize=1)
def _cases(data: str, part: int) -> tuple[NDArray[Any], ...]:
    """Inputs and labels to train on and to calibrate on; test inputs and the truth."""
    y: NDArray[Any]
    truth: Array | None = None
    parts: tuple[NDArray[Any], ...]
    if data == "digits":
        X, y = load_digits(return_X_y=True)
        parts = tables.split(X, y, _DIGITS, part)
    elif data in tables.MANY:
        parts = tables.split(*tables.load(tables.MANY[data]), tables.MANY[data].sizes, part)
    else:
        if data in tables.MIXTURES:
            X, y, truth = tables.mixture(tables.MIXTURES[data], sum(_SIZES))
        else:
            X, y, X_more, y_more = scores.images(data)
            rows = np.random.default_rng(1).permutation(len(y) + len(y_more))[: sum(_SIZES)]
            X = np.concatenate([X, X_more])[rows]
            y = np.concatenate([y, y_more])[rows]
        a = _SIZES[0]
        b = _SIZES[0] + _SIZES[1]
        parts = X[:a], y[:a], X[a:b], y[a:b], X[b:], y[b:]
    X, y, X_pool, y_pool, X_test, y_test = parts
    truth = np.eye(int(y.max()) + 1)[y_test.astype(int)] if truth is None else truth[b:]
    return X, y.astype(int), X_pool, y_pool.astype(int), X_test, truth
