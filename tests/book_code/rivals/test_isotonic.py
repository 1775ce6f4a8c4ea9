"""Tests of isotonic regression with bounded slopes: a linear programme certifies the optimum."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import expit, logit
from sklearn.exceptions import ConvergenceWarning
from sklearn.isotonic import isotonic_regression

from bayesloss_book.rivals.isotonic import bregman_isotonic, lipschitz_isotonic

many = settings(max_examples=60, deadline=None, derandomize=True)

# The method ends with products of slack and multiplier of 1e-18. Where a constraint just touches,
# both are 1e-9 or so: that is how far a value may be off, times the number of such neighbours.
ATOL = 1e-7


def gap(z, p, slope, lower, upper):
    """How much a convex objective with this gradient at p could fall, at most, over all q allowed.

    F(q) >= F(p) + slope . (q - p): a linear programme bounds what any other values could gain.
    """
    rises = np.diff(np.eye(len(z)), axis=0)
    rows = [-rises]
    limits = [-lower * np.diff(z)]
    if np.isfinite(upper):
        rows = [*rows, rises]
        limits = [*limits, upper * np.diff(z)]
    else:  # equal scores have equal values
        tied = np.diff(z) == 0
        rows = [*rows, rises[tied]]
        limits = [*limits, np.zeros(tied.sum())]
    found = linprog(slope, np.vstack(rows), np.concatenate(limits), bounds=(0, 1), method="highs")
    assert found.status == 0
    return slope @ p - found.fun


def is_allowed(z, p, lower, upper):
    # Sums of up to 60,000 differences are rounded; the LP's own tolerance is far coarser.
    rises = np.diff(p)
    steps = np.diff(z)
    with np.errstate(invalid="ignore"):
        most = np.where(steps == 0, 0, upper * steps)
    within = p.min() >= -1e-12 and p.max() <= 1 + 1e-12
    return within and (rises >= lower * steps - 1e-12).all() and (rises <= most + 1e-12).all()


@st.composite
def problems(draw):
    n = draw(st.integers(1, 8))

    def numbers(low, high):
        return np.array(draw(st.lists(st.floats(low, high), min_size=n, max_size=n)))

    z = np.sort(numbers(-3, 3).round(2))  # rounded, so that ties occur
    # A lower slope of less than 1/6 leaves room between 0 and 1 over any range of scores.
    lower = draw(st.sampled_from([0.0, 0.01, 0.15]))
    return z, numbers(-2, 2), lower, draw(st.sampled_from([0.2, 1.0, 30.0, np.inf]))


class TestSquaredError:
    @many
    @given(problem=problems())
    def test_is_optimal(self, problem):
        z, y, lower, upper = problem
        fit = lipschitz_isotonic(z, y, lower=lower, upper=upper)
        assert fit.converged
        assert is_allowed(z, fit.values, lower, upper)
        # highs meets constraints to 1e-7: 8 data with slopes of up to 6.
        assert gap(z, fit.values, 2 * (fit.values - y), lower, upper) < 1e-4

    @pytest.mark.parametrize("n", [1, 10, 500])
    def test_pools_adjacent_violators_without_an_upper_slope(self, n):
        generator = np.random.default_rng(n)
        z = np.sort(generator.normal(size=n))
        y = z + generator.normal(size=n)
        expected = isotonic_regression(y, y_min=0, y_max=1)
        fit = lipschitz_isotonic(z, y, upper=np.inf)
        np.testing.assert_allclose(fit.values, expected, atol=ATOL * max(np.ptp(y), 1))

    def test_by_hand(self):
        """Two targets 1 apart, and room for half of that: each gives way by a quarter."""
        fit = lipschitz_isotonic([0, 1], [0, 1], upper=0.5)
        np.testing.assert_allclose(fit.values, [0.25, 0.75], atol=ATOL)
        fit = lipschitz_isotonic([0, 1, 1, 1], [0, 1, 1, 1], upper=0.5)  # as if it weighed 3
        np.testing.assert_allclose(fit.values, [0.375, 0.875, 0.875, 0.875], atol=ATOL)
        fit = lipschitz_isotonic([0, 1], [1, 0], lower=0.5)
        np.testing.assert_allclose(fit.values, [0.25, 0.75], atol=ATOL)

    def test_many_data_some_of_them_very_close(self):
        generator = np.random.default_rng(2)
        z = np.sort(np.concatenate([generator.normal(size=59_000), 1e-9 * np.arange(1000)]))
        y = (generator.random(len(z)) < expit(3 * z)).astype(float)
        fit = lipschitz_isotonic(z, y, lower=1e-3)
        assert fit.converged
        assert is_allowed(z, fit.values, 1e-3, 1.0)
        # Nor may it help to move all values that lie off the bounds by as much.
        inside = (fit.values > 0.001) & (fit.values < 0.999)
        assert inside.sum() > 50_000
        assert abs((fit.values - y).mean()) < 1e-3


def logit_slope(p):
    return 1 / (p * (1 - p))


class TestBregman:
    @many
    @given(problem=problems())
    def test_is_optimal_for_the_log_loss(self, problem):
        z, image, lower, upper = problem
        image = 3 * image
        fit = bregman_isotonic(z, image, logit, logit_slope, lower=lower, upper=upper)
        assert fit.converged
        assert is_allowed(z, fit.values, lower, upper)
        # logit carries an error of 1e-9 in values near 0.0025 to 4e-7; and highs its 1e-7. Near 1
        # it leaps from one floating-point number to the next, and there is none between them; a
        # value there is a sum of a few, so it may be a few of them off.
        slope = logit(fit.values) - image
        leap = np.spacing(fit.values) / (fit.values * (1 - fit.values)).clip(1e-16)
        assert gap(z, fit.values, slope, lower, upper) < 1e-4 + 4 * leap.sum()

    def test_a_slope_that_is_all_rounding_does_not_shorten_steps(self):
        """It did for ever: no constraint is felt, and the derivative at the optimum is zero."""
        z = np.array([0.0, 0, 1, 1.5])
        image = 3 * np.array([1.0, -1, 1.4375, 1.8671875])
        fit = bregman_isotonic(z, image, logit, logit_slope, lower=0.01, upper=1.0)
        assert fit.converged and fit.n_iter < 20

    @many
    @given(problem=problems(), knots=st.lists(st.floats(0.01, 100), min_size=4, max_size=4))
    def test_is_optimal_for_a_link_with_kinks(self, problem, knots):
        z, image, lower, upper = problem
        places = np.linspace(0, 1, 5)
        heights = np.concatenate([[0], np.cumsum(knots)]) / sum(knots) * 6 - 3
        slopes = np.diff(heights) / 0.25

        def link(p):
            return np.interp(p, places, heights)

        def slope(p):
            return slopes[np.minimum((4 * p).astype(int), 3)]

        fit = bregman_isotonic(z, image, link, slope, lower=lower, upper=upper)
        assert fit.converged
        assert is_allowed(z, fit.values, lower, upper)
        assert gap(z, fit.values, link(fit.values) - image, lower, upper) < 1e-4

    def test_without_slope_bounds_it_is_squared_error_in_the_links_coordinates(self):
        """Pooled values are those whose image is the mean image; with bounds they are not."""
        generator = np.random.default_rng(0)
        z = np.sort(generator.normal(size=50))
        image = z + generator.normal(size=50)

        def fit(upper):
            return bregman_isotonic(z, image, logit, logit_slope, upper=upper).values

        np.testing.assert_allclose(fit(np.inf), expit(isotonic_regression(image)), atol=ATOL)
        # The same regression carried over to bounded slopes would bound those of the image.
        bounded = lipschitz_isotonic(z, expit(image), upper=0.2).values
        assert np.abs(fit(0.2) - bounded).max() > 0.01


class TestReports:
    @pytest.mark.parametrize(
        ("z", "y", "options", "said"),
        [
            ([0, 1], [0], {}, "one shape"),
            ([1, 0], [0, 1], {}, "sorted"),
            ([0, 1], [0, np.nan], {}, "finite"),
            ([0, 1], [0, 1], {"lower": 1.0, "upper": 1.0}, "lower < upper"),
            ([0, 4], [0, 1], {"lower": 0.25}, "lower slope below"),
        ],
    )
    def test_what_was_expected(self, z, y, options, said):
        with pytest.raises(ValueError, match=said):
            lipschitz_isotonic(z, y, **options)

    def test_a_search_cut_short(self):
        with pytest.warns(ConvergenceWarning, match="after 2 iterations"):
            fit = lipschitz_isotonic([0, 1, 2], [1, 0, 3], max_iter=2)
        assert not fit.converged and fit.n_iter == 2

    def test_squared_error_is_corrected_for_at_full_length(self):
        """Its derivative is a straight line, so that no step overshoots: see Mehrotra (1992)."""
        rng = np.random.default_rng(0)
        z = np.sort(rng.uniform(-3, 3, 300))
        y = (rng.uniform(size=300) < 1 / (1 + np.exp(-2 * z))).astype(float)
        fit = lipschitz_isotonic(z, y, upper=0.4)
        # 21; and 54 to 60 on six such problems where each step is taken to have overshot.
        assert fit.converged and fit.n_iter <= 35

    def test_a_search_that_ends_says_nothing(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert lipschitz_isotonic([0, 1, 2], [1, 0, 3]).converged
