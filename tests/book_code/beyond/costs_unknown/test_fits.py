import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from bayesloss_book.beyond.costs_unknown import fits

Z = torch.tensor([-9.0, -4.0, -2.5, -1.0, 0.0, 3.0], dtype=torch.float64)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_the_bill_adds_up_decisions(label):
    def cost(log_r, z):
        yes = z > log_r
        paid = (np.exp(log_r) if yes else 0.0) if label == 0 else (0.0 if yes else 1.0)
        return paid * norm.pdf(log_r, fits.CENTRE, fits.SPREAD)

    ends = (fits.CENTRE - 10 * fits.SPREAD, fits.CENTRE + 12 * fits.SPREAD)
    for z, found in zip(Z.tolist(), fits.bill(Z, torch.full_like(Z, label)).tolist(), strict=True):
        inside = [z] if ends[0] < z < ends[1] else None
        expected = quad(cost, *ends, args=(z,), points=inside, epsabs=1e-12, limit=200)[0]
        assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["cost", "mixed"])
def test_slopes_are_those_of_the_density(name):
    loss = fits.LOSSES[name]
    y = torch.tensor([0.0, 1.0, 0.3, 1.0, 0.0, 1.0]).double()
    nu = Z.clone().requires_grad_()
    data = fits.Observations(torch.eye(6).double(), y, torch.arange(1.0, 7.0).double())
    first, second = loss.derivatives(nu, data)
    (by_hand,) = torch.autograd.grad(loss.log_density(nu, data), nu, create_graph=True)
    torch.testing.assert_close(first, by_hand)
    torch.testing.assert_close(second, torch.autograd.grad(by_hand.sum(), nu)[0])


def test_fits_find_what_the_loss_asks_for():
    """A line cannot follow a bent truth: each loss has it right where that loss looks."""
    x = torch.linspace(-6, 6, 4_001, dtype=torch.float64)
    truth = torch.where(x < 0, 0.4 * x, 3 * x)
    y = torch.sigmoid(truth)
    Z = torch.stack([torch.ones_like(x), x], dim=1)
    found = {}
    ridge = torch.full((2,), 1e-3, dtype=torch.float64)
    for name, loss in fits.LOSSES.items():
        z = Z @ fits.linear(Z, y, loss, torch.tensor([0.0, 1.0]).double(), ridge)
        found[name] = float(fits.bill(z, y).mean())
    assert found["cost"] < found["mixed"] < found["log"]
    by_link = {name: fits.link(x, y, loss, x) for name, loss in fits.LOSSES.items()}
    bills = {name: float(fits.bill(z, y).mean()) for name, z in by_link.items()}
    best = float(fits.bill(truth, y).mean())
    assert max(bills.values()) - best < 0.1 * (found["log"] - best)


def test_cells_and_what_they_store():
    cells = fits.cells()
    assert len(fits.REAL) == 10
    assert {c["data"] for c in cells if c["family"] == "inputs"} == set(fits.REAL)
    row = fits.measure(data="two steps", model="curve", family="sigmoid", n=100, n_draws=3)
    assert row["cost_gain"] == pytest.approx(row["log"] - row["cost"])
    assert row["cost_gain/error"] > 0


def test_summary_counts_sets_and_their_errors():
    gains = [{"cost_gain": 1.0 + k, "mixed_gain": -1.0 + k} for k in range(2)]
    errors = {"cost_gain/error": 0.1, "mixed_gain/error": 0.1}
    sets = [{"data": d, "family": "link", "n": 50, "log": 50.0} for d in "ab"]
    found = fits.summary(pd.DataFrame([s | g | errors for s, g in zip(sets, gains, strict=True)]))
    assert found.loc[("link", "cost", 50), ["mean", "error"]].tolist() == pytest.approx([3, 1])
    assert found.loc[("link", "mixed", 50), ["ahead", "behind", "sets"]].tolist() == [0, 1, 2]
