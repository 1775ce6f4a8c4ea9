"""The data of LHG section 5, and the two references: against each other, and formulas."""

import numpy as np
import torch

from bayesloss_book.calibrating.asymmetric_losses import table_4 as experiment
from bayesloss_book.references import probit_references as references


def test_references_agree_with_each_other_and_without_the_grid():
    here = experiment.trial(0.3, 3.0, 5, 50, seed=2)
    hmc = references.by_hamiltonian_monte_carlo(
        here.prior, here.y, here.laplace, n_chains=4, n_draws=1500, lengths=(100,), seed=0
    )
    importance = references.by_importance_sampling(
        here.prior, here.y, here.ep, n_draws=4096, seed=0
    )
    x = here.test_inputs("u_02_12")
    # Standard deviations of Phi below 0.3 and 3000 effective draws or more: 4 x 0.3 / 55.
    assert (hmc.predictive(x) - importance.predictive(x)).abs().max() < 0.02
    assert hmc.r_hat < 1.02 and hmc.effective_size > 500
    assert importance.effective_size > 1000
    assert hmc.per_chain(x).shape == (4, 5, 50)
    torch.testing.assert_close(hmc.per_chain(x).mean(0), hmc.predictive(x), rtol=1e-5, atol=1e-12)
    gap = (hmc.shorter[100](x) - importance.predictive(x)).abs()
    assert 0.01 < float(gap.max()) < 0.25  # a hundred draws are a hundred draws

    # The same weighted sample without the spline.
    rank = here.prior.features.shape[-1]
    w = references.qmc.MultivariateNormalQMC(np.zeros(rank), rng=np.random.default_rng(0))
    w = torch.from_numpy(w.random(4096))
    features, noise = here.prior.project(x.expand(5, -1))
    root = references._WIDER * torch.linalg.cholesky(here.ep.covariance)
    for i in range(5):
        z = here.ep.mean[i] + w @ root[i].T
        likelihood = torch.special.ndtr(here.y[i] * (z @ here.prior.features[i].T)).prod(-1)
        weight = likelihood * torch.exp(-0.5 * (z**2).sum(-1) + 0.5 * (w**2).sum(-1))
        direct = (weight @ torch.special.ndtr(z @ features[i].T / noise[i])) / weight.sum()
        assert (importance.predictive(x)[i] - direct).abs().max() < 1e-6


def test_spline_is_exact_enough():
    """p(x) has features as narrow as length scale / amplitude: here five grid steps, not ten."""
    here = experiment.trial(0.2, 4.0, 4, 200, seed=1)
    importance = references.by_importance_sampling(here.prior, here.y, here.ep, n_draws=64, seed=0)
    fine = torch.linspace(0, 1.5, 601, dtype=torch.float64)
    coarse = importance.predictive(fine)
    old = references.GRID
    try:
        references.GRID = fine
        again = references.by_importance_sampling(here.prior, here.y, here.ep, n_draws=64, seed=0)
    finally:
        references.GRID = old
    assert (coarse - again.predictive.on_grid).abs().max() < 1e-4


def test_data_come_from_the_prior():
    """Labels are fair coins over data sets, and neighbours agree as the kernel says."""
    prior, y, unit = references.draw_data(0.3, 1.0, 4000, 7, seed=0)
    assert unit.shape == (3, 7)
    assert abs(float(y[:, 0].mean())) < 4 / 4000**0.5
    # P(equal labels) = 1/2 + arcsin(rho)/pi with rho = k(x, z) / (1 + 1), over all pairs.
    x = prior.inputs
    rho = 0.5 * torch.exp(-0.5 * ((x[:, :, None] - x[:, None, :]) / 0.3) ** 2)
    excess = (y[:, :, None] == y[:, None, :]).double() - 0.5 - torch.arcsin(rho) / torch.pi
    above = excess.triu(diagonal=1).sum((1, 2))
    assert abs(float(above.mean())) < 4 * float(above.std()) / 4000**0.5
