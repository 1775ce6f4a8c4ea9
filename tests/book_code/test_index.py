"""The front page's slider counts what it shows, and nothing costs less than the truth."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from bayesloss_book import index


@pytest.mark.parametrize("ratio", [1, 8, 30])
def test_errors_are_those_of_the_cut(ratio):
    """The probabilities of the two errors are integrals over scores."""
    curve = expit(2 * index._GRID)
    cut = np.log(1 / ratio) / 2

    def share(low, high, positive):
        def density(s):
            p = index.truth(np.asarray(s))
            return norm.pdf(s) * (p if positive else 1 - p)

        return 10_000 * quad(density, low, high, points=[0.3] if low < 0.3 < high else None)[0]

    whole = norm.cdf(3) - norm.cdf(-3)  # of scores that the picture shows
    missed = share(-3, cut, True) / whole
    alarms = share(cut, 3, False) / whole
    found = index.errors(curve, ratio)
    assert found[:2] == pytest.approx((missed, alarms), abs=25)  # half a step of the grid
    assert found[2] == ratio * found[0] + found[1]


def test_nothing_costs_less_than_the_truth():
    given = index.fits(300, 0)
    for ratio in index.RATIOS:
        costs = {name: index.errors(given[name], ratio)[2] for name in ("link", "sigmoid", "truth")}
        assert costs["truth"] <= min(costs.values()) + ratio  # counts are whole
    held = (given["low"] <= given["truth"]) & (given["truth"] <= given["high"])
    assert held.mean() > 0.8
