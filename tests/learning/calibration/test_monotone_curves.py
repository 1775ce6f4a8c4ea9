"""Curves in NumPy against the priors of PyTorch, which integrate by another route."""

import numpy as np
import pytest
import torch

from bayesloss.learning.calibration.monotone_curves import (
    CurveComponent,
    CurvePosterior,
    MonotoneCurve,
    monotone_curves,
)
from bayesloss.learning.sources.priors import CentredISGP, StraightEnds
from bayesloss.learning.sources.trigonometric import TrigonometricKernel


@pytest.fixture(params=[4, 16])
def prior(request):
    kernel = TrigonometricKernel(a=1.5, c=0.3, n_basis=request.param).scaled(0.4)
    return StraightEnds(CentredISGP(kernel, tau=0.5, mu=0.7), kernel.edge, 2 * kernel.edge)


def test_values_and_slopes_are_those_of_the_prior(prior):
    """On the period, at its ends, near zero and beyond."""
    x = np.r_[np.linspace(-9, 9, 200), 1 / 0.3, -1 / 0.3, 0.0, 1e-9]
    Gamma = prior.sample(5, torch.Generator().manual_seed(0))
    nu, slope = monotone_curves(x, Gamma.numpy(), 0.3)
    at = torch.from_numpy(x)
    np.testing.assert_allclose(nu, prior.source(at, Gamma), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(slope, prior.derivative(at, Gamma), rtol=1e-11, atol=1e-12)


def test_derivatives_by_gamma_are_those_of_the_prior(prior):
    x = np.linspace(-9, 9, 50)
    Gamma = prior.sample(1, torch.Generator().manual_seed(1))[0]
    curve = MonotoneCurve(0.2, 0.3, Gamma.numpy(), prior.precision.numpy())
    at = torch.from_numpy(x - 0.2)
    slope, by_gamma = curve.derivatives(x)
    np.testing.assert_allclose(curve(x), prior.source(at, Gamma), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(slope, prior.derivative(at, Gamma), rtol=1e-11)
    expected = prior.features(at) @ prior.jacobian(Gamma)
    np.testing.assert_allclose(by_gamma, expected, rtol=1e-12, atol=1e-12)


def test_draws_have_each_components_share_of_the_rows():
    roots = np.array([[[2.0, 1.0], [0.0, 1.0]], np.eye(2)])
    components = [
        CurveComponent(
            prior=k,
            weight=weight,
            mode=np.array(mode),
            triangle=root[np.triu_indices(2)],
            log_evidence=0.0,
            evidence_bound=0.0,
            least_curvature=1.0,
            converged=True,
            n_iter=1,
        )
        for k, (weight, mode, root) in enumerate(
            zip([0.25, 0.75], [[1.0, 2.0], [5.0, 6.0]], roots, strict=True)
        )
    ]
    np.testing.assert_array_equal([component.root for component in components], roots)
    q = CurvePosterior(c=1.0, components=components, converged=True)
    np.testing.assert_array_equal(q.draws(np.ones((4, 2))), [[4, 3], [6, 7], [6, 7], [6, 7]])
