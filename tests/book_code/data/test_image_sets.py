import numpy as np
import pytest

from bayesloss_book.data.image_sets import inputs


def test_subsets_nest_and_the_test_set_stays():
    small = inputs("digits", 100, "pixels", 3)
    large = inputs("digits", 300, "pixels", 3)
    other = inputs("digits", 100, "pixels", 4)
    assert (large[0][:100] == small[0]).all() and (large[1][:100] == small[1]).all()
    assert not (other[0] == small[0]).all()
    assert (other[2] == large[2]).all() and (other[3] == large[3]).all()
    assert small[0].min() >= 0 and small[0].max() == 1


def test_standardised_pixels():
    X, _, X_test, _ = inputs("digits", 300, "standardised", 0)
    deviation = X.std(axis=0)
    np.testing.assert_allclose(deviation[deviation > 0], 1, rtol=1e-5, atol=1e-8)
    plain, _, plain_test, _ = inputs("digits", 300, "pixels", 0)
    varied = plain.std(axis=0) > 0
    ratio = plain_test[:, varied] / plain.std(axis=0)[varied]
    np.testing.assert_allclose(X_test[:, varied], ratio, rtol=1e-5, atol=1e-8)
    assert np.isfinite(X_test).all()


def test_what_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="at most 1200 training images of digits, got 1201"):
        inputs("digits", 1201, "pixels", 0)
    with pytest.raises(ValueError, match="got 'whitened'"):
        inputs("digits", 100, "whitened", 0)
