import math
from types import SimpleNamespace

import numpy as np
import torch

from bayesloss.learning.links.damped_steps import BestRound, DampedSteps, FullSteps

Z = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 3)))
WEIGHT = torch.from_numpy(np.random.default_rng(1).uniform(1, 2, 50))


def fit_at(beta):
    return SimpleNamespace(beta=beta, scores=beta @ Z.T, objective=torch.zeros(len(beta)))


def weights(seed, k=2):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(k, 3)))


def size(scores):
    return (scores**2 @ WEIGHT).sqrt()


def test_full_steps_go_where_fits_end():
    steps = FullSteps(weights(2), weights(2) @ Z.T, WEIGHT)
    assert steps.take([1], fit_at(weights(3)[1:]), 1).tolist() == [1]
    torch.testing.assert_close(steps.beta, torch.stack([weights(2)[0], weights(3)[1]]))
    torch.testing.assert_close(steps.scores, steps.beta @ Z.T)
    assert not steps.moved.isfinite().any()


def test_damped_steps_keep_the_size_of_scores_and_the_objective():
    """Scores s times as large with the penalty counted once, or as they are with it s^2 times."""
    steps = DampedSteps(weights(2), weights(2) @ Z.T, WEIGHT)
    before = size(steps.scores)
    factor = steps.take([0, 1], fit_at(3 * weights(4)), 1)
    torch.testing.assert_close(size(steps.scores), before)
    torch.testing.assert_close(steps.beta, 3 * factor[:, None] * weights(4))
    torch.testing.assert_close(steps.scores, steps.beta @ Z.T)
    torch.testing.assert_close(steps.strength * factor**2, torch.ones(2, dtype=torch.float64))


def test_steps_are_shorter_from_where_the_way_turns():
    """Between two points in turns: from the fourth round on two thirds of the way, then a half."""
    one, other = weights(5, 1), weights(6, 1)
    other *= size(one @ Z.T) / size(other @ Z.T)
    steps, fractions = DampedSteps(one.clone(), one @ Z.T, WEIGHT), []
    for number in range(1, 6):
        target = one if number % 2 == 0 else other
        before = steps.beta.clone()
        steps.take([0], fit_at(target), number)
        fractions.append(float((steps.beta - before).norm() / (target - before).norm()))
    np.testing.assert_allclose(fractions[:4], [1, 1, 1, 2 / 3], rtol=0.02)
    assert fractions[4] < 0.55


def test_weights_without_scores_stay_finite():
    steps = DampedSteps(torch.zeros((1, 3)).double(), torch.zeros((1, 50)).double(), WEIGHT)
    assert steps.take([0], fit_at(weights(1, 1)), 1).tolist() == [1]
    assert steps.moved.tolist() == [0]


def test_the_best_round_is_kept_and_worse_ones_are_counted():
    best = BestRound(-3.0)
    counts = []
    for evidence in (-10.0, -8.0, -10.0, -11.5, -12.0, -9.0, -7.5):
        best.look(evidence, lambda evidence=evidence: evidence)
        counts.append(best.n_worse)
    assert counts == [0, 0, 0, 1, 2, 0, 0]
    assert best.kept == best.evidence == -7.5
    rising = BestRound(0.5)  # here a rise by less than half a nat is none
    for evidence in (-math.inf, -10.0, -9.8, -9.7):
        rising.look(evidence, lambda: None)
    assert (rising.evidence, rising.n_worse) == (-9.7, 2)
