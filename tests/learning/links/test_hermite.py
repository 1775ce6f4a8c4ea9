"""Tests of Hermite's interpolation against the functions that a table stands for."""

import math

import pytest
import torch

from bayesloss.learning.links.tables import HermiteTable, to_device


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
        assert 0.8 * 0.5**4 / 384 < float((table(x)[0] - x.sin()).abs().max()) <= 0.5**4 / 384

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
        value, slope = table.constant_beyond(end)(x)
        torch.testing.assert_close(value, table(x.clamp(-end, end))[0], rtol=0, atol=0)
        torch.testing.assert_close(slope[inside], table(x)[1][inside], rtol=0, atol=0)
        assert not slope[~inside].any()

    def test_copies_of_several_are_the_same_functions(self, second_device):
        """Of two lengths, sent as one tensor; one is held beyond an end."""
        few = linspace(-1, 1, 5)
        tables = [
            HermiteTable(self.nodes, self.nodes.sin()[None], self.nodes.cos()[None]),
            HermiteTable(few, few.exp()[None], few.exp()[None]).constant_beyond(0.5),
        ]
        x = linspace(-3, 4, 20)
        with second_device() as device:
            found = [table(x.to(device.device)) for table in to_device(tables, device.device)]
        assert device.used
        for (value, slope), table in zip(found, tables, strict=True):
            torch.testing.assert_close((value.held, slope.held), table(x), rtol=0, atol=0)
