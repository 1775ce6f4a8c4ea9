"""Appendix E's printed forms and the real ones: sums, Fourier transforms, quadrature, algebra."""

import numpy as np
import pytest
import sympy
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from bayesloss import TrigonometricKernel
from bayesloss_book.learning.trigonometric_kernel import appendix_e as appendix

some = settings(max_examples=100, deadline=None, derandomize=True)
smooth, size, distance = st.floats(1e-6, 9), st.integers(1, 32), st.floats(0, 4)


def plain_sum(d, a, b, H):
    """Sum of b a^-m cos(pi m d), in exactly rounded arithmetic."""
    import math

    return math.fsum(b * a**-m * math.cos(math.pi * m * d) for m in range(1, H + 1))


class TestClosedForm:
    @some
    @example(1e-6, 10, 2.00001)
    @given(smooth, size, distance)
    def test_is_the_sum(self, excess, H, d):
        got = appendix.closed_form(d, a=1 + excess, b=0.7, n_basis=2 * H)
        # The angles m pi d, up to 400, are rounded before their cosine is taken.
        assert got == pytest.approx(plain_sum(d, 1 + excess, 0.7, H), abs=1e-12 * H)

    @some
    @given(st.floats(1e-8, 1e-6), st.floats(0, 1e-6))
    def test_keeps_its_digits_near_the_corner(self, excess, d):
        """Near a = 1 and d = 0 the textbook form has none left."""
        got = appendix.closed_form(d, a=1 + excess, b=1.0, n_basis=32)
        assert got == pytest.approx(plain_sum(d, 1 + excess, 1.0, 16), rel=1e-7)

    @pytest.mark.parametrize("H", [1, 5, None])
    def test_fourier_coefficients_are_the_eigenvalues(self, H):
        """An independent route: analyse the closed form on a grid of one period."""
        a, b, n = 1.5, 0.8, 256
        d = 2 * np.arange(n) / n
        values = appendix.closed_form(d, a=a, b=b, n_basis=None if H is None else 2 * H)
        spectrum = np.fft.rfft(values) / n
        m = np.arange(1, 60)
        expected = np.where(m <= (H or 60), b / a**m, 0)
        np.testing.assert_allclose(2 * spectrum[1:60].real, expected, atol=1e-14)
        assert abs(spectrum[0]) < 1e-14  # no constant
        np.testing.assert_allclose(spectrum.imag, 0, atol=1e-14)

    def test_agrees_with_the_kernel_of_the_package(self):
        x, z = torch.rand((2, 50), generator=torch.Generator().manual_seed(0)).double() * 6 - 3
        kernel = TrigonometricKernel(a=1.3, b=0.4, c=0.7, n_basis=14)
        got = appendix.closed_form(0.7 * (x - z).abs().numpy(), a=1.3, b=0.4, n_basis=14)
        np.testing.assert_allclose(got, kernel(x, z).numpy(), atol=1e-13)


class TestPrintedKernel:
    @pytest.mark.parametrize("M", [1, 2, 3])
    def test_computer_algebra_finds_half_angles(self, M):
        """The print is the sum of M harmonics of half the frequency, identically in d, a and b."""
        u, a, b = sympy.symbols("u a b", positive=True)  # u = exp(i pi d / 2)
        cosine = (u + 1 / u) / 2
        numerator = b * (
            a * u ** (2 * M + 3)
            + a * u
            - u ** (2 * (M + 1))
            - u**2
            - 2 * a**M * u ** (M + 2) * (a * cosine - 1)
        )
        denominator = 2 * a**M * u ** (M + 1) * (a * u**2 - (a**2 + 1) * u + a)
        expected = sum(b / a**m * (u**m + u**-m) / 2 for m in range(1, M + 1))
        assert sympy.cancel(numerator / denominator - expected) == 0
        # And the transcription of it into NumPy is the same expression.
        d, at = 0.37, {a: 1.6, b: 0.9, u: sympy.exp(sympy.I * sympy.pi * 0.37 / 2)}
        value = complex((numerator / denominator).subs(at))
        assert appendix.printed_finite(d, a=1.6, b=0.9, M=M) == pytest.approx(value)

    def test_mercer_sum_is_the_definition(self):
        total = sum(2.0 * 1.7**-m * (np.cos(np.pi * m * 0.6 * (0.3 - 1.1))) for m in range(1, 5))
        assert appendix.mercer_sum(0.3, 1.1, a=1.7, b=2.0, c=0.6, n_basis=8) == pytest.approx(total)


PAIRS = {"sine": (np.sin, np.sin), "cosine": (np.cos, np.cos), "mixed": (np.sin, np.cos)}


class TestPairIntegral:
    @pytest.mark.parametrize("pair", PAIRS)
    def test_corrected_form_is_the_integral(self, pair):
        first, second = PAIRS[pair]
        rng = np.random.default_rng(0)
        for m, n in [(1, 1), (5, 5), *rng.integers(1, 9, (12, 2))]:
            c, x = rng.uniform(0.3, 1.5), rng.uniform(-2, 2)
            expected, _ = quad(
                lambda t, m=m, n=n, c=c: first(np.pi * m * c * t) * second(np.pi * n * c * t),
                *(0, x),
                epsabs=1e-13,
                epsrel=1e-13,
                limit=200,
            )
            got = appendix.pair_integral(pair, m, n, x, c=c, printed=False)
            assert got == pytest.approx(expected, abs=1e-11)

    def test_computer_algebra_on_the_mixed_term(self):
        """The derivative is the integrand with n in the second sine, and is not as printed."""
        x, c = sympy.symbols("x c", positive=True)
        m, n = 3, 5
        u, v = sympy.pi * c * m * x, sympy.pi * c * n * x
        gap = sympy.pi * c * m**2 - sympy.pi * c * n**2
        integrand = sympy.sin(u) * sympy.cos(v)
        for second, right in ((sympy.sin(v), True), (sympy.sin(u), False)):
            form = (-n * sympy.sin(u) * second - m * sympy.cos(u) * sympy.cos(v) + m) / gap
            assert (sympy.simplify(sympy.diff(form, x) - integrand) == 0) is right
