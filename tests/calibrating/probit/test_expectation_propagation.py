"""EP and Laplace against brute force on two and three points."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import log_ndtr, ndtr
from scipy.stats import multivariate_normal, norm
from sklearn.exceptions import ConvergenceWarning
from tilted_problems import CASES

from bayesloss.calibrating.probit.expectation_propagation import (
    expectation_propagation,
    fit_sites,
    match_moments,
)
from bayesloss.calibrating.probit.laplace import laplace_probit
from bayesloss.calibrating.probit.whitened_gp import WhitenedGP
from bayesloss.kernels import SquaredExponential
from bayesloss_book.calibrating.gp_classification import brute_force


def toy(inputs, labels, amplitude):
    kernel = SquaredExponential(a=0.3**-2, b=amplitude**2)
    prior = WhitenedGP.at(kernel, torch.tensor(inputs, dtype=torch.float64)[None], batch_dims=1)
    return prior, torch.tensor(labels, dtype=torch.float64)[None]


@pytest.mark.parametrize(("inputs", "labels"), CASES)
def test_ep_is_near_the_truth(inputs, labels):
    """EP's own error is not zero; where the posterior is nearly Gaussian it is below 1e-3."""
    prior, y = toy(inputs, labels, amplitude=0.5)
    ep = expectation_propagation(prior.features, y)
    mean, covariance, log_evidence = brute_force(prior.features[0], y[0])
    assert ep.converged.all()
    assert (ep.mean[0] - mean).abs().max() < 1e-3
    assert (ep.covariance[0] - covariance).abs().max() < 1e-3
    assert float(ep.log_evidence) == pytest.approx(log_evidence, abs=1e-3)


def test_one_point_is_exact():
    """With one site EP matches the moments of the posterior itself."""
    prior, y = toy([0.3], [-1], amplitude=3.0)
    ep = expectation_propagation(prior.features, y)
    mean, covariance, log_evidence = brute_force(prior.features[0], y[0])
    assert float(ep.mean) == pytest.approx(float(mean), abs=1e-9)
    assert float(ep.covariance) == pytest.approx(float(covariance), abs=1e-9)
    assert float(ep.log_evidence) == pytest.approx(math.log(0.5), abs=1e-12)
    assert log_evidence == pytest.approx(math.log(0.5), abs=1e-9)


def site(y, mean, variance):
    """Precision and shift that replace those of a site that was not there."""
    zero = torch.tensor(0.0).double()
    y, mean, variance = (torch.tensor(value).double() for value in (y, mean, variance))
    return tuple(map(float, match_moments(y, mean, variance, (zero, zero))[0]))


def test_sites_match_moments_by_quadrature():
    """The exact tilted moments, with a cavity far on the wrong side."""
    for y, m, v in ((1.0, -6.0, 2.0), (-1.0, 0.3, 9.0), (1.0, 5.0, 0.5)):
        grid = torch.linspace(m - 14 * v**0.5, m + 14 * v**0.5, 400_001, dtype=torch.float64)
        density = (torch.special.log_ndtr(y * grid) - 0.5 * (grid - m) ** 2 / v).exp()
        density = density / density.sum()
        mean = float((density * grid).sum())
        variance = float((density * (grid - mean) ** 2).sum())
        tau, nu = site(y, m, v)
        assert 1 / (1 / v + tau) == pytest.approx(variance, rel=1e-8)
        assert (m / v + nu) * variance == pytest.approx(mean, rel=1e-8)


@pytest.mark.parametrize("gap", [40.0, -40.0])
def test_margins_of_forty(gap):
    """Labels that the prior all but excludes: finite, and sites stay positive."""
    tau, nu = site(1.0, gap, 0.1)
    assert math.isfinite(nu)
    assert tau >= 0.0


def test_single_class_duplicates_and_many_sets():
    """Fifty equal labels at one input: a singular K, and all the weight on one side."""
    kernel = SquaredExponential(a=1.0, b=100.0)
    prior = WhitenedGP.at(kernel, torch.zeros(2, 50, dtype=torch.float64), batch_dims=1)
    y = torch.ones(2, 50, dtype=torch.float64)
    y[1] = -1
    for infer in (laplace_probit, expectation_propagation):
        q = infer(prior.features, y)
        assert q.converged.all()
        assert float(q.mean[0, 0]) == pytest.approx(-float(q.mean[1, 0]), rel=1e-6)
        truth = brute_force(prior.features[0], y[0])[0]
        if infer is expectation_propagation:
            # Fifty sites that are one and the same function are hard for EP: 4 % off.
            assert float(q.mean[0, 0]) == pytest.approx(float(truth), rel=0.06)


def problem(n, amplitude, length_scale, n_sets=1, columns=1, seed=0):
    """Labels drawn from the prior: features and labels."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n_sets, n, columns, dtype=torch.float64, generator=generator)
    kernel = SquaredExponential(a=length_scale**-2, b=amplitude**2)
    features = WhitenedGP.at(kernel, x, batch_dims=1).features
    z = torch.randn(n_sets, features.shape[-1], 1, dtype=torch.float64, generator=generator)
    coin = torch.rand(n_sets, n, dtype=torch.float64, generator=generator)
    y = torch.where(coin < torch.special.ndtr((features @ z).squeeze(-1)), 1.0, -1.0)
    return features, y.double()


def sequential(features, y):
    """GPML Algorithm 3.5 in plain NumPy, on the kernel matrix: posterior of f, and (3.65)."""
    K = (features[0] @ features[0].mT).numpy()
    y = y[0].numpy()
    n = len(y)
    tau = np.zeros(n)
    nu = np.zeros(n)
    cov = K.copy()
    mean = np.zeros(n)
    for _ in range(400):
        before = np.concatenate([tau, nu])
        for i in range(n):
            t = 1 / cov[i, i] - tau[i]
            v = mean[i] / cov[i, i] - nu[i]
            z = y[i] * v / t / math.sqrt(1 + 1 / t)
            ratio = math.exp(-0.5 * z**2) / math.sqrt(2 * math.pi) / ndtr(z)
            m = v / t + y[i] * ratio / t / math.sqrt(1 + 1 / t)
            s = 1 / t - ratio / t**2 / (1 + 1 / t) * (z + ratio)
            step = 1 / s - t - tau[i]
            tau[i] = 1 / s - t
            nu[i] = m / s - v
            cov = cov - step / (1 + step * cov[i, i]) * np.outer(cov[i], cov[i])
            mean = cov @ nu
        if np.abs(np.concatenate([tau, nu]) - before).max() < 1e-12:
            break
    # of sites, and of cavities
    place = nu / tau
    v = 1 / (1 / np.diag(cov) - tau)
    m = v * (mean / np.diag(cov) - nu)
    mass = log_ndtr(y * m / np.sqrt(1 + v)) - norm.logpdf(m, place, np.sqrt(v + 1 / tau))
    return mean, cov, multivariate_normal(cov=K + np.diag(1 / tau)).logpdf(place) + mass.sum()


@pytest.mark.parametrize(
    ("features", "y"),
    [
        *(problem(*how) for how in ((15, 3.0, 0.3), (25, 6.0, 0.15), (40, 10.0, 0.5))),
        *((prior.features, y) for prior, y in (toy(*case, amplitude=3.0) for case in CASES)),
    ],
)
def test_all_at_once_ends_where_one_by_one_does(features, y):
    q = expectation_propagation(features, y)
    mean, cov, log_evidence = sequential(features, y)
    found, _ = q.latent(features)
    assert q.converged.all()
    # Both stop when the sites change by less than 1e-9; here the map contracts slowly.
    assert (found[0].numpy() - mean) == pytest.approx(0, abs=1e-7)
    A = features[0].numpy()
    assert (A @ q.covariance[0].numpy() @ A.T - cov) == pytest.approx(0, abs=1e-7)
    assert float(q.log_evidence) == pytest.approx(log_evidence, abs=1e-7)


def test_given_sites_are_a_start_and_change_nothing():
    features, y = problem(30, 3.0, 0.3, n_sets=3)
    cold = fit_sites(features, y)
    warm = fit_sites(features, y, start=cold.sites)
    assert warm.n_iterations == 1 < cold.n_iterations
    assert (warm.mean - cold.mean).abs().max() < 1e-8
    assert (warm.log_evidence - cold.log_evidence).abs().max() < 1e-10


def test_held_out_is_the_posterior_without_the_row():
    """EP's cavities are near the refit without a row where the posterior is nearly Gaussian."""
    features, y = problem(12, 0.5, 0.3)
    q = expectation_propagation(features, y)
    mean, variance = q.held_out(features)
    for i in range(12):
        rest = [j for j in range(12) if j != i]
        again = expectation_propagation(features[:, rest], y[:, rest])
        refit, spread = again.latent(features[:, [i]])
        # The other sites stay in the cavity as they were: close, not the same.
        assert float(mean[0, i]) == pytest.approx(float(refit), abs=0.005)
        assert float(variance[0, i]) == pytest.approx(float(spread), rel=0.02)
    with pytest.raises(ValueError, match="with sites"):
        replace(q, sites=None).held_out(features)


def test_a_cavity_without_variance_leaves_its_site():
    """A site that takes all the precision of its marginal: it stays, and has not settled."""
    old = (torch.tensor([4.0, 0.1]).double(), torch.tensor([0.5, 0.1]).double())
    mean = torch.tensor([0.1, 0.2]).double()
    variance = torch.tensor([0.25, 0.5]).double()
    new, change = match_moments(torch.ones(2).double(), mean, variance, old)
    assert float(new[0][0]) == 4.0 and float(new[1][0]) == 0.5
    assert float(change[0]) == math.inf and math.isfinite(float(change[1]))


def test_few_sweeps_are_told():
    features, y = problem(20, 6.0, 0.3)
    with pytest.warns(ConvergenceWarning, match="1 of 1 data sets did not settle in 4 sweeps: use"):
        assert not expectation_propagation(features, y, max_iter=4).converged.any()


def test_single_visits_go_on_until_the_slowest_site_has_settled():
    """Half of 20 sweeps are for all sites at once, too few; the last site, far away, needs none."""
    inputs = [*np.linspace(0, 1, 12), 100.0]
    prior, y = toy(inputs, [1, 1, -1, 1, -1, -1, 1, -1, 1, 1, -1, 1, 1], amplitude=6.0)
    together = fit_sites(prior.features, y)
    visits = fit_sites(prior.features, y, max_iter=20)
    assert together.converged.all() and visits.converged.all()
    assert together.n_iterations > 10 and 10 < visits.n_iterations < 20
    # Both stop when no site changes by more than 1e-9; the map contracts slowly.
    assert (visits.mean - together.mean).abs().max() < 1e-7


def test_laplace_has_the_sites_of_its_quadratic():
    """Prior times sites is the Gaussian itself."""
    features, y = problem(8, 3.0, 0.3)
    q = laplace_probit(features, y)
    A, precision, shift = features[0], *(site[0] for site in q.sites)
    covariance = torch.linalg.inv(torch.eye(A.shape[1]).double() + A.mT @ (precision[:, None] * A))
    assert (covariance - q.covariance[0]).abs().max() < 1e-10
    assert (covariance @ A.mT @ shift - q.mean[0]).abs().max() < 1e-8
