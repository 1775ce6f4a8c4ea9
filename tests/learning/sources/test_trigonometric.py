"""Tests of the trigonometric kernel against its definition: the Mercer sum, and quadrature.

Independent routes: NumPy sums over the basis functions for the kernel, ``scipy.integrate.quad``
entry by entry for psi, Gauss-Legendre nodes for integrals of squares, finite differences.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from sklearn.exceptions import ConvergenceWarning
from torch.utils._python_dispatch import TorchDispatchMode

from bayesloss import GP, ISGP, Gaussian, TrigonometricKernel, laplace, maximise_evidence

EPS = np.finfo(float).eps
bounded = settings(max_examples=30, deadline=None, derandomize=True)
kernels = st.builds(
    TrigonometricKernel,
    a=st.floats(1.05, 8),
    c=st.floats(0.1, 2),
    n_basis=st.integers(1, 8).map(lambda half: 2 * half),
    b=st.one_of(st.none(), st.floats(0.1, 10)),
)


def phi(x, c, n_basis):
    """Eq. (14) as printed, in NumPy: (len(x), n_basis)."""
    angle = np.pi * c * np.multiply.outer(x, np.arange(1, n_basis // 2 + 1))
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=-1)


def weights_for(kernel, *shape, seed=0):
    noise = np.random.default_rng(seed).normal(size=(*shape, kernel.n_basis))
    return noise * np.sqrt(kernel.eigenvalues.numpy())


def quadrature(x, w, c):
    """The integral of (w^T phi)^2 from 0 to x by 200 Gauss-Legendre nodes.

    Exact to rounding for a trigonometric polynomial of fewer than about 60 waves on (0, x), and of
    full *relative* accuracy: the nodes scale with x and all terms are positive.
    """
    nodes, weights = np.polynomial.legendre.leggauss(200)
    inner = 0.5 * np.multiply.outer(x, nodes + 1)
    return 0.5 * x * (((phi(inner, c, w.shape[-1]) @ w) ** 2) @ weights)


class TestKernel:
    @bounded
    @given(kernels, st.floats(-3, 3), st.floats(-3, 3))
    def test_closed_form_is_the_mercer_sum(self, kernel, x, z):
        """Appendix E: the geometric series against the sum over the eigenfunctions (14)."""
        product = phi(x, kernel.c, kernel.n_basis) * phi(z, kernel.c, kernel.n_basis)
        expected = product @ kernel.eigenvalues.numpy()
        x, z = (torch.tensor(value, dtype=torch.float64) for value in (x, z))
        got = float(kernel(x, z))
        # Angles up to pi c M/2 |x| ~ 150 are rounded before their cosine is taken; k <= k(0, 0).
        assert got == pytest.approx(expected, abs=1e3 * EPS * float(kernel.variance))

    def test_eigenvalues(self):
        kernel = TrigonometricKernel(a=2.0, b=3.0, c=1.0, n_basis=6)
        assert kernel.eigenvalues.tolist() == [1.5, 0.75, 0.375] * 2

    @bounded
    @given(kernels)
    def test_prior_variance(self, kernel):
        """Eq. (15): k(0, 0) = b (1 - a^(-M/2)) / (a - 1), half the sum of all eigenvalues."""
        expected = kernel.eigenvalues.sum() / 2
        # a - 1 and 1 - a^(-M/2) lose at most a factor 1 / (a - 1) = 20 of the last digit.
        assert float(kernel.variance) == pytest.approx(float(expected), rel=100 * EPS)
        zero = torch.zeros((), dtype=torch.float64)
        assert float(kernel(zero, zero)) == pytest.approx(float(expected), rel=100 * EPS)

    @pytest.mark.parametrize("n_basis", [2, 8, 64])
    @pytest.mark.parametrize("a", [1.001, 1.5, 10.0])
    def test_without_b_the_prior_variance_is_one(self, a, n_basis):
        kernel = TrigonometricKernel(a=a, c=0.7, n_basis=n_basis)
        zero = torch.zeros((), dtype=torch.float64)
        assert float(kernel(zero, zero)) == pytest.approx(1, rel=1e-12)  # digits of a - 1 are lost
        assert float(kernel.eigenvalues.sum()) == pytest.approx(2, rel=1e-12)

    @bounded
    @given(kernels, st.floats(1e-6, 1e4))
    def test_scaled_to_a_given_prior_variance(self, kernel, variance):
        scaled = kernel.scaled(variance)
        # k(0, 0) by its own sum, with the digits that a - 1 loses.
        assert float(scaled.eigenvalues.sum()) / 2 == pytest.approx(variance, rel=1e-13)
        same = (float(kernel.a), kernel.c, kernel.n_basis)
        assert (float(scaled.a), scaled.c, scaled.n_basis) == same

    def test_broadcasts_to_a_positive_definite_gram_matrix(self):
        kernel = TrigonometricKernel(a=1.4, c=0.5, n_basis=10)
        x = torch.linspace(-2, 1.5, 8, dtype=torch.float64)  # fewer than basis functions, a period
        gram = kernel(x[:, None], x)
        assert gram.shape == (8, 8)
        assert float(torch.linalg.eigvalsh(gram)[0]) > 0

    @pytest.mark.parametrize("n_basis", [2, 6, 64])
    def test_basis(self, n_basis):
        kernel = TrigonometricKernel(a=2.0, c=0.8, n_basis=n_basis)
        x = np.random.default_rng(1).uniform(-4, 4, 20)
        # Products of up to M/2 unit complex numbers, each off by the rounding of an angle of 10.
        np.testing.assert_allclose(
            kernel.basis(torch.from_numpy(x)), phi(x, 0.8, n_basis), atol=1e3 * EPS
        )

    @pytest.mark.parametrize("b", [None, 2.0])
    def test_gradients_flow_through_a_and_b(self, b):
        """Automatic differentiation against finite differences, for all that depends on a and b."""
        x = torch.tensor([-0.7, 0.1, 1.3], dtype=torch.float64)

        def outputs(a, scale=None):
            kernel = TrigonometricKernel(a=a, b=scale, c=0.6, n_basis=6)
            return kernel.eigenvalues, kernel.variance, kernel(x[:, None], x)

        theta = [1.7] if b is None else [1.7, b]
        inputs = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in theta]
        assert torch.autograd.gradcheck(outputs, inputs)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"a": 1.0}, "expected a finite a > 1, got a=1.0"),
            ({"a": math.nan}, "expected a finite a > 1, got a=nan"),
            ({"a": torch.tensor(0.9)}, "expected a finite a > 1, got a=0.89"),
            ({"c": 0.0}, "expected a finite c > 0, got c=0.0"),
            ({"c": math.nan}, "expected a finite c > 0, got c=nan"),
            ({"n_basis": 7}, "expected n_basis even and at least 2, got n_basis=7"),
            ({"n_basis": 2.5}, "expected n_basis even and at least 2, got n_basis=2.5"),
            ({"b": 0.0}, "expected a finite b > 0, got b=0.0"),
            ({"b": math.nan}, "expected a finite b > 0, got b=nan"),
        ],
    )
    def test_bad_hyper_parameters_are_refused(self, settings, message):
        with pytest.raises(ValueError, match=message):
            TrigonometricKernel(**{"a": 2.0, "c": 1.0, "n_basis": 4} | settings)

    @pytest.mark.parametrize("method", ["basis", "integrals", "psi"])
    @pytest.mark.parametrize("shape", [(), (3, 1), (2, 3)])
    def test_inputs_of_a_wrong_shape_are_refused(self, method, shape):
        kernel = TrigonometricKernel(a=2.0, c=1.0, n_basis=4)
        x = torch.zeros(shape, dtype=torch.float64)
        for call in (
            getattr(kernel, method),
            lambda x: kernel.integrated_square(x, kernel.eigenvalues),
        ):
            with pytest.raises(ValueError, match=r"expected x of shape \(n,\), got \("):
                call(x)

    @pytest.mark.parametrize("method", ["basis", "integrals", "psi"])
    def test_whole_and_single_precision_inputs_lose_no_digits(self, method):
        """Integers are as good as floats; torch alone would take them in single precision."""
        kernel = TrigonometricKernel(a=2.0, c=0.3, n_basis=4)
        for x in (torch.tensor([-3, 0, 2]), torch.tensor([-1.5, 0.25], dtype=torch.float32)):
            got = getattr(kernel, method)(x)
            assert got.dtype == torch.float64
            assert torch.equal(got, getattr(kernel, method)(x.double()))


class TestPsi:
    c = 0.75
    kernel = TrigonometricKernel(a=1.6, c=c, n_basis=6)
    # Within one period, negative, at its end, and beyond 1/c = 1.33.
    x = np.array([1e-3, 1 / c, -1 / c, *np.random.default_rng(0).uniform(-4, 4, 6)])

    def test_every_entry_is_an_integral(self):
        """Eq. (9) and appendix E's closed forms (one index corrected) against ``quad``."""
        psi = self.kernel.psi(torch.from_numpy(self.x)).numpy()
        for row, x in zip(psi, self.x, strict=True):
            for i in range(6):
                for j in range(6):
                    product = lambda z, i=i, j=j: np.prod(phi(z, self.c, 6)[[i, j]])  # noqa: E731
                    expected, error = quad(product, 0, x, epsabs=1e-12, epsrel=1e-12)
                    assert error < 2e-11
                    assert row[i, j] == pytest.approx(expected, abs=1e-10)  # as the issue asks

    def test_integrals_keep_their_digits_near_zero(self):
        """S_k = x and D_k = k pi c x^2 / 2 to leading order: no cancellation, at any small x."""
        x = 1e-9
        h = self.kernel.integrals(torch.tensor([x], dtype=torch.float64))[0].numpy()
        k = np.arange(1, 7)
        # The next terms are smaller by (6 pi c x)^2 ~ 1e-16.
        np.testing.assert_allclose(h[1:7], x, rtol=20 * EPS)
        np.testing.assert_allclose(h[7:], k * np.pi * self.c * x**2 / 2, rtol=20 * EPS)


class TestIntegratedSquare:
    @pytest.mark.parametrize("n_basis", [2, 64, 256])
    @pytest.mark.parametrize("a", [1.01, 2.0])
    @pytest.mark.parametrize("size", [1e-9, 1e-4, 0.1, 1.5])
    def test_relative_accuracy_at_any_scale_of_x(self, n_basis, a, size):
        """Also at small x, where the entries of psi itself cancel; Gauss-Legendre loses nothing."""
        kernel = TrigonometricKernel(a=a, c=0.5, n_basis=n_basis)
        x = size * np.array([-1.0, -0.37, 0.2, 0.71])
        w = weights_for(kernel, seed=4)
        got = kernel.integrated_square(torch.from_numpy(x), torch.from_numpy(w))
        np.testing.assert_allclose(got, quadrature(x, w, 0.5), rtol=1e-10)

    def test_differentiable_in_x_and_w(self):
        kernel = TrigonometricKernel(a=1.5, c=0.5, n_basis=6)
        x = torch.tensor([-1.1, 0.0, 0.4, 2.5], dtype=torch.float64, requires_grad=True)
        w = torch.from_numpy(weights_for(kernel, 2)).requires_grad_()
        assert torch.autograd.gradcheck(kernel.integrated_square, (x, w))

    def test_no_points(self):
        kernel = TrigonometricKernel(a=1.3, c=0.5, n_basis=4)
        none = torch.zeros(0, dtype=torch.float64)
        assert kernel.integrated_square(none, torch.ones(3, 4, dtype=torch.float64)).shape == (3, 0)


class Largest(TorchDispatchMode):
    """Records the largest tensor that any operation of torch made."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                # An expanded tensor owns less than it shows.
                owned = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.numel = max(self.numel, min(tensor.numel(), owned))
        return out


@pytest.mark.parametrize("make", [ISGP, GP])
def test_the_packages_own_path_builds_no_array_of_n_by_m_by_m(make, monkeypatch):
    """Fit, moments, paths: psi is never called, no tensor is larger than twice 2^20 numbers."""

    def refuse(self, x):
        raise AssertionError("psi is the reference, not the package's path")

    monkeypatch.setattr(TrigonometricKernel, "psi", refuse)
    # n M^2 = 5e7, n (2M + 1) = 3e6
    n = 50_000
    n_basis = 32
    x = torch.linspace(-1, 1, n, dtype=torch.float64)
    y = torch.tanh(3 * x) + 0.1 * torch.sin(1e4 * x)
    prior = make(TrigonometricKernel(a=2.0, c=0.5, n_basis=n_basis))
    with Largest() as largest:
        posterior = laplace(prior, Gaussian(100.0), x, y)
        posterior.moments(x)
        prior.source(x, posterior.sample(2))
        prior.kernel.integrated_square(x, posterior.mode[:-1])
        with pytest.warns(ConvergenceWarning):
            maximise_evidence(prior, Gaussian(100.0), x, y, smoothness=(2.0,), max_iter=1)
    # A block of 2^20 numbers, which doubling the harmonics may overshoot by a factor of two.
    assert largest.numel <= 2 * 2**20


def test_no_draws_are_no_values():
    """Of the ISGP, whose series are summed in pieces: of none, and at no points."""
    prior = ISGP(TrigonometricKernel(a=2.0, c=0.25, n_basis=8))
    x = torch.zeros(3, dtype=torch.float64)
    assert prior.source(x, prior.sample(0)).shape == (0, 3)
    assert prior.source(x[:0], prior.sample(2)).shape == (2, 0)
