"""Mixtures on one mode, where the evidence is known by importance sampling."""

import torch

from bayesloss import weigh_draws
from bayesloss.learning.evidence.variational import variational
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss_book.beyond.variational import several
from bayesloss_book.problems.source_problems import data_set, prior_and_likelihood

PROBLEM = prior_and_likelihood("classification", 4)
X, Y = data_set("classification", 20, 0)
JOINT = LogJoint.of(*PROBLEM, X, Y)
Q = variational(*PROBLEM, X, Y)


def test_one_gaussian_has_the_library_s_bound():
    value, error = several.Mixture(JOINT, Q, 1, 3, 0).bound(40_000)
    assert abs(value - Q.log_evidence) < 4 * error + 0.02  # the twin's share is itself a bound
    assert error < 0.01


def test_four_raise_it_and_stay_below_the_evidence():
    four = several.Mixture(JOINT, Q, 4, 5, 0)
    before, _ = four.bound(4000)
    four.climb(300, 64)
    value, error = four.bound(20_000)
    truth = weigh_draws(Q, X, Y, n_draws=100_000, generator=torch.Generator().manual_seed(0))
    assert value > before + 0.02
    assert Q.log_evidence + 3 * error < value < truth.log_evidence + 4 * (error + truth.error)


def test_an_experiment_has_three_problems_and_three_sizes():
    cells = several.cells()
    assert len(cells) == 9
    found = several.measure(**{**cells[0], "K": 2}, n_basis=8, d=3, n_steps=2)
    assert 0 <= found["left_out"] < 1
