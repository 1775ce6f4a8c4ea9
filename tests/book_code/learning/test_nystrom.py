import numpy as np
import pytest
import torch
from scipy.integrate import quad

from bayesloss.kernels import SquaredExponential
from bayesloss.learning.sources.nystrom import NystromBasis
from bayesloss_book.learning import nystrom as appendix


@pytest.mark.parametrize(("x_i", "x_j", "t"), [(0.3, -0.5, 0.8), (0.1, 0.9, -0.7)])
def test_the_print_belongs_to_a_growing_kernel(x_i, x_j, t):
    def product(z, sign):
        return 0.64 * np.exp(sign * 0.6 * ((x_i - z) ** 2 + (x_j - z) ** 2))

    got = appendix.printed_product_integral(x_i, x_j, t, a=1.2, b=0.8)
    assert got == pytest.approx(quad(product, 0, t, args=(1,), epsabs=1e-13)[0], rel=1e-11)
    assert abs(got / quad(product, 0, t, args=(-1,))[0] - 1) > 0.1


class TestHermiteBasis:
    basis = appendix.HermiteBasis(a=1.7, b=0.8, s=0.9, n_basis=40)

    def test_mercer_sum_is_the_kernel(self):
        x = np.linspace(-1.5, 1.5, 7)
        phi = self.basis.basis(x)
        expected = 0.8 * np.exp(-0.85 * np.subtract.outer(x, x) ** 2)
        np.testing.assert_allclose((phi * self.basis.eigenvalues) @ phi.T, expected, atol=1e-6)

    def test_orthonormal_under_the_density(self):
        nodes, weights = np.polynomial.hermite_e.hermegauss(120)
        phi = self.basis.basis(0.9 * nodes)[:, :12]
        gram = phi.T @ (weights[:, None] / np.sqrt(2 * np.pi) * phi)
        np.testing.assert_allclose(gram, np.eye(12), atol=1e-12)

    @pytest.mark.parametrize("x", [-1.4, 0.0, 0.7, 2.0])
    def test_integrals(self, x):
        basis = appendix.HermiteBasis(a=1.7, b=0.8, s=0.9, n_basis=12)
        nodes, weights = np.polynomial.legendre.leggauss(120)
        phi = basis.basis(x / 2 * (nodes + 1))
        expected = phi.T @ (x / 2 * weights[:, None] * phi)
        np.testing.assert_allclose(basis.psi(x), expected, atol=1e-10)


def test_short_form_on_a_grid():
    basis = NystromBasis(SquaredExponential(a=2.0), torch.linspace(-1, 1, 6).double(), jitter=1e-4)
    w = torch.randn(6, generator=torch.Generator().manual_seed(0)).double()
    w = w * basis.eigenvalues.sqrt()
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)
    got = appendix.grid_integrated_square(basis.kernel, basis.points, basis.weights @ w, x)
    expected = [
        quad(lambda z: float(basis.basis(torch.tensor([z]).double())[0] @ w) ** 2, 0, end)[0]
        for end in x.tolist()
    ]
    # The points of torch.linspace are rounded to single precision, so no grid to the last digit.
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_operations_counts():
    x = torch.ones((3, 4))
    assert appendix.operations(lambda: x + 1) == 12
    assert appendix.operations(lambda: x @ x.T) == 3 * 3 * 4
    assert appendix.operations(lambda: x.T) == 0


def test_gradient_of_the_prior_mean():
    points, x = torch.linspace(-1.2, 1.2, 5).double(), torch.linspace(0, 1, 7).double()
    a = torch.tensor(9.0, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: appendix.prior_mean_sum(a, points, x), a)


def test_prior_mean_is_the_trace():
    points, x = torch.linspace(-1.2, 1.2, 5).double(), torch.linspace(0, 1, 7).double()
    basis = NystromBasis(SquaredExponential(a=9.0), points)
    trace = (basis.psi(x).diagonal(dim1=1, dim2=2) * basis.eigenvalues).sum()
    got = appendix.prior_mean_sum(torch.tensor(9.0).double(), points, x)
    assert float(got) == pytest.approx(float(trace), rel=1e-10)


def test_actions_of_new_smoothness_agree():
    actions = appendix.new_smoothness(20, 8)
    np.testing.assert_allclose(actions["Nyström"](), actions["Nyström on a grid"](), rtol=1e-7)
