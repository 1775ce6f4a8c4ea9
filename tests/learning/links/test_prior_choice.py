"""Tests of the choice among priors against the evidence of each by itself."""

import pytest
import torch

from bayesloss import GP, TrigonometricKernel
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode
from bayesloss.learning.links.prior_choice import choose_prior


def joints_of(variances):
    """Of labels that change at zero: the variance of log odds is large in truth."""
    x = torch.linspace(-1, 1, 60, dtype=torch.float64)
    y = (x > 0).to(x.dtype)
    joints = {}
    for place, variance in enumerate(variances):
        prior = GP(TrigonometricKernel(a=2.0, c=0.5, n_basis=6).scaled(variance), gamma=1.0)
        data = Bernoulli().condense(prior.features, x, y)
        joints[place] = LogJoint(prior, Bernoulli(), data)
    return joints


def test_the_highest_evidence_wins_and_what_is_far_behind_is_out():
    joints = joints_of([20.0, 10.0, 0.01])
    start = torch.zeros(7, dtype=torch.float64)
    modes = {i: find_mode(joint, start) for i, joint in joints.items()}
    evidence = {i: float(joints[i].log_evidence(mode.Gamma)) for i, mode in modes.items()}
    best = max(evidence, key=lambda i: evidence[i])
    behind = max(evidence.values()) - min(evidence[0], evidence[1]) + 0.1
    assert min(evidence, key=lambda i: evidence[i]) == 2
    chosen, log_evidence, near = choose_prior(joints, {}, start, behind)
    assert chosen == best
    assert log_evidence == pytest.approx(evidence[best], abs=1e-4)
    assert sorted(near) == [0, 1]
    for i, mode in near.items():
        torch.testing.assert_close(mode.Gamma, modes[i].Gamma, rtol=1e-3, atol=1e-3)
    known = {i: mode.Gamma for i, mode in near.items()}
    again, _, modes = choose_prior({i: joints[i] for i in near}, known, start, behind)
    assert again == best
    assert modes[best].n_iter == 0  # searches begin where they ended


def test_without_a_mode_there_is_no_choice():
    class Saddle(LogJoint):
        """Its curvature is never positive."""

        def derivatives(self, Gamma):
            return 0 * Gamma, -torch.eye(len(Gamma), dtype=Gamma.dtype)

    joint = joints_of([1.0])[0]
    saddle = Saddle(joint.prior, joint.likelihood, joint.data)
    with pytest.raises(ValueError, match="expected a mode under one of 1 priors, got none"):
        choose_prior({0: saddle}, {}, torch.zeros(7, dtype=torch.float64), 1.0)
