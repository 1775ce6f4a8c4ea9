"""The closed form near its corner and for any size; the page has the printed forms."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bayesloss_book.learning.trigonometric_kernel import appendix_e as appendix

some = settings(max_examples=100, deadline=None, derandomize=True)
smooth = st.floats(1e-6, 9)
size = st.integers(1, 32)
distance = st.floats(0, 4)


def plain_sum(d, a, b, H):
    """Sum of b a^-m cos(pi m d), in exactly rounded arithmetic."""
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
