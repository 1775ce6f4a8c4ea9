from functools import cache

import numpy as np
import pytest
import torch
from monotone_fits import SAME, fit, simulate
from scipy.optimize import brentq
from scipy.stats import pearsonr

from bayesloss.learning.data.rows import Rows
from bayesloss.learning.estimators.standard_units import Moments, StandardUnits


@pytest.mark.parametrize("weighted", [False, True])
def test_moments_are_those_of_weighted_data(weighted):
    X, y = simulate()
    weight = np.random.default_rng(1).uniform(1, 2, 60) if weighted else np.ones(60)
    units, moments = StandardUnits.of(Rows(7 + X[:, 0] / 3, 5 * y, weight), robust=False)
    assert moments.total == pytest.approx(weight.sum())
    cov = np.cov(X[:, 0], y, aweights=weight, ddof=0)
    assert moments.correlation == pytest.approx(cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1]))
    assert moments.x_spread == pytest.approx(np.sqrt(cov[0, 0]) * 2 / np.ptp(X))
    targets = units.targets(5 * y).numpy()
    assert np.average(targets, weights=weight) == pytest.approx(0, abs=1e-12)
    assert np.average(targets**2, weights=weight) == pytest.approx(1)
    np.testing.assert_allclose(units.original_targets(torch.from_numpy(targets)), 5 * y)


@pytest.mark.parametrize("n", [5, 12, 60])
def test_a_direction_is_in_doubt_where_an_interval_of_the_correlation_holds_zero(n):
    """SciPy's, by Fisher's transformation, on both sides of where it ends at zero."""
    x = np.arange(n) - (n - 1) / 2
    rest = x**2 - (x**2).mean()
    scale = x.std() / rest.std()

    def low(part):
        y = part * x + (1 - part**2) ** 0.5 * scale * rest
        return pearsonr(x, y).confidence_interval(0.95).low

    edge = brentq(low, 0, 0.999)  # of the correlation
    for correlation in (0.99 * edge, 1.01 * edge):
        moments = Moments(total=float(n), correlation=correlation, x_spread=1.0)
        assert moments.direction_in_doubt == (correlation < edge)


@pytest.mark.parametrize("sign", [1, -1])
def test_posterior_is_in_standard_units(sign):
    """Inputs over [-1, 1]; targets with mean 0 and standard deviation 1, increasing."""
    X, y = simulate()
    X = 3 + 2 * X
    y = sign * (5 * y - 1)
    model = fit(X, y)
    x, targets = (values.numpy() for values in model.standardise(X[:, 0], y))
    assert (x.min(), x.max()) == pytest.approx((-1, 1))
    assert (targets.mean(), targets.std()) == pytest.approx((0, 1), abs=1e-12)
    assert np.corrcoef(x, targets)[0, 1] > 0
    mean = model.posterior_.mean(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(model.predict(X), y.mean() + sign * y.std() * mean, rtol=1e-12)


class TestUnits:
    X, y = simulate(30)

    @classmethod
    @cache
    def expected(cls):
        return fit(cls.X, cls.y).predict(cls.X)

    @pytest.mark.parametrize("scale", [2.0**-660, 2.0**-1000, 2.0**1000])
    def test_inputs_of_any_size(self, scale):
        """A power of two: not a digit changes."""
        found = fit(scale * self.X, self.y).predict(scale * self.X)
        np.testing.assert_allclose(found, self.expected(), rtol=1e-9)

    @pytest.mark.parametrize("scale", [2.0**-450, 2.0**450])
    def test_targets_of_nearly_any_size(self, scale):
        found = fit(self.X, scale * self.y).predict(self.X)
        np.testing.assert_allclose(found / scale, self.expected(), **SAME)

    @pytest.mark.parametrize("scale", [1e-160, 1e160, 1e-310, 1e300])
    def test_targets_whose_squares_are_no_numbers(self, scale):
        with pytest.raises(ValueError, match="expected a target that varies by 1e-150 to 1e.150"):
            fit(self.X, scale * self.y)

    def test_inputs_too_near(self):
        with pytest.raises(ValueError, match="expected inputs that vary by more than 4.45e-308"):
            fit(1e-320 * self.X, self.y)
