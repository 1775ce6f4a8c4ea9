"""Loss-calibrated EP against brute force and all decisions."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from tilted_problems import CASES, COSTS, brute_force, problem

from bayesloss import CostMatrix
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.tilted_ep import tilted_ep
from bayesloss.calibrating.probit.whitened_gp import decide
from bayesloss.calibrating.utility import LogUtility
from bayesloss_book.beyond.loss_ep.loss_ep import loss_ep_probit
from bayesloss_book.references.probit_references import draw_data

UNEQUAL = CostMatrix(0.2, 1)


class _One:
    """A utility whose mean is the probability of +1 at one target, or 1 if there is none."""

    def __init__(self, features, noise, target):
        self.costs = CostMatrix(1e-300 if target is None else 1, 1)
        self.max_loss = 1.0
        one = slice(None) if target is None else slice(target, target + 1)
        self.features = features[:, one]
        self.noise = noise[:, one]
        self.decisions = torch.ones_like(self.noise)


def sets(n_sets=10, n_targets=40):
    prior, y, _ = draw_data(0.3, 3.0, n_sets, 1, seed=0)
    targets = torch.linspace(0, 1.2, n_targets, dtype=torch.float64).expand(n_sets, -1)
    return prior.features, y, *prior.project(targets)


def test_one_flip_changes_the_evidence_as_the_cavity_says():
    """The derivation: at the fixed point log Z(h) changes by the utility under the cavity."""
    features, y, target_features, noise = sets(4)
    found = loss_ep_probit(features, y, target_features, noise, UNEQUAL)
    h = found.decisions

    def utility(decisions):
        return LogUtility(target_features, noise, decisions, UNEQUAL, 1.0)

    tilted = tilted_ep(features, y, utility(h))
    for s in (3, 17, 34):
        flipped = h.clone()
        flipped[:, s] *= -1
        change = tilted_ep(features, y, utility(flipped)).log_evidence - tilted.log_evidence
        by_cavity, by_q = (
            utility(flipped).log_expectation(p.mean, p.covariance)[0]
            - utility(h).log_expectation(p.mean, p.covariance)[0]
            for p in (found.q, tilted)
        )
        # One target of forty: what is left is of the second order in 1/40.
        assert (by_cavity - change).abs().max() < 0.05 * change.abs().max()
        assert (by_q - change).abs().max() > 3 * (by_cavity - change).abs().max()


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize(("inputs", "labels"), CASES)
def test_all_decisions_on_five_targets(inputs, labels, costs):
    """The evidence of all 32, and the Bayes decisions by brute force."""
    features, y, utility = problem(inputs, labels, 2.0, costs)
    data = (utility.features, utility.noise)
    found = loss_ep_probit(features, y, *data, costs)
    assert found.converged.all()
    every = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 5)
    wide = [part.expand(32, *part.shape[1:]) for part in (features, y, *data)]
    term = LogUtility(wide[2], wide[3], every, costs, utility.max_loss)
    evidence = tilted_ep(*wide[:2], term).log_evidence
    assert torch.equal(found.decisions[0], every[evidence.argmax()])
    assert float(found.q.log_evidence) == pytest.approx(float(evidence.max()), abs=1e-8)
    # The exact utility of one decision: M - c_+ p(-1) or M - c_- p(+1).
    p = [brute_force(features, y, _One(*data, s), 30)[2] for s in range(5)]
    plain = brute_force(features, y, _One(*data, None), 30)[2]
    assert torch.equal(
        found.decisions[0] > 0, torch.tensor(np.exp(np.array(p) - plain) > costs.threshold)
    )


def test_decides_as_its_gaussian_says():
    features, y, target_features, noise = sets()
    found = loss_ep_probit(features, y, target_features, noise, UNEQUAL)
    again = decide(found.q, target_features, noise, UNEQUAL.probit_threshold)
    # A decision that swings at the boundary stays on the side of the larger evidence.
    assert int((again != found.decisions).sum()) <= 1
    assert found.q.held_out(features)[1].min() > 0


def test_a_huge_max_loss_decides_as_ep():
    features, y, target_features, noise = sets()
    found = loss_ep_probit(features, y, target_features, noise, UNEQUAL, max_loss=1e9)
    ep = expectation_propagation(features, y)
    assert torch.equal(
        found.decisions, decide(ep, target_features, noise, UNEQUAL.probit_threshold)
    )
    assert (found.q.mean - ep.mean).abs().max() < 1e-7


def test_too_few_rounds_are_told_and_a_small_M_is_refused():
    features, y, target_features, noise = sets(n_targets=1000)
    with pytest.warns(ConvergenceWarning, match="still rose after 1 rounds"):
        loss_ep_probit(features, y, target_features, noise, UNEQUAL, max_iter=1)
    with pytest.raises(ValueError, match="max_loss >="):
        loss_ep_probit(features, y, target_features, noise, UNEQUAL, max_loss=0.5)
