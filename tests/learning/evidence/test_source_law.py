"""The law of nu under a Gaussian q, against draws, quadrature, closed forms and differences."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.special import log_expit

from bayesloss import GP, ISGP, NystromBasis, SquaredExponential, TrigonometricKernel
from bayesloss.learning.evidence import source_law
from bayesloss.learning.evidence.source_law import SourceLaw, functionals
from bayesloss.learning.sources.priors import CentredISGP

KERNEL = TrigonometricKernel(a=1.5, c=0.25, n_basis=8)
PRIORS = {
    "isgp": ISGP(KERNEL, gamma=0.7),
    "centred": CentredISGP(KERNEL.scaled(0.4), tau=0.5),
    "gp": GP(KERNEL),
    "nystrom": ISGP(NystromBasis(SquaredExponential(a=0.7), torch.linspace(-1, 1, 6).double())),
}
X = torch.tensor([-0.9, -0.2, 0.0, 0.4, 1.0], dtype=torch.float64)


def gaussian(prior, seed=0):
    """A mean and a root of no particular form."""
    generator = torch.Generator().manual_seed(seed)
    size = len(prior.location)
    m = prior.location + 0.5 * prior.precision.rsqrt() * torch.randn(size, generator=generator)
    noise = torch.randn((size, size), dtype=torch.float64, generator=generator)
    covariance = torch.diag(prior.precision) + 0.3 * noise @ noise.T
    return m, torch.linalg.inv(torch.linalg.cholesky(covariance)).T


def law_of(prior, m, root, x=X):
    features = prior.features(x)
    (V, P, _) = prior.quadratic_form()
    squares = features @ P
    g = (features @ prior.jacobian(m)) @ root
    mean = features @ prior.mean_coefficients(m, root)
    covariance = prior.covariance(m, root)
    turned = root.T @ functionals(V, squares, prior.precision)
    variance = ((features @ covariance) * features).sum(dim=1)
    return SourceLaw.of((mean, variance), g, squares, V @ root, turned)


def one(l, lam, mean, rest=0.0):
    """The law of mean + sum_k (l_k z_k + lambda_k (z_k^2 - 1)) + sqrt(rest) z_0."""
    l, lam = (torch.tensor([each], dtype=torch.float64) for each in (l, lam))
    variance = (l**2 + 2 * lam**2).sum(dim=1) + rest
    eye = torch.eye(l.shape[1], dtype=torch.float64)
    return SourceLaw(torch.full_like(variance, mean), variance, eye, eye[None], l, lam)


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS.keys())
def test_against_draws(prior):
    m, root = gaussian(prior)
    found = law_of(prior, m, root).expected_log_sigmoid()
    noise = torch.from_numpy(np.random.default_rng(1).normal(size=(400_000, len(m))))
    nu = prior.source(X, m + noise @ root.T)
    values = torch.nn.functional.logsigmoid(nu)
    error = values.std(dim=0) / math.sqrt(len(nu))
    assert bool(((values.mean(dim=0) - found.value).abs() < 4.5 * error + 1e-7).all())


@pytest.mark.parametrize("mean", [-12.0, -2.0, 0.0, 3.0, 20.0])
@pytest.mark.parametrize("sd", [1e-3, 0.5, 3.0, 12.0])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_shifted_square_against_quadrature(mean, sd, sign):
    """nu = mean + l z + lambda (z^2 - 1), one integral over z."""
    lam = sign * 0.4 * sd
    l = sd * math.sqrt(1 - 2 * 0.4**2)
    found = one([l], [lam], mean).expected_log_sigmoid()

    def at(z):
        return stats.norm.pdf(z) * log_expit(mean + l * z + lam * (z * z - 1))

    expected = integrate.quad(
        at, -12, 12, points=[-3, 0, 3], limit=400, epsabs=1e-11, epsrel=1e-12
    )[0]
    assert float(found.value[0]) == pytest.approx(expected, abs=1e-8)


def test_one_hundred_and_fifty_equal_terms_are_chi_square():
    """Their sum has a known density; a product of phases in place of their sum would turn round."""
    K = 150
    lam = 0.05
    found = one([0.0] * K, [lam] * K, 0.5).expected_log_sigmoid()
    expected = stats.chi2(K).expect(lambda v: log_expit(0.5 + lam * (v - K)), epsabs=1e-12)
    assert float(found.value[0]) == pytest.approx(expected, abs=1e-8)


def test_derivatives_by_differences():
    """By mean and variance; by g and M, beyond what they change in the variance."""
    generator = np.random.default_rng(2)
    g = torch.from_numpy(generator.normal(size=3))
    M = torch.from_numpy(generator.normal(size=(3, 3)))
    M = 0.2 * (M + M.T)
    mean = 0.3
    rest = 0.8

    def value(mean, rest, g, M):
        lam, axes = torch.linalg.eigh(M[None])
        l = g @ axes
        variance = (l**2 + 2 * lam**2).sum(dim=1) + rest
        law = SourceLaw(torch.full_like(variance, mean), variance, torch.eye(3), axes, l, lam)
        return law.expected_log_sigmoid()

    found = value(mean, rest, g, M)
    h = 1e-4

    def slope(mean=0.0, rest=0.0, g_=0.0, M_=0.0):
        up, down = (
            value(0.3 + s * mean, 0.8 + s * rest, g + s * g_, M + s * M_).value for s in (h, -h)
        )
        return float((up - down) / (2 * h))

    # 1e-8 of the integral over 2e-4 is 5e-5; its error hardly moves, so that less is left.
    assert float(found.by_mean) == pytest.approx(slope(mean=1.0), abs=1e-6)
    assert float(found.by_variance) == pytest.approx(slope(rest=1.0), abs=1e-6)
    turn = torch.from_numpy(generator.normal(size=3))
    expected = turn @ (found.by_g[0] + 2 * g * found.by_variance)
    assert float(expected) == pytest.approx(slope(g_=turn), abs=1e-6)
    bend = torch.from_numpy(generator.normal(size=(3, 3)))
    bend = bend + bend.T
    expected = (bend * (found.by_M[0] + 4 * M * found.by_variance)).sum()
    assert float(expected) == pytest.approx(slope(M_=bend), abs=1e-6)


def test_what_is_left_out_hardly_counts(monkeypatch):
    """A rough prior of 64 functions, whose law is exact with all directions."""
    prior = ISGP(TrigonometricKernel(a=1.1, c=0.25, n_basis=64))
    m, root = gaussian(prior)
    few = law_of(prior, m, root)
    monkeypatch.setattr(source_law, "LEAST", 0.0)
    every = law_of(prior, m, root)
    assert few.slopes.shape[1] < every.slopes.shape[1] / 2
    torch.testing.assert_close(
        few.expected_log_sigmoid().value, every.expected_log_sigmoid().value, rtol=0, atol=1e-6
    )


def test_a_gp_is_normal():
    law = law_of(PRIORS["gp"], *gaussian(PRIORS["gp"]))
    assert law.slopes.shape[1] == 0
    same = SourceLaw.normal(law.mean, law.variance).expected_log_sigmoid().value
    torch.testing.assert_close(law.expected_log_sigmoid().value, same, rtol=0, atol=0)


def test_order_does_not_matter():
    """Points of unlike width come back in their own places."""
    mean = torch.tensor([9.0, 0.0, -4.0, 0.5], dtype=torch.float64)
    variance = torch.tensor([4.0, 0.1, 9.0, 1.0], dtype=torch.float64)
    together = SourceLaw.normal(mean, variance).expected_log_sigmoid()
    alone = [
        SourceLaw.normal(*each).expected_log_sigmoid()
        for each in zip(mean[:, None], variance[:, None], strict=True)
    ]
    for name in ("value", "by_mean", "by_variance"):
        expected = torch.cat([getattr(each, name) for each in alone])
        torch.testing.assert_close(getattr(together, name), expected, rtol=0, atol=2e-8)
