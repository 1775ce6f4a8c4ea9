"""Theorems 2 and 4 on sampled sources: the parts, each by a second route."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from bayesloss_book.learning.drawn_losses import losses as il
from bayesloss_book.random_sources import LOSSES, MARGINS, make_prior

TRIALS = settings(max_examples=200, deadline=None, derandomize=True)
U = np.linspace(0.05, 0.95, 19)


# ------------------------------------------------------------------------------------ theorem 2


@pytest.mark.parametrize("name", ["logistic", "exponential"])
def test_the_share_of_2_undoes_the_link_by_brute_force(name):
    margin = MARGINS[name]
    assert il.stationary_share(margin, il.represented_link(margin, U)) == pytest.approx(U, abs=1e-7)


def test_slopes_that_stay_apart_from_zero_do_not_reach_all_probabilities():
    x = np.linspace(-1e4, 1e4, 1001)
    share = il.stationary_share(MARGINS["two slopes"], x)
    assert 0.25 < share.min() < 0.2501
    assert 0.7499 < share.max() < 0.75
    assert np.all(il.stationary_share(MARGINS["linear"], x) == 0.5)


def test_16_is_one_half_at_the_start_of_the_source_and_not_at_zero():
    prior = make_prior(c=0.25, n_basis=16)
    for Gamma in prior.sample(5, torch.Generator().manual_seed(2)):
        at = il.inverse_source(prior, Gamma, np.array([0.0, float(Gamma[-1])]))
        zero, start = il.stationary_share(MARGINS["logistic"], at)
        assert start == pytest.approx(0.5, abs=1e-9)
        assert abs(zero - 0.5) > 1e-3


def test_brute_force_and_the_condition_agree_on_calibration():
    table = il.calibration_trials(
        ("logistic", "exponential", "square", "truncated square"), n_paths=40, gamma=1.0, seed=3
    )
    assert (table["disagreements"] == 0).all()
    assert (table.loc[["logistic", "exponential"], "calibrated"] == 1).all()
    assert (table.loc[["square", "truncated square"], "calibrated"] < 1).all()


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
    margin = MARGINS["exponential"]
    gap = il.calibration_gap([margin], prior, Gamma, (0.7,), reach=4.0)[0, 0]
    assert gap == pytest.approx(expected, rel=1e-2)


def test_a_source_through_the_origin_keeps_calibration():
    prior = make_prior(a=2.0, c=0.25, n_basis=16)
    Gamma = prior.sample(1, torch.Generator().manual_seed(0))[0]
    Gamma[-1] = 0.0
    gaps = il.calibration_gap([MARGINS["square"]], prior, Gamma, (0.55, 0.7, 0.9, 1.0), 4.0)
    assert (gaps > 0).all()


def test_the_slope_of_the_margin_loss_is_taken_at_the_preimage_of_zero():
    """G_nu(nu(t)) = G(t): the slope along the path, with no inverse anywhere."""
    prior = make_prior(a=2.0, c=0.25, n_basis=16)
    margin, h = MARGINS["square"], 1e-5
    for Gamma in prior.sample(5, torch.Generator().manual_seed(1)):
        t = il.inverse_source(prior, Gamma, np.zeros(1))
        ends = torch.from_numpy(np.concatenate([t - h, t + h]))
        nu = prior.source(ends, Gamma).numpy()
        value = margin.value(ends.numpy())
        f = prior.root(torch.from_numpy(t), Gamma).numpy()
        slope = (value[1] - value[0]) / (nu[1] - nu[0])
        assert slope == pytest.approx((margin.slope(t) / f**2)[0], rel=1e-4)
        assert abs(slope * f[0] ** 2 - margin.slope(np.zeros(1))[0]) > 1e-3


@pytest.mark.parametrize("gamma", [0.01, 1.0, 30.0])
def test_failure_probability_against_samples(gamma):
    prior = make_prior(a=1.2, gamma=gamma)
    share, error = il.failure_frequency(prior, 1.0, 100_000, seed=5)
    assert il.failure_probability(prior, 1.0) == pytest.approx(share, abs=4 * error)


def test_failure_probability_against_gauss_and_hermite():
    """With two basis functions: the mean of Phi(-sqrt(gamma) (mu + q)), by a product rule."""
    prior = make_prior(c=0.4, n_basis=2, gamma=2.0, mu=0.3)
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    psi = prior.kernel.psi(torch.tensor([1.3], dtype=torch.float64))[0].numpy()
    w = np.stack(np.meshgrid(node, node, indexing="ij"), axis=-1)  # Lambda = 1 for M = 2
    q = np.einsum("ijk,kl,ijl->ij", w, psi, w)
    chance = norm.cdf(-math.sqrt(2.0) * (0.3 + q))
    truth = weight @ chance @ weight / weight.sum() ** 2
    assert il.failure_probability(prior, 1.3) == pytest.approx(truth, abs=1e-8)


# ------------------------------------------------------------------------------------ theorem 4


def test_prior_average_is_exact_for_squares():
    prior = make_prior(c=0.4, n_basis=2, gamma=2.0)
    psi = prior.kernel.psi(torch.tensor([1.3], dtype=torch.float64))[0]
    variance = 0.5 + 2 * float((psi @ psi).trace())  # Lambda = 1 for M = 2
    assert il.prior_average(lambda nu: nu, prior, 1.3) == pytest.approx(1.3)
    assert il.prior_average(lambda nu: nu**2, prior, 1.3) == pytest.approx(variance + 1.3**2)


def test_prior_average_against_samples():
    prior = make_prior(c=0.4, n_basis=2, gamma=2.0)
    x = torch.tensor([1.3], dtype=torch.float64)
    nu = prior.source(x, prior.sample(200_000, torch.Generator().manual_seed(0)))[:, 0].numpy()
    for loss in LOSSES.values():
        sample = loss(np.array(-1.0), nu)
        exact = il.prior_average(lambda v, loss=loss: loss(np.array(-1.0), v), prior, 1.3)
        assert exact == pytest.approx(sample.mean(), abs=4 * sample.std() / math.sqrt(len(nu)))


@TRIALS
@given(
    name=st.sampled_from(sorted(LOSSES)),
    y=st.sampled_from([-1.0, 1.0]),
    c=st.floats(0.05, 3.0),
    gamma=st.floats(1e-2, 1e3),
    place=st.floats(-1.0, 1.0),
)
def test_no_loss_drawn_from_the_prior_is_smaller_on_average(name, y, c, gamma, place):
    loss, x = LOSSES[name], place / c
    prior = make_prior(c=c, n_basis=2, gamma=gamma)
    average = il.prior_average(lambda nu: loss(np.array(y), nu), prior, x)
    left = float(loss(np.array(y), np.array(x)))
    assert average >= left - 1e-10 * max(1.0, abs(x))


def test_clamped_probabilities_can_break_it():
    """The square loss of a probability cut off at 0 and 1 is bounded, hence not convex."""
    prior = make_prior(c=0.5, n_basis=2, gamma=1.0)
    loss = LOSSES["square"]
    cut_off = lambda nu: (1 - loss.inverse_link(nu)) ** 2  # noqa: E731
    clamped = il.prior_average(cut_off, prior, -0.9, n_nodes=100)
    assert clamped < float(loss(np.array(1.0), np.array(-0.9))) - 0.1
    # The same by draws of nu written out: f = p cos + q sin, integrated from 0 to x.
    p, q, start = np.random.default_rng(0).normal(size=(3, 200_000))
    k = 0.5 * math.pi
    nu = start + 0.5 * (p**2 + q**2) * -0.9 + (p**2 - q**2) * math.sin(2 * k * -0.9) / (4 * k)
    nu += p * q * math.sin(k * -0.9) ** 2 / k
    drawn = (1 - np.clip((1 + nu) / 2, 0, 1)) ** 2
    assert abs(drawn.mean() - clamped) < 4 * drawn.std() / math.sqrt(len(drawn))


def test_slack_on_real_data_is_positive():
    table = il.slack_table((0.01, 100.0), n_paths=200, seed=0)
    assert (table["slack"] > 4 * table["error"]).all()
    assert (table["paths below canonical"] < 0.5).all()


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


def test_no_start_lies_beyond_the_least_average():
    found = il.starting_points((1.0,), n_paths=20, seed=1)
    assert (found < 1).all(axis=None)
    assert (found > -1).all(axis=None)  # starts of one length are none of them far away
    # To seven digits what BFGS finds from zero weights.
    assert found["fixed link"].item() == pytest.approx(0.9841267, abs=1e-5)
    assert found["fixed link"].item() > found["linear discriminant"].item() + 0.5
