"""Tests of the tables against the functions that they stand for, evaluated without them."""

import math

import pytest
import torch
from textbook_joint import nu_of

from bayesloss import GP, ISGP, LogLoss, MatsushitaLoss, SkewedLogLoss, TrigonometricKernel
from bayesloss.learning.links.tables import (
    enough_nodes,
    expected_log_probabilities,
    predictive_log_odds,
    table_nodes,
)

LOSSES = pytest.mark.parametrize("loss", [LogLoss(), MatsushitaLoss(), SkewedLogLoss(3)], ids=repr)
KINDS = pytest.mark.parametrize("kind", [ISGP, GP])


def linspace(low, high, n):
    return torch.linspace(low, high, n, dtype=torch.float64)


def draws_of(kind, n_draws=20, a=1.2):
    """A prior with short waves, as the paper's, and some of its paths."""
    prior = kind(TrigonometricKernel(a=a, c=0.1, n_basis=16), gamma=0.5)
    return prior, prior.sample(n_draws, torch.Generator().manual_seed(3))


@LOSSES
@KINDS
class TestExpectations:
    x = linspace(-12, 12, 203)  # beyond the period's end at 10, and off the nodes

    def brute_force(self, kind, loss):
        """Every draw at every x by psi or the basis, without features or tables."""
        prior, Gamma = draws_of(kind)
        x = self.x.clone().requires_grad_()
        nu = nu_of(prior, x if kind is ISGP else x.clamp(-10, 10), Gamma)
        return prior, Gamma, x, loss.inverse_canonical_link(nu)

    def test_log_probabilities(self, kind, loss):
        prior, Gamma, x, u = self.brute_force(kind, loss)
        table = expected_log_probabilities(prior, loss, Gamma)
        inside = x.detach().abs() < 9.9
        for row, expected in enumerate([torch.log1p(-u).mean(0), u.log().mean(0)]):
            (slope,) = torch.autograd.grad(expected.sum(), x, retain_graph=True)
            value, table_slope = table(self.x, row)
            # f^2 has 16 harmonics: 50 nodes a wave, so (2 pi / 50)^4 / 384 of its amplitude.
            torch.testing.assert_close(value, expected.detach(), rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(
                table_slope[inside], slope[inside], rtol=0, atol=1e-4 * float(slope.abs().max())
            )

    def test_predictive_log_odds(self, kind, loss):
        prior, Gamma, _, u = self.brute_force(kind, loss)
        value, _ = predictive_log_odds(prior, loss, Gamma)(self.x)
        torch.testing.assert_close(torch.sigmoid(value), u.detach().mean(0), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("reach", "periods"), [(0.1, 1), (10.0, 1), (10.1, 2), (29.0, 3), (math.inf, 3)]
)
def test_tables_have_whole_periods_and_nodes_for_their_waves(reach, periods):
    """400 steps for each 10; or twelve for a wave of f^2, of which 16 make 20."""
    prior, _ = draws_of(ISGP)
    for nodes, steps in ((table_nodes(prior, reach), 400), (enough_nodes(prior, reach), 96)):
        expected = torch.arange(-periods * steps, periods * steps + 1).double() / steps
        torch.testing.assert_close(nodes, 10 * expected, rtol=0, atol=1e-12)


def test_log_odds_keep_their_digits_in_the_tail():
    prior, Gamma = draws_of(ISGP)
    Gamma = Gamma + 50 * torch.eye(17, dtype=torch.float64)[-1]  # nu_0
    odds, _ = predictive_log_odds(prior, LogLoss(), Gamma)(linspace(0, 10, 50))
    assert bool((torch.sigmoid(odds) == 1).all())
    assert bool((odds.diff() > 0).all())
