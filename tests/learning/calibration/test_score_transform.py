"""Tests of the transform from scores to log odds, by scipy's optimiser and by hand."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, ndtri
from sklearn.exceptions import ConvergenceWarning

from bayesloss.learning.calibration.score_transform import (
    LogTails,
    ScoreTransform,
    fit_platt,
    last_log_odds,
)
from bayesloss.learning.data.rows import Rows


def cases(n=300, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(2, 3, n)
    return (
        z,
        (rng.random(n) < expit(0.7 * z - 1)).astype(float),
        rng.integers(1, 4, n).astype(float),
    )


def platt(z, y, weight):
    return fit_platt(Rows(z, y, weight), np.array([z.min(), z.max()]))


def transform(scores, y, weight, probabilities=False):
    return ScoreTransform.fit(Rows(scores, y, weight), probabilities)


def test_the_sigmoid_maximises_platts_likelihood():
    z, y, weight = cases()
    positive = weight @ y
    negative = weight @ (1 - y)
    target = np.where(y == 1, (positive + 1) / (positive + 2), 1 / (negative + 2))

    def loss(theta):
        nu = theta[0] + theta[1] * z
        return weight @ (np.logaddexp(0, nu) - target * nu)

    best = minimize(loss, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10})
    found = platt(z, y, weight)
    offset = found.level - found.slope * found.middle
    np.testing.assert_allclose([offset, found.slope], best.x, atol=1e-5)
    assert found.log_likelihood == pytest.approx(-best.fun, abs=1e-8)


def test_the_error_is_that_of_a_slope_that_is_not_there():
    rng = np.random.default_rng(0)
    z = rng.normal(0, 3, 500)
    slopes = []
    for _ in range(300):
        found = platt(z, (rng.random(500) < 0.3).astype(float), np.ones(500))
        slopes.append(found.slope)
    # A standard deviation of 300 values is known to 4 %.
    assert found.error == pytest.approx(np.std(slopes), rel=0.15)
    # The inverse root of Fisher's information, where the scores' middle is far from their mean.
    z, y, weight = cases()
    z = np.exp(z)
    target = np.where(y == 1, (weight @ y + 1) / (weight @ y + 2), 1 / (weight @ (1 - y) + 2))
    rate = np.average(target, weights=weight)
    n = weight.sum()
    variance = np.average((z - np.average(z, weights=weight)) ** 2, weights=weight)
    expected = 1 / np.sqrt(n * rate * (1 - rate) * variance)
    assert platt(z, y, weight).error == pytest.approx(expected, rel=1e-12)


def test_well_spread_scores_keep_their_straight_line():
    z, y, weight = cases()
    found = transform(z, y, weight)
    sigmoid = platt(z, y, weight)
    np.testing.assert_allclose(
        found(z), sigmoid.level + sigmoid.slope * (z - sigmoid.middle), rtol=1e-12
    )


def test_it_increases_strictly_from_one_infinity_to_the_other():
    z, y, weight = cases()
    z[:40] = -np.inf
    z[40:60] = np.inf
    found = transform(z, y, weight)
    inner = z[np.isfinite(z)]
    grid = np.concatenate([[-np.inf, -1e6, -1e3], np.linspace(-30, 30, 601), [1e3, 1e6, np.inf]])
    values = found(grid)
    assert np.isfinite(values).all() and (np.diff(values) > 0).all()
    # The end: the line through the ends of a normal quantile plot, at the middle of the mass.
    below = weight[:40].sum() / weight.sum()
    above = weight[40:60].sum() / weight.sum()
    ends = ndtri([below, 1 - above])
    rate = (inner.max() - inner.min()) / (ends[1] - ends[0])
    bottom = inner.min() + rate * (ndtri(below / 2) - ends[0])
    assert found.finite(np.array([-np.inf]))[0] == pytest.approx(bottom)


def test_a_slope_that_runs_the_wrong_way_is_made_small_and_positive():
    z, y, weight = cases()
    found = transform(-z, y, weight)
    assert found.sigmoid.slope < 0 < found.sigmoid.upward == 0.5 * found.sigmoid.error
    middle = np.array([np.average(-z, weights=weight)])
    assert found(middle)[0] == pytest.approx(platt(-z, y, weight).level)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_last_log_odds_are_halfway_from_0_and_1_to_their_neighbours(dtype):
    """With numbers of the format as fractions, and a logarithm of 800 digits."""
    expected = []
    for value in (0, 1):
        p = (value + Fraction(float(np.nextafter(dtype(value), dtype(0.5))))) / 2
        with localcontext(prec=800):
            expected.append(float((Decimal(p.numerator) / Decimal((1 - p).numerator)).ln()))
    np.testing.assert_allclose(last_log_odds(dtype), expected, rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_later_0_or_1_counts_as_the_last_number_of_its_format(dtype):
    """The same transform, learned from log odds, at log odds that end where the format does."""
    z, y, weight = cases()
    p = transform(expit(z), y, weight, probabilities=True)
    odds = transform(z, y, weight)
    ends = {np.float32: (-150, -25), np.float64: (-1075, -54)}[dtype]  # as powers of two
    expected = odds(np.log(2) * np.array([ends[0], -ends[1]]))
    np.testing.assert_allclose(p(np.array([0, 1], dtype)), expected, rtol=1e-6)
    last = np.array([0, np.nextafter(dtype(0), dtype(1)), np.nextafter(dtype(1), dtype(0)), 1])
    grid = np.sort(np.concatenate([last.astype(dtype), expit(z).astype(dtype)]))
    assert (np.diff(p(np.unique(grid))) > 0).all()


def test_a_later_0_has_its_place_where_only_ones_were_seen():
    z, y, weight = cases()
    z[:40] = np.inf
    found = transform(expit(z), y, weight, probabilities=True)
    values = found(np.array([0.0, 5e-324, 1e-300, 0.5, 1.0]))
    assert np.isfinite(values).all() and (np.diff(values) > 0).all()
    # The end above is that of the ones which were seen: a float's end is farther out.
    assert found.finite(np.array([np.inf]), *last_log_odds(np.float64))[0] == found.finite.top < 37


def test_later_infinite_scores_of_any_scale_are_farther_out_than_finite_ones():
    z, y, weight = cases()
    ends = []
    for unit in (1e-300, 1e-9, 1.0, 1e9, 1e150, 1e299):
        found = transform(unit * z, y, weight)
        values = found(np.array([-np.inf, -1e6 * unit, 0, 1e6 * unit, np.inf]))
        assert np.isfinite(values).all() and (np.diff(values) > 0).all()
        ends.append(values[[0, -1]])
    # Scores of 1e299 end at the format's end, and not at 1e150 of their ranges.
    np.testing.assert_allclose(ends[:-1], np.tile(ends[0], (5, 1)), rtol=1e-6)


def test_where_one_end_has_no_infinite_scores_half_a_case_is_beyond():
    """The normal quantile plot's line: from the middle of the first case to the mass at the top."""
    z, y, weight = cases(n=40)
    z[:5] = np.inf
    found = transform(z, y, weight)
    inner = z[5:]
    above = weight[:5].sum() / weight.sum()
    ends = ndtri([0.5 / weight.sum(), 1 - above])
    rate = (inner.max() - inner.min()) / (ends[1] - ends[0])
    top = inner.max() + rate * (ndtri(1 - above / 2) - ends[1])
    assert found.finite.top == pytest.approx(top, rel=1e-12)
    assert found.finite.bottom == -np.inf
    # What votes has at least the unit slope: scores that hardly differ leave room beyond them.
    found = transform(1e-6 * z, y, weight)
    assert found.finite.top == pytest.approx(1e-6 * inner.max() + ndtri(1 - above / 2) - ends[1])


def test_the_range_is_without_a_hundredth_of_the_cases_at_either_end():
    """Of cases at 0 to 999 those from 9 to 989 stay; and half of that range on either side."""
    values = np.random.default_rng(0).permutation(1000).astype(float)
    tails = LogTails.fit(values, np.ones(1000))
    assert (tails.low, tails.high, tails.width) == (9 - 490, 989 + 490, 980)
    # A case that counts as 30 makes up more than a hundredth of 1,029 by itself.
    weight = np.where(values == 0, 30.0, 1.0)
    assert LogTails.fit(values, weight).width == 989 - 0


def test_tails_are_logarithms_beyond_half_the_width_on_either_side():
    """Of all but a hundredth at either end, by weight; value and slope go on smoothly."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=500)
    weight = rng.integers(1, 4, 500).astype(float)
    y = (rng.random(500) < 0.5).astype(float)
    tails = transform(values, y, weight).tails  # of normal values no other is learned
    copies = np.sort(np.repeat(values, weight.astype(int)))
    low = copies[int(0.01 * len(copies))]
    high = copies[int(0.99 * len(copies))]
    width = high - low
    for x in (-50.0, low - 0.6 * width, low, 0.0, high + 0.49 * width, high + 2 * width):
        end = np.clip(x, low - width / 2, high + width / 2)
        expected = end + np.sign(x - end) * width * np.log(1 + abs(x - end) / width)
        for others in ([], [0.0]):
            found = tails(np.array([x, *others]))
            np.testing.assert_allclose(found, [expected, *others], rtol=1e-12)


def test_scores_that_are_all_equal_tell_the_share_alone():
    """Then the slope is 0, and nothing is known of it: the transform's is 1."""
    y = np.array([0.0, 1, 1, 1])
    weight = np.array([2.0, 1, 1, 1])
    found = platt(np.full(4, 7.0), y, weight)
    target = (3 * 4 / 5 + 2 * 1 / 4) / 5  # Platt's, by weight
    assert found.level == pytest.approx(np.log(target / (1 - target)))
    assert (found.slope, found.error) == (0.0, np.inf)
    entropy = target * np.log(target) + (1 - target) * np.log(1 - target)
    assert found.log_likelihood == pytest.approx(5 * entropy)
    assert transform(np.full(4, 7.0), y, weight).sigmoid.upward == 1.0


def test_newton_steps_that_do_not_suffice_are_told(monkeypatch):
    monkeypatch.setattr(f"{fit_platt.__module__}._NEWTON_STEPS", 1)
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 Newton steps"):
        platt(*cases())
