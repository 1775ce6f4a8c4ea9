"""Do the bands of `SoftmaxCalibrator` hold the truth? Simulated scores whose truth is known."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import softmax

from bayesloss import SoftmaxCalibrator
from bayesloss_book import Array
from paperledger.stores.results import crossed, runs

CLASSES = (4, 10)
SIZES = (200, 1_000, 5_000)
_DRAWS = 3
_N_TEST = 2_000
_LEVEL = 0.95


def _mixed(z: Array) -> Array:
    """Classes listen to each other; of ten, thrice as much as the prior expects."""
    K = z.shape[1]
    rng = np.random.default_rng(K)
    W = rng.normal(0, 0.25, (K, K))
    b = rng.normal(0, 0.4, K)
    return softmax(z + z @ W.T + b, axis=1)


TRUTHS: dict[str, Callable[[Array], Array]] = {
    "as it is": lambda z: softmax(z, axis=1),
    "tempered": lambda z: softmax(0.4 * z, axis=1),
    "mixed": _mixed,
    "kinked": lambda z: softmax(np.where(z < 0, 0.3 * z, 1.5 * z), axis=1),
    "square root": lambda z: softmax(2 * np.sign(z) * np.sqrt(np.abs(z)), axis=1),
    "wrong labels": lambda z: 0.15 / z.shape[1] + 0.85 * softmax(z, axis=1),
}


def cells() -> list[dict[str, Any]]:
    """Every truth with four and ten classes, at every size, three draws."""
    return crossed(number=range(_DRAWS), truth=TRUTHS, classes=CLASSES, n=SIZES)


def measure(*, truth: str, classes: int, n: int, number: int) -> dict[str, float]:
    """``coverage`` and mean ``width`` of one draw's 95 % band, over test scores and classes."""
    rng = np.random.default_rng([list(TRUTHS).index(truth), classes, n, number])
    p, expected = _draw(TRUTHS[truth], classes, n, rng)
    y = (rng.random((n, 1)) > expected.cumsum(axis=1)[:, :-1]).sum(axis=1)
    test, expected = _draw(TRUTHS[truth], classes, _N_TEST, rng)
    with warnings.catch_warnings(action="ignore"):
        calibrator = SoftmaxCalibrator(scale="probability").fit(p, y)
    low, high = calibrator.predict_interval(test, _LEVEL)
    within = (low <= expected) & (expected <= high)
    return {"coverage": float(within.mean()), "width": float((high - low).mean())}


def _draw(
    truth: Callable[[Array], Array], k: int, n: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """What the classifier says, and the true probabilities."""
    z = rng.normal(0, 2, (n, k))
    z -= z.mean(axis=1, keepdims=True)
    return softmax(z, axis=1), truth(z)


run = runs(measure, cells, "calibrators_many_bands")
