"""The power plant and the toys of LHG section 2, against quadrature and SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm

from bayesloss_book.problems import power_plant as page

PLANT = page.PowerPlant()


def test_cells_have_the_posterior_s_tail_and_moments():
    states = PLANT.states
    p = PLANT.posterior
    tail = quad(PLANT.density, 345, 500, epsabs=1e-12)[0]
    assert float(PLANT.tail(345)) == pytest.approx(tail, abs=1e-10)
    # The middle rule, cut at a border of cells: an error of second order in a quarter of a degree.
    assert float(p[states > 345].sum()) == pytest.approx(tail, abs=1e-5)
    mean = quad(lambda t: t * PLANT.density(t), 100, 500, epsabs=1e-9)[0]
    variance = quad(lambda t: (t - mean) ** 2 * PLANT.density(t), 100, 500, epsabs=1e-9)[0]
    assert PLANT.moments() == pytest.approx((mean, math.sqrt(variance)), abs=1e-6)


def test_three_gaussians_are_minimisers():
    """Against Nelder and Mead on divergences by quadrature over the continuous temperature."""
    theta = np.linspace(150, 450, 3001)
    p = PLANT.density(theta)
    fits = page.approximations(PLANT)

    def reverse(x):
        return float((norm.pdf(theta, *x) * (norm.logpdf(theta, *x) - np.log(p))).sum() * 0.1)

    def forward(x):
        return float(-(p * norm.logpdf(theta, *x)).sum() * 0.1)

    for name, objective, start in (
        ("min KL(q‖p)", reverse, (281, 16)),
        ("min KL(p‖q)", forward, (290, 29)),
    ):
        best = minimize(objective, start, method="Nelder-Mead", options={"xatol": 1e-6}).x
        # The cells reach from 130 to 470, the quadrature from 150 to 450.
        assert fits[name] == pytest.approx(tuple(best), abs=0.02)
    best = minimize(
        forward,
        (300, 36),
        method="SLSQP",
        constraints={"type": "eq", "fun": lambda x: norm.sf(345, *x) - PLANT.tail(345)},
    ).x
    assert fits["right tail"] == pytest.approx(tuple(best), abs=0.05)


def test_map_is_the_tail_rule():
    means = torch.tensor([270.0, 300.0, 330.0], dtype=torch.float64)
    spreads = torch.tensor([10.0, 40.0], dtype=torch.float64)
    found = page.divergence_map(PLANT, means, spreads) == 0
    expected = [[norm.sf(345, m, s) > 0.05 for s in spreads.tolist()] for m in means.tolist()]
    assert found.tolist() == expected


def closed_form_ep(slopes):
    """EP with the tilted moments of a probit factor in closed form, Rasmussen & Williams (3.58)."""
    sites = np.zeros((len(slopes), 2))  # precision and shift
    for _ in range(300):
        for i, s in enumerate(slopes):
            precision, shift = np.array([1.0, 0.0]) + sites.sum(axis=0) - sites[i]
            m = shift / precision
            v = 1 / precision
            root = math.sqrt(1 + s * s * v)
            z = s * m / root
            ratio = math.exp(norm.logpdf(z) - norm.logcdf(z))
            mean = m + s * v * ratio / root
            variance = v - (s * v / root) ** 2 * ratio * (z + ratio)
            sites[i] = 1 / variance - precision, mean / variance - shift
    precision, shift = np.array([1.0, 0.0]) + sites.sum(axis=0)
    return shift / precision, 1 / precision


def posterior_moments(slopes):
    def density(t):
        return norm.pdf(t) * math.exp(norm.logcdf(np.outer(slopes, t)).sum())

    total, first, second = (
        quad(lambda t, k=k: t**k * density(t), -8, 8, points=[0.0, 0.2, 1.0], epsabs=1e-13)[0]
        for k in range(3)
    )
    return first / total, second / total - (first / total) ** 2


@pytest.mark.parametrize("slopes", [[8.0], [8.0, 8.0, -2.0]])
def test_ep_is_ep_and_exact_for_one_factor_only(slopes):
    """Errata: EP minimises KL(p || q) factor by factor."""
    grid = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    found = page.expectation_propagation(grid, -0.5 * grid**2, page.probit_factors(grid, slopes))
    assert found == pytest.approx(closed_form_ep(slopes), abs=1e-6)
    apart = abs(found[1] / posterior_moments(slopes)[1] - 1)
    assert apart < 1e-6 if len(slopes) == 1 else apart > 0.1


def test_ep_that_does_not_rest():
    grid = torch.linspace(-8, 8, 201, dtype=torch.float64)
    factors = page.probit_factors(grid, [3.0, -3.0])
    with pytest.raises(RuntimeError, match="sites at rest after 1 sweeps"):
        page.expectation_propagation(grid, -0.5 * grid**2, factors, max_sweeps=1)
