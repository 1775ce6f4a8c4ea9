"""Loss-EM with its full M-step: by all labels, all sets, and finite differences of LHG's bound."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

from bayesloss.calibrating.probit.whitened_gp import log_likelihood
from bayesloss.quadrature import gauss_hermite
from bayesloss_book.beyond.together import full_loss_em, loss_ep
from bayesloss_book.beyond.together.experiment import UTILITIES, data_set, utility_of
from bayesloss_book.beyond.together.full_loss_em import FullLossEM, mean_utility, moments
from bayesloss_book.references.probit_references import draw_data

EVERY = np.array(list(product([False, True], repeat=6)))


@pytest.fixture(scope="module", params=["f", "saturating"])
def problem(request):
    prior, y, unit = draw_data(0.3, 3.0, 1, 6, 3)
    gp = data_set(prior, 0)
    em = FullLossEM(gp, y[0], unit[0] + 0.5, utility_of(request.param, 10)[0], 1024, 16, 1)
    unit = torch.eye(gp.features.shape[1], dtype=torch.float64)
    q = em.with_labels((0 * unit[0], 0 * unit), (0 * unit[0], unit))
    return em, q, np.array([True, True, False, True, True, True])


def bound(em, q, chosen):
    """LHG (10), but for a constant, with M = 1.1: by quadrature and the same draws."""
    (mean, root, _), (nodes, weights) = moments(q), gauss_hermite(64)
    f = em.features @ mean
    spread = (em.features @ root).norm(dim=1)
    fit = log_likelihood(em.y[:, None] * (f[:, None] + spread[:, None] * nodes)) @ weights
    kl = 0.5 * (mean @ mean + (root**2).sum()) - torch.linalg.slogdet(root)[1]
    return float(fit.sum() - kl + em.log_gain(em.chances(q), chosen).mean())


@pytest.mark.parametrize("name", UTILITIES)
def test_the_mean_utility_is_that_of_all_labels(name):
    p = torch.rand((3, 6), generator=torch.Generator().manual_seed(0), dtype=torch.float64).numpy()
    chosen = EVERY[44]
    utility = utility_of(name, 10)[0]
    values = utility(EVERY[:, chosen].sum(1), chosen.sum(), EVERY.sum(1))
    expected = values @ np.where(EVERY[:, None], p, 1 - p).prod(2)
    assert mean_utility(torch.from_numpy(p), chosen, utility).numpy() == pytest.approx(expected)


def test_the_e_step_ends_at_the_top_of_the_bound(problem):
    em, q, chosen = problem
    best, settled = em.e_step(q, chosen)
    assert settled
    top = bound(em, best, chosen)
    (mean, root, _) = moments(best)
    assert top > bound(em, q, chosen)
    chance = torch.Generator().manual_seed(0)
    for _ in range(4):
        way = torch.randn((len(mean), len(mean) + 1), generator=chance, dtype=torch.float64)
        way *= 0.1 / way.norm()
        for sign in (1, -1):
            moved = root @ (torch.eye(len(mean)) + sign * way[:, 1:].tril())
            precision = torch.linalg.inv(moved @ moved.T)
            other = precision @ (mean + root @ (sign * way[:, 0])), precision
            assert bound(em, other, chosen) < top  # by about 0.1^2 / 2, with slopes below 0.01


def test_the_m_step_finds_the_best_of_all_sets(problem):
    em, q, chosen = problem
    found, missed = em.m_step(q, ~chosen, None)
    values = [float(em.log_gain(em.chances(q), each).mean()) for each in EVERY]
    assert float(em.log_gain(em.chances(q), found).mean()) == pytest.approx(max(values))
    assert missed < 0.3


def test_a_cell_has_gains_of_each_run(monkeypatch):
    monkeypatch.setattr(loss_ep, "FEW", (10,))
    sizes = {"n_sets": 1, "n_draws": 192, "n_open": 2, "n_chain": 8, "n_labels": 1}
    cell = full_loss_em.measure(length_scale=0.3, amplitude=3.0, repetition=1, **sizes)
    assert len(cell) == 4 * 2 * (1 + 4 * len(full_loss_em.STARTS))
    found = full_loss_em.summary(pd.DataFrame([cell, cell]))
    assert np.isfinite(found).all(axis=None)
    assert (found["error"] == 0).all()
    keys = ("f/10/u_05_15", "f/10/u_00_10")
    gains = [cell[f"{key}/random"] - cell[f"{key}/gaussian"] for key in keys]
    assert found["gain"]["f", "random"] == pytest.approx(np.mean(gains))
