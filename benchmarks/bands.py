"""How often 95 % bands contain the truth, by kind of truth: `LinkCalibrator` and `ISGPRegressor`.

Run as ``python benchmarks/bands.py [draws]``, 40 unless said otherwise: twenty minutes or more.
Each number is the mean over draws of the share of new inputs at which the band contains the true
curve; beside it its standard error over draws. Docstrings quote it, for the regressor five draws.
"""

import sys
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.special import expit

from bayesloss import ISGPRegressor, LinkCalibrator

Curve = Callable[[np.ndarray], np.ndarray]
SIZES = (200, 1_000)
N_TEST = 400
NOISE = 0.3  # its standard deviation, of targets whose own is about one

# Probabilities by scores that are standard normal.
PROBABILITIES: dict[str, Curve] = {
    "one step": lambda s: np.where(s < 0, 0.2, 0.8),
    "three steps": lambda s: np.select([s < -0.7, s < 0, s < 0.7], [0.1, 0.35, 0.65], 0.9),
    "corner": lambda s: expit(np.where(s > 0, 3 * s, 0.3 * s)),
    "plateau between slopes": lambda s: expit(3 * (s - np.clip(s, -0.6, 0.6))),
    "straight": lambda s: expit(1.5 * s),
    "bent": lambda s: expit(2 * np.tanh(1.5 * s) + 0.5 * s),
}


def uniform(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(-1, 1, n)


def normal(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=n)


def log_normal(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.lognormal(size=n)


# Means by inputs of some distribution.
MEANS: dict[str, tuple[Curve, Callable[[np.random.Generator, int], np.ndarray]]] = {
    "one step": (lambda x: np.sign(x), uniform),
    "three steps": (
        lambda x: np.select([x < -0.5, x < 0, x < 0.5], [-1.3, -0.4, 0.4], 1.3),
        uniform,
    ),
    "corner": (lambda x: 3 * np.maximum(x, 0), uniform),
    "plateau between slopes": (lambda x: 3 * (x - np.clip(x, -0.3, 0.3)), uniform),
    "straight": (lambda x: 1.7 * x, uniform),
    "bent": (lambda x: 1.3 * np.tanh(3 * x), uniform),
    "cube of normal inputs": (lambda x: x**3 / 3, normal),
    "logarithm of log-normal inputs": (np.log, log_normal),
    "root of log-normal inputs": (np.sqrt, log_normal),
}


def calibrator_coverage(truth: Curve, n: int, rng: np.random.Generator) -> float:
    scores = rng.normal(size=n)
    labels = (rng.random(n) < truth(scores)).astype(int)
    new = rng.normal(size=N_TEST)
    calibrator = LinkCalibrator(scale="real").fit(scores, labels)
    low, high = calibrator.predict_interval(new)
    return float(((low <= truth(new)) & (truth(new) <= high)).mean())


def regressor_coverage(kind: str, n: int, rng: np.random.Generator) -> float:
    truth, draw = MEANS[kind]
    inputs = draw(rng, n)
    targets = truth(inputs) + NOISE * rng.normal(size=n)
    new = draw(rng, N_TEST)
    low, high = ISGPRegressor().fit(inputs, targets).predict_interval(new)
    return float(((low <= truth(new)) & (truth(new) <= high)).mean())


def main(n_draws: int) -> None:
    rows = []
    for draw in range(n_draws):
        for n in SIZES:
            for number, (kind, truth) in enumerate(PROBABILITIES.items()):
                covered = calibrator_coverage(truth, n, np.random.default_rng([draw, n, number]))
                rows.append({"of": "LinkCalibrator", "truth": kind, "n": n, "share": covered})
            for kind in MEANS:
                covered = regressor_coverage(kind, n, np.random.default_rng([draw, n]))
                rows.append({"of": "ISGPRegressor", "truth": kind, "n": n, "share": covered})
    shares = pd.DataFrame(rows).groupby(["of", "truth", "n"], sort=False)["share"]
    table = pd.DataFrame({"mean": shares.mean(), "error": shares.sem()}).unstack("n")
    print((100 * table).round(0).astype(int).to_string())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
