"""All ways to compute nu agree, and the stored times are whole."""

from pathlib import Path

import pytest
import torch

from bayesloss import ISGP, TrigonometricKernel
from bayesloss_book.learning.laplace import cost as source_cost
from bayesloss_book.stores.results import load_provenance, load_results

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"


@pytest.fixture(scope="module")
def stored():
    return load_results(RESULTS, "source_cost")


@pytest.mark.parametrize("n_basis", [4, 64])
def test_both_forms_give_one_source(n_basis):
    """The chunks of psi leave nothing out; n is no multiple of their length."""
    fast, slow = (
        source_cost.measure(method=method, n=1501, n_basis=n_basis, repeat=0)["mean"]
        for method in ("fast", "psi")
    )
    assert fast == pytest.approx(slow, rel=1e-10)


def test_newton_step_is_one():
    """Against the gradient and Hessian by automatic differentiation."""
    found = source_cost.measure(method="newton", n=50, n_basis=4, repeat=0)["mean"]
    kernel = TrigonometricKernel(a=1.2, c=0.25, n_basis=4)
    prior, x = ISGP(kernel), torch.linspace(-1, 1, 50, dtype=torch.float64)

    def log_joint(Gamma):
        nu = prior.source(x, Gamma)
        fit = torch.nn.functional.logsigmoid(torch.where(x > 0, nu, -nu)).sum()
        return fit - 0.5 * (prior.precision * Gamma**2).sum()

    w = torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    Gamma = torch.cat([w * kernel.eigenvalues.sqrt(), w.new_zeros(1)])
    slope = torch.func.grad(log_joint)(Gamma)
    expected = slope @ torch.linalg.solve(-torch.func.hessian(log_joint)(Gamma), slope) / 50
    assert found == pytest.approx(float(expected), rel=1e-8)


def test_stored_results_are_whole(stored):
    assert len(stored) == len(source_cost.cells())
    runs = load_provenance(RESULTS, "source_cost")["runs"]
    assert all(run["n_jobs"] == 1 for run in runs)


def test_stored_times_are_of_one_source(stored):
    """The forms agreed where both were measured."""
    means = stored[stored["method"] != "newton"].pivot_table(
        index=["n", "n_basis"], columns="method", values="mean"
    )
    both = means.dropna()
    assert len(both) > 5
    assert (both["fast"] / both["psi"] - 1).abs().max() < 1e-9


def test_figure(stored):
    figure = source_cost.draw_cost(stored)
    assert [len(axis.lines) for axis in figure.axes] == [3, 3]
