import numpy as np
import pytest
import torch

from bayesloss.kernels import SquaredExponential
from bayesloss.learning.sources.nystrom import NystromBasis
from bayesloss_book.learning import nystrom as appendix


def test_mercer_sum_of_the_exact_basis_is_the_kernel():
    exact = appendix.HermiteBasis(a=1.7, b=0.8, s=0.9, n_basis=40)
    x = np.linspace(-1.5, 1.5, 7)
    phi = exact.basis(x)
    expected = 0.8 * np.exp(-0.85 * np.subtract.outer(x, x) ** 2)
    np.testing.assert_allclose((phi * exact.eigenvalues) @ phi.T, expected, atol=1e-6)


def test_operations_counts():
    x = torch.ones((3, 4))
    assert appendix.operations(lambda: x + 1) == 12
    assert appendix.operations(lambda: x @ x.T) == 3 * 3 * 4
    assert appendix.operations(lambda: x.T) == 0


def test_prior_mean_is_the_trace():
    points = torch.linspace(-1.2, 1.2, 5).double()
    x = torch.linspace(0, 1, 7).double()
    basis = NystromBasis(SquaredExponential(a=9.0), points)
    trace = (basis.psi(x).diagonal(dim1=1, dim2=2) * basis.eigenvalues).sum()
    got = appendix.prior_mean_sum(torch.tensor(9.0).double(), points, x)
    assert float(got) == pytest.approx(float(trace), rel=1e-10)


def test_actions_of_new_smoothness_agree():
    actions = appendix.new_smoothness(20, 8)
    np.testing.assert_allclose(actions["Nyström"](), actions["Nyström on a grid"](), rtol=1e-7)
