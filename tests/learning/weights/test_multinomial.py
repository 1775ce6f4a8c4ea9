"""Tests of multinomial regressions, against scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.multinomial import fit_softmax
from bayesloss.learning.weights.weight_search import fit_fixed_link
from bayesloss.proper_losses import LogLoss


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("C", [0.01, 2.0])
def test_weights_are_scikit_learns(C, started):
    """Begun at nought, or at regressions of each class against the rest."""
    generator = np.random.default_rng(0)
    Z = generator.normal(size=(300, 4)) * np.geomspace(1, 10, 4) + 3
    logits = (Z - 3) / np.geomspace(1, 10, 4) @ generator.normal(size=(4, 3))
    classes = (logits + generator.gumbel(size=(300, 3))).argmax(1)
    weight = generator.integers(1, 4, 300).astype(float)
    labels = torch.from_numpy(np.eye(3, dtype=np.int8)[classes].T.copy())
    data = LinearScores.of(torch.from_numpy(Z), labels, torch.from_numpy(weight), C)
    start = None
    if started:
        start, _ = fit_fixed_link(data, LogLoss(), 1e-7)
    fit, _ = fit_softmax(data, 1e-7, start)
    assert fit.settled(1e-7)
    other = LogisticRegression(C=C, tol=1e-10, max_iter=10_000)
    other.fit(Z - data.centre.numpy(), classes, weight)
    np.testing.assert_allclose(fit.beta, other.coef_, rtol=0, atol=2e-5)
    # scikit-learn's offsets are free up to a constant; so are ours unless a start is given.
    free = fit.offset.numpy()
    if not started:
        free = free - free.mean()
    np.testing.assert_allclose(free, other.intercept_ - other.intercept_.mean(), atol=2e-5)
