"""Theorems 2 and 4 on sampled sources: the parts, each by a second route."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from bayesloss_book.learning.drawn_losses import losses as il
from bayesloss_book.problems.random_sources import LOSSES, MARGINS, make_prior

U = np.linspace(0.05, 0.95, 19)


@pytest.mark.parametrize("name", ["logistic", "exponential"])
def test_the_share_of_2_undoes_the_link_by_brute_force(name):
    margin = MARGINS[name]
    assert il.stationary_share(margin, il.represented_link(margin, U)) == pytest.approx(U, abs=1e-7)


def test_calibration_gaps_against_a_table_of_the_source():
    """One path, the conditional risks written out, the inverse by interpolation."""
    prior = make_prior(a=2.0, c=0.25, n_basis=16)
    Gamma = prior.sample(1, torch.Generator().manual_seed(4))[0]
    t = torch.linspace(-40, 40, 400_001, dtype=torch.float64)
    nu = prior.source(t, Gamma).numpy()
    alpha = np.linspace(-3, 3, 60_001)
    with_sign, against = (np.interp(sign * alpha, nu, t.numpy()) for sign in (1, -1))
    risk = 0.7 * np.exp(-with_sign) + 0.3 * np.exp(-against)
    expected = risk[alpha <= 0].min() - risk.min()
    gap = il.calibration_gap([MARGINS["exponential"]], prior, Gamma, (0.7,), reach=4.0)[0, 0]
    assert gap == pytest.approx(expected, rel=1e-2)


def test_failure_probability_against_gauss_and_hermite():
    """With two basis functions: the mean of Phi(-sqrt(gamma) (mu + q)), by a product rule."""
    prior = make_prior(c=0.4, n_basis=2, gamma=2.0, mu=0.3)
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    psi = prior.kernel.psi(torch.tensor([1.3], dtype=torch.float64))[0].numpy()
    w = np.stack(np.meshgrid(node, node, indexing="ij"), axis=-1)  # Lambda = 1 for M = 2
    chance = norm.cdf(-math.sqrt(2.0) * (0.3 + np.einsum("ijk,kl,ijl->ij", w, psi, w)))
    truth = weight @ chance @ weight / weight.sum() ** 2
    assert il.failure_probability(prior, 1.3) == pytest.approx(truth, abs=1e-8)


def test_prior_average_against_samples():
    prior = make_prior(c=0.4, n_basis=2, gamma=2.0)
    x = torch.tensor([1.3], dtype=torch.float64)
    nu = prior.source(x, prior.sample(200_000, torch.Generator().manual_seed(0)))[:, 0].numpy()
    for loss in LOSSES.values():
        sample = loss(np.array(-1.0), nu)
        exact = il.prior_average(lambda v, loss=loss: loss(np.array(-1.0), v), prior, 1.3)
        assert exact == pytest.approx(sample.mean(), abs=4 * sample.std() / math.sqrt(len(nu)))


def test_losses_averaged_over_the_prior_by_a_loop():
    data = load_breast_cancer()
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    beta = LogisticRegression(C=0.001).fit(X, data.target).coef_[0]
    prior = make_prior(c=0.25 / float(np.abs(X).max() * np.linalg.norm(beta)), gamma=1.0)
    Gamma = prior.sample(5, torch.Generator().manual_seed(2))
    total = 0.0
    for path in Gamma:
        for label, x in zip(data.target, X @ beta, strict=True):
            nu = float(prior.source(torch.tensor([x], dtype=torch.float64), path))
            total += np.logaddexp(0, -nu if label else nu)

    def average(at):
        return il.penalised_average(prior, Gamma, X, 2.0 * data.target - 1, 0.001, at)

    value, gradient = average(beta)
    assert value == pytest.approx((total / 5 + beta @ beta / 0.002) / len(X), rel=1e-9)
    aside = np.random.default_rng(0).normal(size=len(beta))
    ends = [average(beta + step * aside)[0] for step in (1e-5, -1e-5)]
    assert gradient @ aside == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)
