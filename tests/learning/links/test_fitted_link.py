from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from bayesloss import GP, ISGP, ISGPRegressor, LinkgisticClassifier, PaperLink, TrigonometricKernel
from bayesloss.learning.inference.laplace import laplace
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.links.fitted_link import FittedLink, mean_slope


def problem(n=2000, seed=0, bend=1.0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 4)) + 3
    x = (X - 3) @ [1.0, -1.0, 0.5, 0.0]
    return X, (generator.random(n) < expit(np.where(x < 0, x, bend * x) - 0.5)).astype(int)


def slopes(link, x, step=1e-4):
    """Central differences: off by step^2 / 6 of a third derivative."""
    return (link.source(x + step) - link.source(x - step)) / (2 * step)


LINKS = [PaperLink(a=None, n_samples=None), PaperLink(), PaperLink(prior="gp", a=None)]


@pytest.mark.parametrize("link", LINKS, ids=repr)
def test_the_mean_slope_is_one(link):
    X, y = problem(bend=3.0)
    weight = np.random.default_rng(1).integers(1, 4, len(X)).astype(float)
    model = LinkgisticClassifier(link=link).fit(X, y, weight)
    found = np.average(slopes(model.link_, model.scores(X)), weights=weight)
    assert found == pytest.approx(1, abs=1e-5)
    assert abs(model.link_.slope - 1) > 0.01  # or there was nothing to do


@pytest.mark.parametrize("options", [{"multi_class": "joint"}, {"link": LINKS[0]}])
def test_for_every_class(options):
    X, y = load_iris(return_X_y=True)
    model = LinkgisticClassifier(**options).fit(X, y)
    for link, x in zip(model.links_, model.scores(X).T, strict=True):
        assert slopes(link, x).mean() == pytest.approx(1, abs=1e-5)


def test_a_straight_link_has_the_weights_of_a_logistic_regression():
    """So it has the intercept, in two parts."""
    X, y = problem(20_000)
    model = LinkgisticClassifier().fit(X, y)
    usual = LogisticRegression().fit(X, y)
    # Weights have standard errors of 0.02.
    np.testing.assert_allclose(model.coef_, usual.coef_, rtol=0, atol=0.04)
    intercept = model.intercept_ + model.link_.source(0.0)
    assert intercept == pytest.approx(usual.intercept_, abs=0.15)


def test_rows_where_the_link_is_held_do_not_rise():
    X, y = problem(bend=3.0)
    X[0] = 1e4
    with pytest.warns(UserWarning, match="far out"):
        model = LinkgisticClassifier(link=LINKS[0]).fit(X, y)
    assert slopes(model.link_, model.scores(X)[1:]).sum() / len(X) == pytest.approx(1, abs=1e-3)


def test_a_row_just_beyond_the_period_does_not_count_in_the_mean_slope():
    """Where nu is held constant, from the end of the period on: one row in ten is 1.2 ends out."""
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.rand(200, dtype=torch.float64, generator=generator) - 1.5
    prior = ISGP(TrigonometricKernel(a=1.5, c=0.5, n_basis=8))
    posterior = laplace(prior, Bernoulli(), x, (x + x**3 > 0).double())
    end = prior.kernel.edge
    x[::10] = 1.2 * end
    link = FittedLink.of(
        posterior, Bernoulli().loss, x, torch.ones_like(x), chance=False, constant_ends=True
    )
    same = replace(link, slope=1.0, end=end)
    expected = slopes(same, x[x < end].numpy()).mean()
    assert link.slope == pytest.approx(expected, rel=1e-5)


def test_all_functions_share_the_scale():
    """Of a link with the slope forced to 1, at the scores that its posterior takes."""
    X, y = problem(500, bend=3.0)
    link = LinkgisticClassifier(link=PaperLink()).fit(X, y).link_
    ends = {name: getattr(link, name) / link.slope for name in ("low", "high", "end")}
    same = replace(link, slope=1.0, **ends)
    x = np.linspace(link.low, link.high, 7)
    for name in ("source", "inverse_link", "source_band", "inverse_link_band"):
        expected = getattr(same, name)(x / link.slope)
        np.testing.assert_allclose(getattr(link, name)(x), expected, rtol=1e-12)
    assert link.edge == pytest.approx(same.edge * link.slope)


def test_a_link_that_falls_keeps_its_scale():
    x = torch.linspace(-1, 1, 200, dtype=torch.float64)
    prior = GP(TrigonometricKernel(a=1.5, c=0.5, n_basis=8))
    posterior = laplace(prior, Bernoulli(), x, (x < 0).double())
    weight = torch.ones_like(x)
    assert mean_slope(posterior, x, weight) < 0
    link = FittedLink.of(posterior, Bernoulli().loss, x, weight, chance=False, constant_ends=False)
    assert link.slope == 1


@pytest.mark.filterwarnings("ignore:not converged")
def test_what_is_shown_of_a_fit_is_its_numbers_and_no_arrays():
    X, y = problem(n=100)
    link = PaperLink(a=1.3, n_basis=16)
    link = LinkgisticClassifier(link=link, max_iter=1).fit(X, y).link_
    model = ISGPRegressor(n_basis=8, average_hyperparameters=False).fit(np.exp(X[:, :1]), X[:, 0])
    for fit in (link, link.posterior, model.range_map_, model.posterior_):
        shown = repr(fit)
        assert shown.startswith(type(fit).__name__ + "(")
        assert "tensor" not in shown
        assert len(shown) < 500
    assert f"log_evidence={link.posterior.log_evidence}, " in repr(link.posterior)
    assert len(repr(link)) < 120 and f"slope={link.slope}, " in repr(link)
