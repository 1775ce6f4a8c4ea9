"""Laplace's method and EP under a kernel matrix, against those by whitened weights."""

import numpy as np
import pytest
import torch

from bayesloss.calibrating.probit import kernel_matrix
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.kernel_matrix import evidence_under, laplace_sites
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
