"""Sets of scores to calibrate: what a classifier says of cases that it was not trained on.

Images, simulated tables and real ones by seven classifiers; small sets, split anew for each draw;
curves, whose scores are simulated, too. All was fixed before any calibrator saw it, but for the
real tables: `tables.TABLES` by size and subject, `tables.LARGER` by a rule. `TUNED` are the sets on
which the settings of `LinkCalibrator` were chosen; they are reported apart.
"""

import os
import tempfile
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaln, expit, gammaln, logit
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC

from bayesloss_book import Array
from bayesloss_book.data import score_tables as tables
from bayesloss_book.data.data_sets import cache_folder, load_images


class ScoreSet(NamedTuple):
    """A data set, what is told from what, and the classifier; for a curve, "curve" twice."""

    data: str
    task: str
    model: str


class Draw(NamedTuple):
    """Cases to calibrate on, and test cases."""

    scores: Array  # (n,), scores and labels 0 and 1
    y: Array  # (n,)
    # (m,), where data are simulated, the truth is the probability of the label given the inputs, or
    # given the score in a curve; elsewhere the label
    test_scores: Array
    truth: Array  # (m,)
    # whether scores are probabilities of label 1; else margins, in units of their own
    probability: bool


class Curve(NamedTuple):
    """The true log odds as a function of the score, and where the scores are."""

    log_odds: Callable[[Array], Array]  # non-decreasing; takes scores of shape (n,)
    sample: Callable[[np.random.Generator, int], Array]  # takes a generator and n
    probability: bool = False


MODELS: dict[str, Callable[[], Any]] = {
    "random forest": lambda: RandomForestClassifier(100, random_state=0),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=60, random_state=0),
    "naive Bayes": lambda: GaussianNB(var_smoothing=1e-3),
    "linear SVM": lambda: LinearSVC(C=0.01, random_state=0),
    "logistic": lambda: LogisticRegression(C=0.01, max_iter=200),
    "nearest neighbours": lambda: KNeighborsClassifier(15),
    "neural network": lambda: MLPClassifier((50,), max_iter=30, random_state=0),
}
_CLASSES = {"mnist": "3", "fashion-mnist": "6", "kmnist": "3"}  # each against the rest
IMAGES = tuple((data, task) for data, one in _CLASSES.items() for task in ("odd", one))
SMALL = {"digits": (load_digits, 300, 1_000), "breast cancer": (load_breast_cancer, 150, 200)}
TABLES = ("additive", "interactions", "rare")
TUNED = frozenset(
    ScoreSet(data, "odd", model)
    for data in ("mnist", "fashion-mnist")
    for model in ("random forest", "boosting", "naive Bayes", "linear SVM")
)

_REAL = tables.TABLES | tables.LARGER
_N_TRAIN = 6_000
_N_POOL = 50_000  # of simulated tables
_N_TEST = 20_000  # simulated test cases
_N_INPUTS = 10
_FEWEST = 2  # of either class among the cases to calibrate on
_RARE = {
    **{"interactions": 0.03, "rare": 0.005, "rare, normal": 0.005, "rare, skewed": 0.01},
    "accidents": 0.045,
}
_EXPECTED = 4  # of the rarer class among n cases, or they make no cell


def _mixture(
    share: float,
    one: Callable[[np.random.Generator, int], Array],
    zero: Callable[[np.random.Generator, int], Array],
) -> Callable[[np.random.Generator, int], Array]:
    """Scores of a population, a share of which are of class 1."""

    def sample(rng: np.random.Generator, n: int) -> Array:
        return np.where(rng.random(n) < share, one(rng, n), zero(rng, n))

    return sample


# For two classes with densities f1 and f0, the log odds are logit(share) + log f1 - log f0.
CURVES = {
    "normal classes": Curve(
        lambda s: 2 * s,
        _mixture(0.5, lambda r, n: r.normal(1, 1, n), lambda r, n: r.normal(-1, 1, n)),
    ),
    "gamma classes": Curve(
        lambda s: logit(0.3) + 2.5 * np.log(s) + gammaln(1.5) - gammaln(4),
        _mixture(0.3, lambda r, n: r.gamma(4, 1, n), lambda r, n: r.gamma(1.5, 1, n)),
    ),
    "beta classes": Curve(
        lambda s: (
            logit(0.4) + 3.2 * np.log(s) - 1.8 * np.log1p(-s) + betaln(0.8, 3) - betaln(4, 1.2)
        ),
        _mixture(0.4, lambda r, n: r.beta(4, 1.2, n), lambda r, n: r.beta(0.8, 3, n)),
        probability=True,
    ),
    "Laplace classes": Curve(
        lambda s: (np.abs(s + 1) - np.abs(s - 1)) / 0.7,
        _mixture(0.5, lambda r, n: r.laplace(1, 0.7, n), lambda r, n: r.laplace(-1, 0.7, n)),
    ),
    "wrong labels": Curve(
        lambda s: logit(0.15 + 0.7 * expit(3 * s)), lambda r, n: r.normal(0, 1.5, n)
    ),
    "votes": Curve(
        lambda s: 1.5 * np.log((20 * s + 1) / (21 - 20 * s)),
        lambda r, n: r.binomial(20, r.beta(0.5, 0.8, n)) / 20,
        probability=True,
    ),
    "Cauchy link": Curve(
        lambda s: np.log(np.arctan2(1, -s) / np.arctan2(1, s)), lambda r, n: r.normal(0, 4, n)
    ),
    "two steps": Curve(
        lambda s: 0.1 * s + 1.5 * np.tanh(4 * (s - 1)) + 1.5 * np.tanh(4 * (s + 1)),
        lambda r, n: r.normal(0, 2, n),
    ),
    "square root": Curve(
        lambda s: 2 * np.sign(s) * np.sqrt(np.abs(s)), lambda r, n: r.normal(0, 3, n)
    ),
    "concave": Curve(lambda s: np.minimum(3 * s, 0.4 * s), lambda r, n: r.normal(0, 1.5, n)),
    "rare, normal": Curve(
        lambda s: 2 * s - 2 - np.log(200),
        _mixture(1 / 201, lambda r, n: r.normal(2, 1, n), lambda r, n: r.normal(0, 1, n)),
    ),
    "rare, skewed": Curve(
        lambda s: -np.log(100) + 2 * np.log(s) + s / 3 - gammaln(3) - 3 * np.log(1.5),
        _mixture(1 / 101, lambda r, n: r.gamma(3, 1.5, n), lambda r, n: r.exponential(1, n)),
    ),
}


def score_sets() -> list[ScoreSet]:
    """All sets: images, tables and small sets by seven classifiers, the curves, the real tables."""
    tasks = [*IMAGES, *((name, "simulated") for name in TABLES), ("digits", "odd")]
    tasks.append(("breast cancer", "benign"))
    return [
        *(ScoreSet(data, task, model) for data, task in tasks for model in MODELS),
        *(ScoreSet(name, "curve", "curve") for name in CURVES),
        *(ScoreSet(data, "real", model) for data in _REAL for model in MODELS),
    ]


def enough(data: str, n: int) -> bool:
    """Whether n cases are expected to hold four of the rarer class."""
    return n * _RARE.get(data, 1.0) >= _EXPECTED


def kind(data: str) -> str:
    """What a data set is: "image", "table", "small", "curve" or "real"."""
    names = {name: "image" for name, _ in IMAGES}
    names |= dict.fromkeys(TABLES, "table") | dict.fromkeys(SMALL, "small")
    names |= dict.fromkeys(tables.MIXTURES, "table") | dict.fromkeys(CURVES, "curve")
    names |= dict.fromkeys((*_REAL, *tables.MANY), "real")
    return names[data]


@lru_cache(maxsize=2)  # the cells of one draw follow each other
def draw(data: str, task: str, model: str, n: int, number: int, *, shuffled: bool = False) -> Draw:
    """The cases of one cell; a draw with fewer than two cases of either class is drawn again."""
    for again in range(1_000):
        seed = [sum(map(ord, f"{data}, {task}, {model}")), n, number, again]
        rng = np.random.default_rng(seed)
        if kind(data) == "curve":
            found = from_curve(CURVES[data], n, rng)
        else:
            part = number if kind(data) == "small" else 0
            s, y, s_test, truth, probability = _scores(data, task, model, part)
            if shuffled:
                order = np.random.default_rng(0).permutation(len(s) + len(s_test))
                s, s_test = np.split(np.concatenate([s, s_test])[order], [len(s)])
                y, truth = np.split(np.concatenate([y, truth])[order], [len(y)])
            if n > len(s):
                raise ValueError(f"expected at most {len(s)} cases of {data}, got n = {n}")
            rows = rng.choice(len(s), n, replace=False)
            found = Draw(s[rows], y[rows], s_test, truth, probability)
        if _FEWEST <= found.y.sum() <= n - _FEWEST:
            return found
    raise ValueError(f"expected {_FEWEST} of either class among {n} cases of {data}, found fewer")


def from_curve(curve: Curve, n: int, rng: np.random.Generator) -> Draw:
    """Cases of a curve, and test scores with their true probabilities."""
    s = curve.sample(rng, n)
    s_test = curve.sample(rng, _N_TEST)
    with np.errstate(divide="ignore"):  # votes of 0 and 1 have finite odds; others do not occur
        p = expit(curve.log_odds(s))
        truth = expit(curve.log_odds(s_test))
    return Draw(s, (rng.random(n) < p).astype(np.float64), s_test, truth, curve.probability)


@lru_cache(maxsize=2)
def _scores(data: str, task: str, model: str, part: int) -> tuple[Array, Array, Array, Array, bool]:
    """Scores and labels of the pool, scores and truth of the test cases, from the cache or anew."""

    def make() -> dict[str, Any]:
        X, y, X_pool, y_pool, X_test, truth = _cases(data, task, part)
        with warnings.catch_warnings(action="ignore"):  # an early stop is part of the setting
            fitted = MODELS[model]().fit(X, y)
        probability = hasattr(fitted, "predict_proba")
        s, s_test = (
            fitted.predict_proba(Z)[:, 1] if probability else fitted.decision_function(Z)
            for Z in (X_pool, X_test)
        )
        return {"probability": probability, "s": s, "y": y_pool, "s_test": s_test, "truth": truth}

    found = cached(f"{data}, {task}, {model}, {part}", make)
    s, y, s_test, truth = (found[name] for name in ("s", "y", "s_test", "truth"))
    return s, y, s_test, truth, bool(found["probability"])


def cached(name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The arrays of that name from the user's cache, or made and put there.

    The folder is to be emptied when the classifiers change.
    """
    path = cache_folder() / "scores" / f"{name}.npz"
    if path.exists():
        with np.load(path) as stored:
            return dict(stored)
    found = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as file:
        np.savez(file, **found)
    os.replace(file.name, path)  # whole, or not at all
    return found


def _cases(data: str, task: str, part: int) -> tuple[Array, ...]:
    """Inputs and labels to train on, to calibrate on, and to test on."""
    if kind(data) == "table":
        return _table(data)
    if kind(data) == "small":
        load, n_train, n_pool = SMALL[data]
        X, labels = load(return_X_y=True)
        y = (labels % 2 == 1).astype(np.float64)  # odd digits; of breast cancers the benign
        return tables.split(X, y, (n_train, n_pool), part)
    if kind(data) == "real":
        X, labels = tables.load(_REAL[data])
        return tables.split(X, labels.astype(np.float64), _REAL[data].sizes, part)
    X, y, X_test, y_test = images(data)
    y, y_test = ((z % 2 == 1) if task == "odd" else (z == int(task)) for z in (y, y_test))
    y = y.astype(np.float64)
    y_test = y_test.astype(np.float64)
    return X[:_N_TRAIN], y[:_N_TRAIN], X[_N_TRAIN:], y[_N_TRAIN:], X_test, y_test


@lru_cache(maxsize=1)
def images(data: str) -> tuple[Array, Array, Array, Array]:
    """Grey values from 0 to 1 and classes: the training images in random order, the test images."""
    parts: list[Array] = []
    for split in ("train", "test"):
        images, labels = load_images(data, split)
        rows = np.arange(len(images))
        if split == "train":
            rows = np.random.default_rng(0).permutation(rows)
        parts += [images[rows].reshape(len(images), -1) / 255.0, labels[rows].astype(np.float64)]
    return parts[0], parts[1], parts[2], parts[3]


@lru_cache(maxsize=1)
def _table(name: str) -> tuple[Array, ...]:
    """Ten inputs, and labels with log odds that are sums of bends and of products."""
    rng = np.random.default_rng(TABLES.index(name))
    shape = (_N_TRAIN + _N_POOL + _N_TEST, _N_INPUTS)
    if name == "additive":
        X = rng.random(shape)
        bends = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
        odds = (bends + 10 * X[:, 3] + 5 * X[:, 4] - 14.4) / 2.5
    elif name == "interactions":
        X = rng.normal(size=shape)
        odds = -4.4 + 1.5 * X[:, 0] * X[:, 1] + X[:, 2] - np.abs(X[:, 3]) + 0.8 * X[:, 4]
    else:
        X = rng.exponential(size=shape) - 1
        odds = -7.0 + X[:, 0] + 0.7 * X[:, 1] + 0.6 * X[:, 2] * X[:, 3]
    p = expit(odds)
    y = (rng.random(len(p)) < p).astype(np.float64)
    a = _N_TRAIN
    b = _N_TRAIN + _N_POOL
    return X[:a], y[:a], X[a:b], y[a:b], X[b:], p[b:]
