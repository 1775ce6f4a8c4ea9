import math

import pytest

from paperledger.stores.tolerances import Within, first_fitting


@pytest.mark.parametrize(
    ("within", "then", "now", "allowed"),
    [
        (Within(), 1.0, 1.0 + 1e-13, True),
        (Within(), 1.0, 1.0 + 1e-11, False),
        (Within(0.1), -10.0, -9.0, True),
        (Within(0.1), -10.0, -8.9, False),
        (Within(absolute=0.5), -0.2, 0.3, True),
        (Within(absolute=0.5), -0.2, 0.31, False),
        (Within(error="se"), 0.0, 25.0, True),  # 5 sqrt(3^2 + 4^2)
        (Within(error="se"), 25.1, 0.0, False),
        (Within(error="*/se"), 0.0, 12.5, True),  # 5 sqrt(1.5^2 + 2^2)
        (Within(error="*/se"), 0.0, 12.6, False),
        (Within(0.5), math.nan, math.nan, True),
        (Within(0.5), math.inf, math.inf, True),
        (Within(0.5), math.inf, 1e300, False),
        (Within(0.5), math.inf, -math.inf, False),
        (Within(0.5, absolute=9.0), 1.0, math.nan, False),
        (Within(0.5), True, False, False),
    ],
)
def test_how_much_may_differ(within, then, now, allowed):
    was = {"x": then, "se": 3.0, "x/se": 1.5}
    is_ = {"x": now, "se": 4.0, "x/se": 2.0}
    assert within.allows("x", was, is_) is allowed
    assert not within.allows("x", {"x": then}, {}) and not within.allows("x", {}, {"x": now})


def test_the_first_pattern_that_fits_counts():
    patterns = {"square {*4.0}": Within(0.1), "square *": Within(0.2)}
    assert first_fitting(patterns, "square", {"x": 4.0}, Within()) == Within(0.1)
    assert first_fitting(patterns, "square", {"x": 3.0}, Within()) == Within(0.2)
    assert first_fitting(patterns, "half", {"x": 4.0}, Within(0.3)) == Within(0.3)
