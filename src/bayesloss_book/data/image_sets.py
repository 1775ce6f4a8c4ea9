"""Images as rows of numbers: the three large sets, and scikit-learn's digits for quick runs."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from bayesloss_book import Array
from bayesloss_book.data.data_sets import load_images

N_CLASSES = 10

_DIGITS_TRAIN = 1_200  # of scikit-learn's 1797 digits
_WHITE = {"digits": 16.0}  # the largest grey value, elsewhere 255


def inputs(
    data: str, size: int, scaling: str, seed: int
) -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]:
    """Training inputs (size, d) and labels, and the test's; subsets of one seed nest."""
    train, labels, test, test_labels = _images(data)
    if size > len(train):
        raise ValueError(f"expected at most {len(train)} training images of {data}, got {size}")
    chosen = np.random.default_rng(seed).permutation(len(train))[:size]
    X = train[chosen] / _WHITE.get(data, 255.0)
    X_test = test / _WHITE.get(data, 255.0)
    if scaling == "standardised":
        deviation = X.std(axis=0)
        deviation[deviation == 0] = 1.0  # a pixel that never varies stays as it is
        X = X / deviation
        X_test = X_test / deviation
    elif scaling != "pixels":
        raise ValueError(f"expected scaling pixels or standardised, got {scaling!r}")
    return X, labels[chosen], X_test, test_labels


def one_vs_rest(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each label is each of the ten classes: (n, 10) from (n,)."""
    return labels[:, None] == np.arange(N_CLASSES)


@cache
def _images(data: str) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
    """Training and test images as rows of grey values, with their labels."""
    if data == "digits":
        X, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(X))
        X = X[order]
        y = y[order].astype(np.int64)
        n = _DIGITS_TRAIN
        return X[:n], y[:n], X[n:], y[n:]
    parts: list[NDArray[Any]] = []
    for split in ("train", "test"):
        images, labels = load_images(data, split)
        parts += [images.reshape(len(images), -1), labels.astype(np.int64)]
    return parts[0], parts[1], parts[2], parts[3]
