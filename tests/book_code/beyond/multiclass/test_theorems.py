"""Slopes and curl by finite differences; the page has the link's inverse and the work."""

import numpy as np
import pytest

from bayesloss_book.beyond.multiclass import theorems

KINDS = ("one temperature", "a slope a class", "bent", "with a floor")


@pytest.mark.parametrize("kind", KINDS)
def test_slopes_and_curl_are_derivatives(kind):
    sources = theorems.sources_like(kind)
    h = 1e-6
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
