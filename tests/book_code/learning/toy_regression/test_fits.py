"""The toy regression: its truths, its bands and its slices, against independent routes."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from bayesloss import GP, ISGP, Gaussian, TrigonometricKernel, laplace
from bayesloss_book.learning.toy_regression import fits as toy


@pytest.fixture(scope="module")
def data():
    return toy.problem(40, 3)


@pytest.fixture(scope="module")
def found(data):
    return toy.fit(data, n_basis=12)


def test_fit_keeps_the_paper_s_settings(data, found):
    prior = toy.fit(data).posterior.prior
    assert (prior.kernel.c, prior.kernel.n_basis) == (0.01, 64)
    assert found.converged
    # The intercept's prior is no narrower than the targets are wide.
    assert float(found.posterior.prior.gamma) <= 1.0001 / float(data.y.var())
    free = toy.fit(data, n_basis=12, free_intercept=True)
    assert float(free.posterior.prior.gamma) > 1e3
    assert max(free.values) > max(found.values)


@pytest.mark.parametrize("kind", [ISGP, GP])
def test_bands_are_those_of_draws(data, kind):
    """Means and deviations within four standard errors, quantiles within 8 % of the deviation."""
    posterior = toy.fit(data, kind, n_basis=12).posterior
    x, n = toy.grid(n=9), 40_000
    shown = toy.bands(posterior, x)
    Gamma = posterior.sample(n, torch.Generator().manual_seed(0))
    nu = posterior.prior.source(x, Gamma).numpy()
    noisy = nu + float(posterior.likelihood.alpha) ** -0.5 * np.random.default_rng(1).normal(
        size=nu.shape
    )
    assert (np.abs(nu.mean(axis=0) - shown["nu"]) < 4 * nu.std(axis=0) / math.sqrt(n) + 1e-9).all()
    np.testing.assert_allclose(nu.std(axis=0), shown["nu_sd"], rtol=0.03)
    np.testing.assert_allclose(noisy.std(axis=0), shown["noisy_sd"], rtol=0.03)
    if kind is GP:
        assert "f" not in shown
        return
    f = posterior.prior.root(x, Gamma).numpy()
    assert (np.abs(f.mean(axis=0) - shown["f"]) < 4 * f.std(axis=0) / math.sqrt(n)).all()
    np.testing.assert_allclose(f.std(axis=0), shown["f_sd"], rtol=0.03)
    low, high = np.quantile(f**2, [0.025, 0.975], axis=0)
    scale = (f**2).std(axis=0)
    # An upper quantile of 40,000 draws is known to about 2 % of the deviation.
    assert (np.abs(shown["square_low"] - low) < 0.08 * scale).all()
    assert (np.abs(shown["square_high"] - high) < 0.08 * scale).all()
    error = (f**2).std(axis=0) / math.sqrt(n)
    assert (np.abs((f**2).mean(axis=0) - shown["square"]) < 4 * error).all()


def test_slope_of_nu_is_the_square_of_f(found):
    """By automatic differentiation, for a draw: not nu itself, as section 5 prints it."""
    posterior = found.posterior
    Gamma = posterior.sample(1, torch.Generator().manual_seed(2))[0]
    x = toy.grid(300.0, 31).requires_grad_()
    (slope,) = torch.autograd.grad(posterior.prior.source(x, Gamma).sum(), x)
    f = posterior.prior.root(x.detach(), Gamma)
    torch.testing.assert_close(slope, f**2, rtol=1e-9, atol=1e-11)


def test_staircase_climbs_by_the_squared_weights():
    """Draws of the prior: f^2 summed over a period in small steps, which is exact for waves."""
    prior = ISGP(TrigonometricKernel(a=1.5, c=0.01, n_basis=10))
    Gamma = prior.sample(5, torch.Generator().manual_seed(3))
    expected = (Gamma[:, :-1] ** 2).sum(dim=1) / 0.01
    x = 37 + torch.arange(200, dtype=torch.float64)
    summed = prior.derivative(x, Gamma).sum(dim=1)
    ends = prior.source(torch.tensor([-63.0, 137.0], dtype=torch.float64), Gamma)
    torch.testing.assert_close(summed, expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(ends.diff(dim=1)[:, 0], expected, rtol=1e-10, atol=0)


def test_comparison_recounts():
    table = toy.comparison([("steps", 40, 3), ("cubic", 40, 3)], GP, n_samples=100)
    assert table.index.names == ["truth", "n", "seed"]
    data = toy.problem(40, 3)
    found = toy.fit(data, GP)
    x, row = toy.grid(), table.loc[("steps", 40, 3)]
    mean, variance = (v.numpy() for v in found.posterior.moments(x))
    error = data.source(x).numpy() - mean
    assert row["error"] == pytest.approx(np.sqrt((error**2).mean()))
    assert row["covered"] == pytest.approx((np.abs(error) <= 2 * np.sqrt(variance)).mean())
    assert row["noise"] == pytest.approx(float(found.likelihood.alpha) ** -0.5)
    Gamma = found.posterior.sample(100, torch.Generator().manual_seed(3))
    steps = found.posterior.prior.source(toy.grid(n=2001), Gamma).diff(dim=1)
    assert row["falls"] == pytest.approx(float((steps < 0).any(dim=1).double().mean()), abs=0.03)
    assert row["bound"] == pytest.approx(row["laplace"], abs=1e-6)  # a GP's posterior is Gaussian


@pytest.mark.parametrize("objective", ["bound", "laplace"])
def test_evidence_at_the_optimum_is_the_optimum(data, objective):
    found = toy.fit(data, n_basis=12, objective=objective)
    value = toy.evidence_at(found, data, objective)
    assert value == pytest.approx(max(found.values), abs=1e-7)
    moved = toy.evidence_at(found, data, objective, alpha=3.0, mu=0.4)
    kernel, prior = found.posterior.prior.kernel, found.posterior.prior
    posterior = laplace(
        ISGP(kernel, mu=0.4, gamma=prior.gamma),
        Gaussian(3.0),
        data.x,
        data.y,
        start=found.posterior.mode,
    )
    expected = posterior.log_evidence if objective == "laplace" else posterior.evidence_bound
    assert moved == pytest.approx(expected, abs=1e-9)


def test_unknown_hyper_parameter_is_refused(data, found):
    with pytest.raises(ValueError, match=r"expected changes of some of .*, got \['c'\]"):
        toy.evidence_at(found, data, "bound", c=0.1)


@pytest.mark.parametrize("objective", ["bound", "laplace"])
def test_optimum_is_a_maximum_by_its_hessian(objective):
    """Figure 7's caption says minimum. Finite differences in log(a - 1), log b, mu, log alpha."""
    data = toy.problem(60, 0)  # those of the page
    found = toy.fit(data, objective=objective, free_intercept=True)
    prior = found.posterior.prior
    here = np.array(
        [
            math.log(float(prior.kernel.a) - 1),
            math.log(float(prior.kernel.b)),
            float(prior.mu),
            math.log(float(found.likelihood.alpha)),
        ]
    )

    def value(theta):
        a, b, mu, alpha = theta
        return toy.evidence_at(
            found, data, objective, a=1 + math.exp(a), b=math.exp(b), mu=mu, alpha=math.exp(alpha)
        )

    h, units = 0.02, np.eye(4)
    hessian = np.array(
        [
            [
                sum(
                    s * t * value(here + h * (s * units[i] + t * units[j]))
                    for s in (1, -1)
                    for t in (1, -1)
                )
                / (4 * h * h)
                for j in range(4)
            ]
            for i in range(4)
        ]
    )
    assert np.linalg.eigvalsh(hessian).max() < -0.1


def test_slices_move_one_thing_at_a_time(data, found):
    table = toy.slices(found, data, "bound", n=5)
    assert list(table["name"].unique()) == ["a", "b", "mu", "alpha", "gamma"]
    middle = table.groupby("name", sort=False).nth(2)
    for name in ("a", "b", "mu", "alpha"):  # the middle one is the optimum itself
        value = middle.loc[middle["name"] == name, "evidence"].item()
        assert value == pytest.approx(max(found.values), abs=1e-7)
    gamma = table[table["name"] == "gamma"]
    assert gamma["value"].iloc[[0, -1]].tolist() == pytest.approx([1e-4, 1e10])
    assert (np.diff(gamma["evidence"]) > -1e-6).all()  # rises, and then stays


def test_gamma_is_a_precision():
    """One datum far from the line's rise: p(y) has the variance 1/gamma + 1/alpha.

    With next to no slope, nu is nu_0, and the evidence is SciPy's normal density.
    """
    kernel = TrigonometricKernel(a=3.0, c=0.01, n_basis=2).scaled(1e-9)
    zero = torch.zeros(1, dtype=torch.float64)
    for gamma in (0.1, 5.0):
        prior = GP(kernel, mu=0.3, gamma=gamma)
        found = laplace(prior, Gaussian(2.0), zero, zero + 4.0).log_evidence
        expected = norm(0.3, math.sqrt(1 / gamma + 1 / 2.0)).logpdf(4.0)
        assert found == pytest.approx(expected, abs=1e-6)  # the slope's variance is 1e-9


def test_flat_limit_does_not_depend_on_gamma(data, found):
    """It is the data's own: the same under another prior of the intercept, to the curvature."""
    prior = found.posterior.prior
    other = laplace(
        ISGP(prior.kernel, mu=prior.mu, gamma=300 * prior.gamma),
        found.likelihood,
        data.x,
        data.y,
        start=found.posterior.mode,
    )
    one = toy.flat_limit(found.posterior)
    assert one > 10
    assert toy.flat_limit(other) == pytest.approx(one, rel=0.05)
