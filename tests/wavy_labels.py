"""Labels that follow a wave of their input, for the tests of both classifiers."""

import numpy as np


def toy(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, 1))
    return X, np.where(rng.uniform(size=n) < 0.5 + 0.4 * np.sin(6 * X[:, 0]), "b", "a")
