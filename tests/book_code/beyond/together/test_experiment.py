"""Decisions judged together on Table 4's data: draws, loss-EM, and what a cell stores."""

import numpy as np
import pandas as pd
import pytest
import torch

from bayesloss.calibrating.decide_together import decide_together
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.laplace import laplace_probit
from bayesloss.calibrating.probit.whitened_gp import predictive
from bayesloss_book.beyond.together import experiment
from bayesloss_book.references.probit_references import draw_data

SMALL = {"n_sets": 2, "n_draws": 32, "n_labels": 2}


@pytest.fixture(scope="module")
def cell():
    sizes = experiment.SIZES
    experiment.SIZES = (10, 20)
    yield experiment.measure(length_scale=0.3, amplitude=3.0, repetition=1, **SMALL)
    experiment.SIZES = sizes


def test_a_cell_has_all_methods_utilities_and_tests(cell):
    found = experiment.summary(pd.DataFrame([cell, cell]))
    assert len(found) == len(experiment.METHODS) * (4 + 3) * len(experiment.INPUTS)
    assert np.isfinite(found["mean"]).all()
    assert (found["mean"].abs() <= 1).all()
    assert (found["error"] == 0).all()
    assert (found["gap"] >= 0).all()
    assert found.loc[["budget", "f"]]["gap"].max() < 1e-12


@pytest.mark.parametrize("name", experiment.UTILITIES)
def test_utilities_lie_between_0_and_1(name):
    utility, k = experiment.utility_of(name, 10)
    chosen = np.arange(11) if k is None else np.array([k])
    chosen, positives = np.meshgrid(chosen, np.arange(11))
    for hits in (np.maximum(0, chosen + positives - 10), np.minimum(chosen, positives)):
        values = utility(hits, chosen, positives)
        assert values.min() >= 0
        assert values.max() <= 1
    assert utility(np.array(4), np.array(4), np.array(4)) == (2 if name == "budget" else 1)


def test_chains_and_weighted_points_agree_on_the_joint_law():
    prior, y, unit = draw_data(0.3, 3.0, 2, 3, 5)
    ep = expectation_propagation(prior.features, y)
    long = experiment.chains(prior, y, laplace_probit(prior.features, y), 500, 5)
    points = experiment.weighted_draws(prior, y, ep, 4_096, 5)
    generator = torch.Generator().manual_seed(0)
    for j in range(2):
        one = experiment.data_set(prior, j)
        by_chains = one.draw_labels(long[:, :, j].flatten(0, 1), unit[0] + 0.2, generator)
        by_points = one.draw_labels(points[j], unit[0] + 0.2, generator)
        pairs = [(d.double().T @ d.double() / len(d)) for d in (by_chains, by_points)]
        # Chains of 2,000 draws with an effective size of a quarter; 4.5 standard errors of each.
        assert (pairs[0] - pairs[1]).abs().max() < 4.5 * 0.5 * (500**-0.5 + 4_000**-0.5)


def test_drawn_labels_have_the_predictive_probabilities():
    prior, y, unit = draw_data(0.3, 3.0, 1, 40, 2)
    q = expectation_propagation(prior.features, y)
    generator = torch.Generator().manual_seed(0)
    z = q.sample(20_000, generator)
    drawn = prior.draw_labels(z, unit[:1], generator)[0].double().mean(0)
    exact = predictive(q, *prior.project(unit[:1]))[0]
    assert (drawn - exact).abs().max() < 4.5 * 0.5 / 20_000**0.5


def test_loss_em_of_a_constant_utility_is_the_bayes_choice():
    draws = np.random.default_rng(0).integers(0, 2, size=(40, 6))
    found = experiment.loss_em(draws, 2, lambda hits, chosen, positives: 1.0 + 0 * hits, None)
    assert found.utility == pytest.approx(1)
    budget, k = experiment.utility_of("budget", 10)
    many = np.random.default_rng(1).integers(0, 2, size=(400, 10))
    # Weighted by its own hits, a choice of k holds on to what it has chosen.
    chosen = decide_together(many, budget, k=k).chosen
    assert (experiment.loss_em(many, 1, budget, k).chosen == chosen).all()
