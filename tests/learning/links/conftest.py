"""Labels of three classes."""

import numpy as np
import pytest
import torch

from bayesloss.learning.weights.linear_scores import LinearScores

K = 3


def problem(n=300, d=4, C=2.0, seed=0, bend=1.0):
    """Labels of three classes; the weights of the data are 1, 2 and 3."""
    generator = np.random.default_rng(seed)
    z = generator.normal(size=(n, d)) * np.geomspace(1, 10, d) + 3
    x = (z - z.mean(0)) / np.geomspace(1, 10, d) @ generator.normal(size=(d, K))
    classes = (np.where(x < 0, x / bend, x * bend) + generator.gumbel(size=(n, K))).argmax(1)
    weight = generator.integers(1, 4, n).astype(float)
    labels = np.stack([classes == k for k in range(K)]).astype(np.int64)
    return LinearScores.of(*(torch.from_numpy(a) for a in (z, labels, weight)), C), classes


@pytest.fixture
def classes_of():
    return problem
