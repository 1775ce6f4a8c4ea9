"""Errors of the short cuts have the orders that the page states; operations are counted right."""

import math

import numpy as np
import pytest
import torch

from bayesloss_book.learning.linkgistic import costs
from bayesloss_book.learning.linkgistic.rounds import cancer, kinked, learn

SMALL = kinked(400, 0, n_test=10)


@pytest.fixture(scope="module")
def found():
    return learn(SMALL, rounds=1, C=10.0, n_basis=16)[-1]


@pytest.fixture(scope="module")
def draws(found):
    return found.posterior.sample(32, torch.Generator().manual_seed(0))


def labels():
    return torch.from_numpy(SMALL.y).double()


def test_tables_give_the_plain_recipe(found, draws):
    x = found.scores.clone().requires_grad_()
    prior = found.posterior.prior
    plain = costs.plain_expectation(prior, draws, x, labels())
    (slopes,) = torch.autograd.grad(plain, x)
    value, tabulated = costs.tabulated_expectation(prior, draws, found.scores, labels())
    assert float(value) == pytest.approx(float(plain.detach()), abs=1e-8)  # the tables' h^4
    torch.testing.assert_close(tabulated, slopes, rtol=0, atol=1e-4 * float(slopes.abs().max()))


def test_orders_of_the_tables(found, draws):
    """Sixteen and eight times less with twice the nodes, once these resolve the waves."""
    errors = costs.table_errors(found.posterior.prior, draws, (100, 200, 400))
    assert np.log2(errors["value"]).diff().iloc[1:].tolist() == pytest.approx([-4, -4], abs=0.2)
    assert np.log2(errors["slope"]).diff().iloc[1:].tolist() == pytest.approx([-3, -3], abs=0.2)


def test_order_of_the_grid(found):
    errors = costs.grid_errors(found, labels(), [256, 512, 1024, None])
    orders = np.log2(errors["mode"].iloc[:3]).diff().iloc[1:]
    assert orders.tolist() == pytest.approx([-2, -2], abs=0.4)
    assert errors["mode"].iloc[3] < 0.003  # a thousandth was asked for, up to a factor
    assert errors["spacing"].iloc[3] == pytest.approx(math.sqrt(0.012) / 400**0.25, rel=0.01)


def test_prepared_coordinates_need_fewer_steps():
    steps = costs.search_steps(cancer(0), C=1.0, tol=1e-5)
    assert 0 < steps["prepared"] < steps["raw"]


def test_operations_by_hand():
    """A product of (a, b) and (b, c) costs 2abc; draws, basis and inputs as given."""
    n = 50
    M = 8
    S = 3
    D = 4
    counts = costs.operations(n, M, S, D)
    q = 2 * n * M * M * S + 2 * n * D
    assert counts["Q"] == q
    assert counts["gradient"] == q + 2 * n * M * S + 2 * n * D
    assert counts["Hessian, assembled"] == 2 * n * M * M * 3
    assert counts["gradient, tables"] == 4 * n * D
    assert counts["Hessian, differentiated"] > M * 2 * n * M * M
