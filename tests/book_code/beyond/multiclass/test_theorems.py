"""The theorems' numbers, by finite differences and brute force."""

import numpy as np
import pytest

from bayesloss_book.beyond.multiclass import theorems

KINDS = ("one temperature", "a slope a class", "bent", "with a floor")


@pytest.mark.parametrize("kind", KINDS)
def test_slopes_and_curl_are_derivatives(kind):
    sources, h = theorems.sources_like(kind), 1e-6
    x = np.random.default_rng(0).normal(size=(5, 3))
    x -= x.mean(axis=1, keepdims=True)
    for source in sources:
        rise = (source.value(x + h) - source.value(x - h)) / (2 * h)
        np.testing.assert_allclose(source.slope(x), rise, rtol=1e-7)
    one, two = (
        (theorems.inverse_link(sources, x + h * e) - theorems.inverse_link(sources, x - h * e))
        / (2 * h)
        for e in theorems.PLANE
    )
    expected = one @ theorems.PLANE[1] - two @ theorems.PLANE[0]
    np.testing.assert_allclose(theorems.curl(sources, x), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_link_inverts(kind):
    sources = theorems.sources_like(kind)
    for p in np.random.default_rng(1).dirichlet(np.ones(3), 5):
        x = theorems.link(sources, p)
        assert abs(x.sum()) < 1e-9
        np.testing.assert_allclose(theorems.inverse_link(sources, x), p, rtol=0, atol=1e-10)


def test_work_is_a_difference_of_potentials_where_there_is_one():
    """softmax(1.5 x) is the gradient of log sum exp(1.5 x) / 1.5: closed curves come to nothing."""
    sources = theorems.sources_like("one temperature")
    corners = np.array([[2.0, -1.0, -1.0], [-1.0, 2.0, -1.0], [-2.0, 0.0, 2.0]])
    assert abs(theorems.work(sources, corners)) < 1e-12
    # The other way round the sign changes.
    bent = theorems.sources_like("bent")
    forth, back = theorems.work(bent, corners), theorems.work(bent, corners[::-1])
    assert abs(forth) > 1e-3
    assert back == pytest.approx(-forth)
