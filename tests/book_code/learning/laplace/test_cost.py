import pytest
import torch

from bayesloss import ISGP, TrigonometricKernel
from bayesloss_book.learning.laplace import cost as source_cost


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
    prior = ISGP(kernel)
    x = torch.linspace(-1, 1, 50, dtype=torch.float64)

    def log_joint(Gamma):
        nu = prior.source(x, Gamma)
        fit = torch.nn.functional.logsigmoid(torch.where(x > 0, nu, -nu)).sum()
        return fit - 0.5 * (prior.precision * Gamma**2).sum()

    w = torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    Gamma = torch.cat([w * kernel.eigenvalues.sqrt(), w.new_zeros(1)])
    Gamma.requires_grad_()
    (slope,) = torch.autograd.grad(log_joint(Gamma), Gamma, create_graph=True)
    hessian = torch.stack([torch.autograd.grad(s, Gamma, retain_graph=True)[0] for s in slope])
    expected = slope @ torch.linalg.solve(-hessian, slope) / 50
    assert found == pytest.approx(float(expected.detach()), rel=1e-8)
