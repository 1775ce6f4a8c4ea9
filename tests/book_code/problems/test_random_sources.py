"""Drawn sources and the losses that meet them, each by a second route."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from bayesloss_book.problems import random_sources as rs

U = np.linspace(0.05, 0.95, 19)


def test_the_inverse_undoes_the_source_also_far_outside():
    prior = rs.make_prior(c=0.5, n_basis=8)
    Gamma = prior.sample(1, torch.Generator().manual_seed(0))[0]
    x = torch.linspace(-31, 17, 97, dtype=torch.float64)
    nu = prior.source(x, Gamma).numpy()
    again = rs.inverse_source(prior, Gamma, nu)
    assert np.abs(prior.source(torch.from_numpy(again), Gamma).numpy() - nu).max() < 1e-9
    assert np.abs(again - x.numpy()).max() < 1e-3  # flat places lose a third of the digits


@pytest.mark.parametrize("name", rs.LOSSES)
def test_links_weights_and_inverses_by_finite_differences(name):
    loss = rs.LOSSES[name]
    h = 1e-5
    slope = (loss.bayes_risk(U + h) - loss.bayes_risk(U - h)) / (2 * h)
    assert loss.link(U) == pytest.approx(-slope, abs=1e-7)
    assert loss.weight(U) == pytest.approx((loss.link(U + h) - loss.link(U - h)) / (2 * h), 1e-6)
    assert loss.inverse_link(loss.link(U)) == pytest.approx(U)


@pytest.mark.parametrize("name", rs.LOSSES)
@pytest.mark.parametrize("x", [-2.5, 0.4])
def test_conjugates_by_maximisation(name, x):
    loss = rs.LOSSES[name]
    found = minimize_scalar(
        lambda u: -(x * u + loss.bayes_risk(np.array(u))),
        bounds=(1e-12, 1 - 1e-12),
        method="bounded",
        options={"xatol": 1e-12},
    )
    assert float(loss.conjugate(np.array(x))) == pytest.approx(-found.fun, abs=1e-7)


@pytest.mark.parametrize("name", rs.MARGINS)
def test_margin_slopes_by_finite_differences(name):
    margin = rs.MARGINS[name]
    x = np.linspace(-3, 3, 41)
    h = 1e-6
    slope = (margin.value(x + h) - margin.value(x - h)) / (2 * h)
    assert margin.slope(x) == pytest.approx(slope, abs=1e-5)
