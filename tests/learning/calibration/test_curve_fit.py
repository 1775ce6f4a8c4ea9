"""The fit of a calibrator's curve, and the same posterior as inference has it."""

import numpy as np
import torch

from bayesloss.learning.calibration.curve_fit import fit_curve, mixture
from bayesloss.learning.data.rows import Rows
from bayesloss.learning.inference.laplace import laplace
from bayesloss.learning.inference.mixtures import NormalBernoulli


def test_components_are_laplaces_and_weights_follow_their_bounds():
    """By the posterior of all cases, which are not spread on a grid."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 300)
    y = (rng.random(300) < 1 / (1 + np.exp(-2 * x))).astype(float)
    found, converged = fit_curve(Rows(x, y, np.ones(300)), 0.1, 2.1, 300.0, 1.0)
    again = mixture(found, 0.1)
    assert converged
    assert again.converged
    bounds = torch.tensor([q.evidence_bound for q in again.components], dtype=torch.float64)
    torch.testing.assert_close(again.weights, torch.softmax(bounds, dim=0))
    at = torch.linspace(-2, 2, 9, dtype=torch.float64)
    for k in (0, 5, 8):
        part = again.components[k]
        direct = laplace(
            part.prior, NormalBernoulli(), torch.from_numpy(x - 0.1), torch.from_numpy(y)
        )
        # The grid moves the mode by a thousandth of a standard deviation at most.
        for one, other in zip(part.moments(at), direct.moments(at), strict=True):
            np.testing.assert_allclose(one, other, rtol=0.01, atol=0.003)
        np.testing.assert_allclose(part.evidence_bound, direct.evidence_bound, atol=0.01)
