"""The Nyström basis and its integrals: quadrature, algebra, and the definition of an eigenpair."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from bayesloss.kernels import SquaredExponential
from bayesloss.learning.sources.nystrom import NystromBasis, product_integrals

place = st.floats(-3, 3)
positive = st.floats(0.1, 5)


def tensor(values):
    return torch.as_tensor(values, dtype=torch.float64)


class TestProductIntegrals:
    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(place, place, place, positive, positive)
    def test_are_the_integrals(self, x_i, x_j, t, a, b):
        def product(z):
            return b**2 * math.exp(-a / 2 * ((x_i - z) ** 2 + (x_j - z) ** 2))

        middle = min(max((x_i + x_j) / 2, min(0, t)), max(0, t))  # where the integrand peaks
        expected = sum(
            quad(product, low, high, epsabs=1e-14, epsrel=1e-13)[0]
            for low, high in ((0, middle), (middle, t))
        )
        got = product_integrals(SquaredExponential(a=a, b=b), tensor([x_i, x_j]), tensor([t]))
        assert float(got[0, 0, 1]) == pytest.approx(expected, abs=1e-11 * b**2)
        assert torch.equal(got, got.mT)

    def test_digits_survive_in_the_tail(self):
        """Far to either side of 0 and x, the two error functions are 1 to all digits."""
        kernel = SquaredExponential(a=4.0)
        for side in (-1, 1):
            expected = quad(lambda z: math.exp(-4 * (5 - z) ** 2), 0, 1, epsabs=0)[0]
            got = product_integrals(kernel, tensor([5.0 * side]), tensor([1.0 * side]))
            assert float(got.squeeze()) == pytest.approx(side * expected, rel=1e-10, abs=0)

    @pytest.mark.parametrize("shape", [(), (2, 2)])
    def test_shapes(self, shape):
        kernel = SquaredExponential(a=1.0)
        with pytest.raises(ValueError, match=r"expected x of shape \(n,\), got \("):
            product_integrals(kernel, torch.zeros(2), torch.zeros(shape))
        with pytest.raises(ValueError, match=r"expected points of shape \(n,\), got \("):
            product_integrals(kernel, torch.zeros(shape), torch.zeros(2))


class TestNystromBasis:
    kernel = SquaredExponential(a=1.7, b=0.8)
    points = tensor([-1.9, -1.0, -0.4, 0.5, 1.2, 2.0])
    basis = NystromBasis(kernel, points, jitter=0)

    def test_eigen_equation_everywhere(self):
        for z in (-2.7, 0.1, 0.5, 3.0):
            k = 0.8 * np.exp(-0.85 * (self.points.numpy() - z) ** 2)
            average = k @ self.basis.basis(self.points).numpy() / 6
            expected = self.basis.basis(tensor([z]))[0] * self.basis.eigenvalues
            np.testing.assert_allclose(average, expected, atol=1e-12)

    def test_orthonormal_under_the_draws_and_largest_first(self):
        phi = self.basis.basis(self.points)
        np.testing.assert_allclose(phi.T @ phi / 6, np.eye(6), atol=1e-12)
        assert (self.basis.eigenvalues.diff() < 0).all()

    @pytest.mark.parametrize("b", [1e-6, 1e4])
    def test_jitter_is_a_part_of_the_kernels_level(self, b):
        one = NystromBasis(SquaredExponential(a=1.7), self.points, jitter=0.01)
        level = NystromBasis(SquaredExponential(a=1.7, b=b), self.points, jitter=0.01)
        np.testing.assert_allclose(level.eigenvalues, b * one.eigenvalues, rtol=1e-12)

    def test_prior_variance_at_each_place_is_what_the_points_tell(self):
        """The variance of the regression on f at the points: k(z, X) k(X, X)^-1 k(X, z)."""
        z = tensor([-0.4, 0.0, 3.0, 9.0])  # a point, between two, and beyond the last
        gram = 0.8 * np.exp(-0.85 * (self.points[:, None] - self.points).numpy() ** 2)
        cross = 0.8 * np.exp(-0.85 * (z[:, None] - self.points).numpy() ** 2)
        expected = (cross * np.linalg.solve(gram, cross.T).T).sum(axis=1)
        # The points' matrix has a condition number of 31: two digits of sixteen are lost.
        np.testing.assert_allclose(self.basis.variance_at(z), expected, rtol=1e-12, atol=1e-13)

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(st.floats(-5, 5), positive, st.integers(2, 12), st.integers(0, 10**6))
    def test_prior_variance_never_exceeds_the_kernel_s(self, z, a, n, seed):
        points = torch.randn(n, generator=torch.Generator().manual_seed(seed)).double()
        basis = NystromBasis(SquaredExponential(a=a), points)
        variance = float((basis.basis(tensor([z])) ** 2 * basis.eigenvalues).sum())
        assert -1e-12 <= variance <= 1 + 1e-7  # rounding of 1e-16 over a jitter of 1e-8

    def test_psi_is_the_integral(self):
        for x in (-1.3, 0.6, 2.5):
            got = self.basis.psi(tensor([x]))[0].numpy()
            for i in range(6):
                for j in range(6):

                    def product(z, i=i, j=j):
                        phi = self.basis.basis(tensor([z]))[0]
                        return float(phi[i] * phi[j])

                    expected = quad(product, 0, x, epsabs=1e-11, epsrel=1e-11)[0]
                    assert got[i, j] == pytest.approx(expected, abs=1e-10 * np.abs(got).max())

    @pytest.mark.parametrize(
        ("points", "jitter", "said"),
        [
            ([[0.0]], 1e-8, r"expected points of shape \(n,\), got \(1, 1\)"),
            ([], 1e-8, "expected finite points, at least one"),
            ([0.0, math.nan], 1e-8, "expected finite points, at least one"),
            ([0.0, 1.0], -1e-8, "expected a finite jitter >= 0, got jitter=-1e-08"),
            ([0.0, 1.0], math.nan, "expected a finite jitter >= 0, got jitter=nan"),
            ([0.5, 0.5], 0.0, "positive definite, got a least eigenvalue .* raise the jitter"),
        ],
    )
    def test_bad_input(self, points, jitter, said):
        with pytest.raises(ValueError, match=said):
            NystromBasis(self.kernel, tensor(points), jitter=jitter)
