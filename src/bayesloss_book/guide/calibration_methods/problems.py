"""Binary problems to compare methods on: simulated with a known link, embedded sets, images."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split

from bayesloss_book import Array
from bayesloss_book.data.data_sets import IMAGE_DATASETS
from bayesloss_book.data.image_sets import inputs

LINKS = ("logistic", "asymmetric", "kinked", "heavy-tailed")
INPUTS = ("Gaussian", "skewed")
EMBEDDED = {
    "breast cancer": ("malignant", load_breast_cancer, (0,)),
    "digits": ("odd", load_digits, (1, 3, 5, 7, 9)),
    "wine": ("second cultivar", load_wine, (1,)),
    "iris": ("virginica", load_iris, (2,)),
}
KINDS = {
    **dict.fromkeys(LINKS, "simulated"),
    **dict.fromkeys(EMBEDDED, "embedded"),
    **dict.fromkeys(IMAGE_DATASETS, "images"),
}
IMAGE_TASKS = ("3", "odd")
N_IMAGES = 3_000  # training images; a seed has images of its own, to train on and to test on

_N_INPUTS = 10
_N_TEST = 20_000  # simulated inputs, whose true probabilities are known
_N_TEST_IMAGES = 2_000
SCORES = {  # the mean and the standard deviation of the true scores
    "logistic": (0.0, 2.0),
    "asymmetric": (-0.5, 1.5),
    "kinked": (0.0, 2.0),
    "heavy-tailed": (0.0, 4.0),
}
_SLOPES = (0.3, 2.5)  # of the kinked link, left and right of 0


class BinaryProblem(NamedTuple):
    """Training data, test inputs, and what the test labels are drawn with."""

    X: Array  # (n, d)
    y: NDArray[np.bool_]  # (n,)
    X_test: Array  # (m, d)
    # (m,), the probabilities of the test labels where the data are simulated, otherwise the labels
    truth: Array
    weights: Array | None  # (d,), the true weights where the data are simulated


def log_odds(link: str, score: Array) -> tuple[Array, Array]:
    """The true log odds as a function of the score, with its slope, each of the scores' shape."""
    if link == "logistic":
        return score, np.ones_like(score)
    if link == "asymmetric":
        rate = np.exp(score)
        return rate + np.log(-np.expm1(-rate)), rate / -np.expm1(-rate)
    if link == "kinked":
        slope = np.where(score < 0, *_SLOPES)
        return slope * score, slope
    if link == "heavy-tailed":
        one = np.arctan2(1, -score) / np.pi
        zero = np.arctan2(1, score) / np.pi
        return np.log(one / zero), 1 / (np.pi * (1 + score**2) * one * zero)
    raise ValueError(f"expected a link of {LINKS}, got {link!r}")


@lru_cache(maxsize=2)  # the cells of one problem follow each other, and the first one loads it
def problem(data: str, task: str, size: int, seed: int) -> BinaryProblem:
    """The training and test data of a cell; images of different seeds are different images."""
    if KINDS[data] == "simulated":
        return _simulated(data, task, size, seed)
    return _embedded(data, seed) if KINDS[data] == "embedded" else _images(data, task, size, seed)


def _simulated(link: str, kind: str, size: int, seed: int) -> BinaryProblem:
    """Inputs of mean 0 and variance 1: normal, or exponential less 1."""
    rng = np.random.default_rng([LINKS.index(link), INPUTS.index(kind), size, seed])
    direction = rng.normal(size=_N_INPUTS)
    offset, scale = SCORES[link]
    weights = scale * direction / np.linalg.norm(direction)
    shape = (size + _N_TEST, _N_INPUTS)
    Z = rng.normal(size=shape) if kind == "Gaussian" else rng.exponential(size=shape) - 1
    p = expit(log_odds(link, offset + Z @ weights)[0])
    return BinaryProblem(Z[:size], rng.random(size) < p[:size], Z[size:], p[size:], weights)


def _embedded(name: str, seed: int) -> BinaryProblem:
    _, load, positive = EMBEDDED[name]
    X, labels = load(return_X_y=True)
    y = np.isin(labels, positive)
    X, X_test, y, y_test = train_test_split(X, y, train_size=2 / 3, stratify=y, random_state=seed)
    centre = X.mean(axis=0)
    spread = X.std(axis=0)
    spread[spread == 0] = 1.0  # a column that never varies stays as it is
    X = (X - centre) / spread
    X_test = (X_test - centre) / spread
    return BinaryProblem(X, y, X_test, y_test.astype(np.float64), None)


def _images(name: str, task: str, size: int, seed: int) -> BinaryProblem:
    X, labels, X_test, test_labels = _shuffled(name)
    train = slice(seed * size, (seed + 1) * size)
    test = slice(seed * _N_TEST_IMAGES, (seed + 1) * _N_TEST_IMAGES)
    if train.stop > len(X) or test.stop > len(X_test):
        raise ValueError(f"expected images of their own for each seed, got {size=} and {seed=}")

    def positive(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        return numbers % 2 == 1 if task == "odd" else numbers == int(task)

    truth = positive(test_labels[test]).astype(np.float64)
    return BinaryProblem(X[train], positive(labels[train]), X_test[test], truth, None)


@lru_cache(maxsize=1)
def _shuffled(name: str) -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]:
    """A third of the training images and all test images, in random order."""
    X, y, X_test, y_test = inputs(name, 20_000, "pixels", 0)
    order = np.random.default_rng(0).permutation(len(X_test))
    return X, y, X_test[order], y_test[order]
