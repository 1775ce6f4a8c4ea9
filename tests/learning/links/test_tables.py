"""Tests of the tables against the functions that they stand for, evaluated without them."""

import math

import pytest
import torch

from bayesloss import GP, ISGP, LogLoss, MatsushitaLoss, SkewedLogLoss, TrigonometricKernel
from bayesloss.learning.links.tables import (
    HermiteTable,
    expected_log_probabilities,
    moved,
    predictive_log_odds,
    table_nodes,
)

LOSSES = pytest.mark.parametrize("loss", [LogLoss(), MatsushitaLoss(), SkewedLogLoss(3)], ids=repr)
KINDS = pytest.mark.parametrize("kind", [ISGP, GP])


def linspace(low, high, n):
    return torch.linspace(low, high, n, dtype=torch.float64)


class TestHermiteTable:
    nodes = linspace(-2, 3, 11)

    def test_cubics_are_exact(self):
        """A cubic is determined by two values and two slopes."""
        table = HermiteTable(
            self.nodes,
            torch.stack([self.nodes**3, 1 - self.nodes]),
            torch.stack([3 * self.nodes**2, -torch.ones(11, dtype=torch.float64)]),
        )
        x = linspace(-2, 3, 101)
        torch.testing.assert_close(table(x), (x**3, 3 * x**2), rtol=0, atol=1e-13)
        rows = (torch.arange(101) % 2).long()
        value, slope = table(x, rows)
        torch.testing.assert_close(value, torch.where(rows == 1, 1 - x, x**3), rtol=0, atol=1e-13)
        torch.testing.assert_close(slope[1::2], -torch.ones(50, dtype=torch.float64))

    def test_error_is_as_stated(self):
        """At most h^4 / 384 times the largest fourth derivative, and near that for a sine."""
        x = linspace(-2, 3, 5001)
        table = HermiteTable(self.nodes, self.nodes.sin()[None], self.nodes.cos()[None])
        error = float((table(x)[0] - x.sin()).abs().max())
        assert 0.8 * 0.5**4 / 384 < error <= 0.5**4 / 384

    def test_straight_lines_outside(self):
        table = HermiteTable(self.nodes, self.nodes.exp()[None], self.nodes.exp()[None])
        value, slope = table(torch.tensor([-4.0, 5.0], dtype=torch.float64))
        ends = torch.tensor([math.exp(-2), math.exp(3)], dtype=torch.float64)
        torch.testing.assert_close(slope, ends)
        torch.testing.assert_close(value, torch.stack([-ends[0], 3 * ends[1]]))

    @pytest.mark.parametrize("end", [1.3, 2.0])
    def test_constant_beyond_ends(self, end):
        table = HermiteTable(self.nodes, self.nodes.exp()[None], self.nodes.exp()[None])
        x = linspace(-4, 5, 91)
        inside = x.abs() <= end
        value, slope = table.held(end)(x)
        torch.testing.assert_close(value, table(x.clamp(-end, end))[0], rtol=0, atol=0)
        torch.testing.assert_close(slope[inside], table(x)[1][inside], rtol=0, atol=0)
        assert not slope[~inside].any()

    def test_a_copy_for_a_device_is_the_same_function(self):
        table = HermiteTable(self.nodes, self.nodes.sin()[None], self.nodes.cos()[None])
        x = linspace(-3, 4, 20)
        torch.testing.assert_close(table.to(torch.device("cpu"))(x), table(x), rtol=0, atol=0)

    def test_copies_of_several_are_the_same_functions(self, second_device):
        """Of two lengths, sent as one tensor; one is held beyond an end."""
        few = linspace(-1, 1, 5)
        tables = [
            HermiteTable(self.nodes, self.nodes.sin()[None], self.nodes.cos()[None]),
            HermiteTable(few, few.exp()[None], few.exp()[None]).held(0.5),
        ]
        x = linspace(-3, 4, 20)
        with second_device() as device:
            found = [table(x.to(device.device)) for table in moved(tables, device.device)]
        assert device.waits["to the device"] == 1 + 2
        for (value, slope), table in zip(found, tables, strict=True):
            torch.testing.assert_close((value.held, slope.held), table(x), rtol=0, atol=0)


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
        w, nu_0 = Gamma[:, :-1], Gamma[:, -1:]
        if kind is ISGP:
            nu = nu_0 + torch.einsum("si,nij,sj->sn", w, prior.kernel.psi(x), w)
        else:
            nu = nu_0 + w @ prior.kernel.basis(x.clamp(-10, 10)).T
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
            scale = float(slope.abs().max())
            torch.testing.assert_close(
                table_slope[inside], slope[inside], rtol=0, atol=1e-4 * scale
            )

    def test_predictive_log_odds(self, kind, loss):
        prior, Gamma, _, u = self.brute_force(kind, loss)
        value, _ = predictive_log_odds(prior, loss, Gamma)(self.x)
        torch.testing.assert_close(torch.sigmoid(value), u.detach().mean(0), rtol=1e-6, atol=1e-7)


def test_log_loss_tables_differ_by_the_mean_of_nu():
    """log sigma(nu) - log sigma(-nu) = nu: one of the two tables would do for the log loss."""
    prior, Gamma = draws_of(ISGP)
    table = expected_log_probabilities(prior, LogLoss(), Gamma)
    nodes = table_nodes(prior)
    zero, one = (table(nodes, row)[0] for row in (0, 1))
    torch.testing.assert_close(one - zero, prior.source(nodes, Gamma).mean(0), rtol=1e-9, atol=1e-9)


def test_log_odds_keep_their_digits_in_the_tail():
    """Where the probability is within rounding of 1, the odds still grow."""
    prior, Gamma = draws_of(ISGP)
    Gamma = Gamma + 50 * torch.eye(17, dtype=torch.float64)[-1]  # nu_0
    odds, _ = predictive_log_odds(prior, LogLoss(), Gamma)(linspace(0, 10, 50))
    assert bool((torch.sigmoid(odds) == 1).all())
    assert bool((odds.diff() > 0).all())
