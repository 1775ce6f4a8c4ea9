"""Tests of the alternation, by evidences that are given."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import log_expit, log_softmax

from bayesloss.learning.links.alternation import CurveFit, Limits, alternate, mean_loss


class Weights:
    """Weights that count how often they moved."""

    settled = True
    total = 60.0

    def __init__(self):
        self.beta = torch.zeros((1, 1, 2))
        self.scores = torch.zeros((1, 1, 5))

    def held_out(self):
        return self.scores[0]

    def move(self, curves):
        self.beta += 1


def outcome(evidences, max_iter=30, tol=1e-9):
    given = iter(evidences)

    def fit_curves(held_out, scores):
        return CurveFit(None, next(given), np.zeros((1, 5)), None)

    return alternate(Weights(), fit_curves, Limits(tol=tol, max_iter=max_iter))


@pytest.mark.parametrize(
    ("evidences", "kept"),
    [
        ((-50.0, -49.8), 1),  # a rise of less than half a nat is the last
        ((-50.0, -50.3), 1),  # nobody can tell these apart: the latest
        ((-50.0, -50.7), 0),
        ((-50.0, -45.0, -44.0, -46.0), 2),
    ],
)
def test_a_small_rise_ends_rounds(evidences, kept):
    found = outcome(evidences)
    assert found.log_evidences == evidences
    assert found.best.fit.log_evidence == evidences[kept]
    assert float(found.best.beta[0, 0]) == kept  # its own weights, not the last
    assert found.unsettled == ()


def test_tol_counts_a_case():
    evidences = (-50.0, -45.0, -40.0, -39.9)
    found = outcome(evidences, tol=0.1)  # 6 nats
    assert found.log_evidences == evidences[:2]


def test_too_few_rounds_are_told():
    (told,) = outcome((-50.0, -45.0, -40.0), max_iter=2).unsettled
    assert "still gained 5 nats" in told


def test_round_0_alone_has_nothing_to_settle():
    found = outcome((-50.0,), max_iter=0)
    assert found.log_evidences == (-50.0,)
    assert found.unsettled == ()


@pytest.mark.parametrize("K", [1, 3])
def test_mean_loss(K):
    generator = np.random.default_rng(0)
    values = generator.normal(size=(K, 20))
    weight = generator.uniform(1, 2, 20)
    classes = generator.integers(0, max(K, 2), 20)
    labels = np.stack([classes == k for k in ([1] if K == 1 else range(K))]).astype(np.int8)
    data = SimpleNamespace(
        labels=torch.from_numpy(labels), weight=torch.from_numpy(weight), total=weight.sum()
    )
    if K == 1:
        log_p = log_expit((2 * classes - 1) * values[0])
    else:
        log_p = log_softmax(values, axis=0)[classes, np.arange(20)]
    assert mean_loss(values, data) == pytest.approx(-np.average(log_p, weights=weight))
