"""Appendix E's printed forms and the real ones: sums, Fourier transforms, quadrature, algebra."""

import matplotlib.pyplot as plt
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

    @some
    @given(st.floats(0.01, 5), size, distance)
    def test_doubled_angle_and_harmonics_make_it_right(self, excess, H, d):
        if abs(np.sin(np.pi * d / 2)) < 0.01:
            return  # where a is near 1 and d near 0 the printed quotient loses its digits
        got = appendix.printed_finite(2 * d, a=1 + excess, b=1.0, M=H)
        assert got.real == pytest.approx(plain_sum(d, 1 + excess, 1.0, H), abs=1e-8)
        assert abs(got.imag) < 1e-8

    def test_infinite_form_is_complex_and_misses_the_variance(self):
        assert abs(appendix.printed_infinite(0.5, a=1.5, b=1.0).imag) > 0.05
        at_zero = appendix.printed_infinite(0.0, a=1.5, b=1.0)
        assert at_zero == pytest.approx(0.5 * (1.5 / 0.5 + 1 / (1.5 * np.exp(1.5) - 1)))
        assert abs(at_zero - 1 / 0.5) > 0.3

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

    def test_the_print_differs_in_the_mixed_terms_alone(self):
        at = {"m": 2, "n": 5, "x": 0.7, "c": 0.9}
        for pair in ("sine", "cosine"):
            forms = [appendix.pair_integral(pair, **at, printed=p) for p in (True, False)]
            assert forms[0] == forms[1]
        forms = [appendix.pair_integral("mixed", **at, printed=p) for p in (True, False)]
        assert abs(forms[0] - forms[1]) > 0.01


@some
@given(st.integers(1, 8), st.integers(0, 10**6))
def test_self_convolution_gives_the_square(H, seed):
    """Against the values of f^2 themselves, on more points than there are coefficients."""
    rng = np.random.default_rng(seed)
    w, angle = rng.normal(size=2 * H), rng.uniform(-np.pi, np.pi, 50)
    m, k = np.arange(1, H + 1), np.arange(1, 2 * H + 1)
    f = np.cos(np.outer(angle, m)) @ w[:H] + np.sin(np.outer(angle, m)) @ w[H:]
    p = appendix.fourier_square(w)
    assert p.shape == (4 * H + 1,)
    square = p[0] + np.cos(np.outer(angle, k)) @ p[1 : 2 * H + 1]
    square += np.sin(np.outer(angle, k)) @ p[2 * H + 1 :]
    np.testing.assert_allclose(square, f**2, atol=1e-12 * (w @ w) * H)


def test_figures_draw():
    for figure in (
        appendix.draw_figure_4(a=1.2, b=1, c=0.5, harmonics=(1, 4), entries=2),
        appendix.draw_priors(n_samples=2, seed=0),
        appendix.draw_printed(a=1.4, b=0.7, M=10),
        appendix.draw_missing((16, 64, 100)),
    ):
        assert all(axis.lines for axis in figure.axes)
        plt.close(figure)


def test_prior_figure_shows_the_kernel_that_it_names():
    figure = appendix.draw_priors(n_samples=1, seed=0)
    slopes = [line.get_ydata()[-1] for line in (axis.lines[-1] for axis in figure.axes)]
    # Row b: the prior mean at x = 1 is k(0, 0), proportional to b; elsewhere it is 1.
    np.testing.assert_allclose(slopes[:3] + slopes[6:], 1.0)
    np.testing.assert_allclose(np.array(slopes[3:6]) / slopes[3], [1, 2, 4])
    plt.close(figure)
