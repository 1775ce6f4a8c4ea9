"""Laplace's method and EP under a kernel matrix, against those by whitened weights."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from bayesloss.calibrating.kernel_matrices import kernel_matrix
from bayesloss.calibrating.kernel_matrices.kernel_matrix import (
    evidence_under,
    fit_weights,
    laplace_sites,
)
from bayesloss.calibrating.probit import whitened_gp
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.laplace import laplace_probit
from bayesloss.calibrating.probit.whitened_gp import Sites, WhitenedGP, hazard
from bayesloss.kernels import SquaredExponential

INFERENCES = {"ep": expectation_propagation, "laplace": laplace_probit}


def problem(amplitude, n=40, n_sets=2):
    """A singular kernel matrix, as each input is there twice, and noisy labels."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(np.repeat(rng.uniform(0, 1, n // 2), 2))
    p = 0.5 + 0.45 * np.sin(6 * x.numpy())
    y = torch.from_numpy(np.where(rng.uniform(size=(n_sets, n)) < p, 1.0, -1.0))
    kernel = SquaredExponential(a=0.2**-2, b=amplitude**2)
    features = WhitenedGP.at(kernel, x[None], batch_dims=1).features.expand(n_sets, -1, -1)
    return kernel(x, x), features, y


@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("amplitude", [0.5, 3.0, 30.0])
def test_sites_and_evidence_are_those_of_the_weights(inference, amplitude):
    K, features, y = problem(amplitude)
    found = evidence_under(K, y, inference)
    expected = INFERENCES[inference](features, y)
    assert expected.converged.all()
    # Both stop when nothing changes by more than 1e-9 or so; the kernel amplifies that.
    assert found.value == pytest.approx(float(expected.log_evidence.sum()), abs=1e-7)
    for ours, theirs in zip(found.sites, expected.label_sites(), strict=True):
        assert (ours - theirs).abs().max() < 1e-6


@pytest.mark.parametrize("inference", INFERENCES)
def test_slopes_are_those_of_finite_differences(inference):
    """Along a kernel matrix that is none of the search's: one more, of another length scale."""
    K, _, y = problem(3.0)
    x = torch.linspace(0, 1, len(K), dtype=torch.float64)
    direction = SquaredExponential(a=30.0)(x, x)
    slope = 0.5 * float((evidence_under(K, y, inference).by_kernel * direction).sum())
    h = 1e-4
    up = evidence_under(K + h * direction, y, inference).value
    down = evidence_under(K - h * direction, y, inference).value
    # Central differences are good to h^2, and to 1e-9 / h in rounding.
    assert slope == pytest.approx((up - down) / (2 * h), abs=1e-4)


@pytest.mark.parametrize("start", [None, "far off"])
def test_newton_steps_that_go_too_far(start):
    """At the mode K^-1 f is the likelihood's slope. Whole steps do not get there from either."""
    rng = np.random.default_rng(19)
    x = torch.from_numpy(rng.uniform(size=(24, 2)))
    K = SquaredExponential(a=0.28**-2, b=360.0**2)(x, x)
    y = torch.from_numpy(np.where(rng.uniform(size=(1, 24)) < 0.5, 1.0, -1.0))
    if start is not None:
        start = Sites(precision=torch.full_like(y, 1e-3), shift=-y)
    sites = laplace_sites(K, y, start)
    # f = (K^-1 + T)^-1 s, where some precisions T are nought.
    system = torch.eye(len(K), dtype=K.dtype) + sites.precision[..., None] * K
    weights = torch.linalg.solve(system, sites.shift[..., None]).squeeze(-1)
    assert (weights - y * hazard(y * (weights @ K))).abs().max() < 1e-7


def test_ep_that_does_not_settle_goes_on_site_by_site(monkeypatch):
    K, _, y = problem(3.0)
    expected = evidence_under(K, y, "ep")
    monkeypatch.setattr(kernel_matrix, "_SWEEPS", 2)
    found = evidence_under(K, y, "ep")
    assert found.value == pytest.approx(expected.value, abs=1e-8)
    assert (found.sites.shift - expected.sites.shift).abs().max() < 1e-6


@pytest.mark.parametrize("precision", [0.0, 1e-15, 1e-4, 0.5])
def test_marginals_under_sites_of_any_precision(precision):
    """Against the kernel matrix and its posterior, GPML (3.53), by another formula."""
    K, _, y = problem(3.0)
    sites = Sites(precision=torch.full_like(y, 0.2), shift=y)
    sites.precision[:, ::3] = precision
    found = kernel_matrix._KernelPosterior(K).marginals(sites)
    system = torch.eye(len(K), dtype=K.dtype) + K * sites.precision[:, None, :]
    V = torch.linalg.solve(system, K.expand_as(system))
    torch.testing.assert_close(found.variance, V.diagonal(dim1=1, dim2=2), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.mean, (V @ y[..., None])[..., 0], rtol=0, atol=1e-11)


@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("amplitude", [0.5, 3.0, 30.0])
@pytest.mark.parametrize("twice", [True, False], ids=["coincident", "distinct"])
def test_many_inputs_have_the_same_posterior(inference, amplitude, twice, monkeypatch):
    """By pivots and under the kernel matrix as by eigenvectors and their weights."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 1, (40, 2))
    if twice:
        x[20:] = x[:20]
    x = torch.from_numpy(x)
    y = torch.from_numpy(np.where(rng.uniform(size=(3, 40)) < 0.3 + 0.5 * x[:, 0].numpy(), 1.0, -1))
    kernel = SquaredExponential(a=0.1**-2, b=amplitude**2)
    few = WhitenedGP.at(kernel, x[None], batch_dims=1)
    expected = INFERENCES[inference](few.features.expand(3, -1, -1), y)
    monkeypatch.setattr(whitened_gp, "MANY_INPUTS", 0)
    monkeypatch.setattr(kernel_matrix, "MANY_INPUTS", 0)
    many = WhitenedGP.at(kernel, x[None], batch_dims=1)
    found = fit_weights(many, y, inference, start=None, max_iter=200)
    assert found.converged.all() and found.at_inputs is not None
    # Both stop when nothing changes by more than 1e-9 or so; the amplitude magnifies that.
    near = {"rtol": 0, "atol": 1e-8 * max(1.0, amplitude)}
    torch.testing.assert_close(found.log_evidence, expected.log_evidence, **near)
    for ours, theirs in zip(found.label_sites(), expected.label_sites(), strict=True):
        torch.testing.assert_close(ours, theirs, **near)
    torch.testing.assert_close(found.latent(many.features).mean, found.at_inputs.mean, **near)
    new = torch.from_numpy(rng.uniform(-1, 2, (1, 50, 2)))
    torch.testing.assert_close(
        found.margin(*many.project(new)), expected.margin(*few.project(new)), **near
    )
    for ours, theirs in zip(
        found.held_out(many.features), expected.held_out(few.features), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=near["atol"])


@pytest.mark.parametrize("inference", INFERENCES)
def test_many_inputs_begin_at_the_sites_given_and_end_after_max_iter(inference, monkeypatch):
    _, _, y = problem(3.0)
    x = torch.linspace(0, 1, 40, dtype=torch.float64)
    prior = WhitenedGP.at(SquaredExponential(a=0.02**-2, b=9.0), x[None], batch_dims=1)
    monkeypatch.setattr(kernel_matrix, "MANY_INPUTS", 0)
    from_nothing = fit_weights(prior, y, inference, start=None, max_iter=200)
    again = fit_weights(prior, y, inference, start=from_nothing.label_sites(), max_iter=200)
    assert again.n_iterations == 1 < from_nothing.n_iterations
    with pytest.warns(ConvergenceWarning, match="in 1 sweeps|in 1 iterations"):
        cut = fit_weights(prior, y, inference, start=None, max_iter=1)
    assert cut.n_iterations == 1 and not cut.converged.any()
