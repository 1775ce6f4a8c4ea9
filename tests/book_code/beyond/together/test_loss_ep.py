"""Loss-EP for utilities of a set: the drawn site against the closed one, and what a cell stores."""

import numpy as np
import pandas as pd
import pytest
import torch

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.utility import LogUtility
from bayesloss_book.beyond.together import experiment, loss_ep
from bayesloss_book.beyond.together.loss_ep import DrawnUtility, choose
from bayesloss_book.references.probit_references import draw_data


def right(hits, chosen, positives):
    """The share of right decisions on six targets: a sum over targets."""
    return 1 - (chosen + positives - 2 * hits) / 6


@pytest.fixture(scope="module")
def problem():
    prior, y, unit = draw_data(0.3, 3.0, 1, 6, 3)
    return experiment.data_set(prior, 0), y[0], unit[0] + 0.5


def test_of_a_sum_over_targets_the_drawn_site_is_the_closed_one(problem):
    gp, y, x = problem
    q = expectation_propagation(gp.features[None], y[None])
    chosen = np.array([True, True, False, True, False, False])
    h = torch.from_numpy(np.where(chosen, 1.0, -1.0))[None]
    targets, noise = (part[None] for part in gp.project(x))
    closed = LogUtility(targets, noise, h, CostMatrix(1, 1), 1.0)
    found = []
    for seed in range(10):
        drawn = DrawnUtility(gp, x, right, 8192, 2 * seed)
        drawn.chosen = chosen
        found.append(drawn.log_expectation(q.mean, q.covariance))
    for expected, each in zip(
        closed.log_expectation(q.mean, q.covariance), zip(*found, strict=True), strict=True
    ):
        values = torch.stack(each)
        # Ten repetitions, so that a t of nine degrees of freedom: 99.99 % of entries within 6.
        assert ((values.mean(0) - expected).abs() < 6.1 * values.std(0) / 10**0.5 + 1e-12).all()
        assert (expected.abs() > 10 * values.std(0) / 10**0.5).any()


def test_a_constant_utility_has_no_site_and_changes_no_choice(problem):
    gp, y, x = problem
    term = DrawnUtility(gp, x, lambda hits, chosen, positives: 0.5 + 0.0 * hits, 512, 0)
    q = expectation_propagation(gp.features[None], y[None])
    value, slope, bend = term.log_expectation(q.mean, q.covariance)
    assert float(value) == pytest.approx(np.log(0.5))
    assert slope.abs().max() < 1e-10
    assert bend.abs().max() < 1e-10
    found = choose(y, term, None)
    assert found.numbers == {"/changed": 0, "/settled": 1}
    assert (found.before == found.choices[""]).all()


def test_a_cell_has_gains_for_each_utility_and_test(monkeypatch):
    monkeypatch.setattr(loss_ep, "FEW", (10,))
    sizes = {"n_sets": 2, "n_draws": 256, "n_chain": 16, "n_labels": 1}
    cell = loss_ep.measure(length_scale=0.3, amplitude=3.0, repetition=1, **sizes)
    assert len(cell) == 3 * 4 * 2
    assert np.isfinite(list(cell.values())).all()
    changed = [value for key, value in cell.items() if key.endswith("/changed")]
    gains = [value for key, value in cell.items() if key.count("/") == 2]
    assert all(c > 0 or g == 0 for c, g in zip(changed, gains, strict=True))


def test_a_summary_has_a_row_for_each_utility():
    keys = [f"{u}/10/{test}" for u in experiment.UTILITIES for test in ("a", "b")]
    shares = {f"{key}/{kind}": 0.25 for key in keys for kind in ("changed", "settled")}
    stored = pd.DataFrame([dict.fromkeys(keys, gain) | shares for gain in (1.0, 3.0)])
    found = loss_ep.summary(stored)
    assert list(found.index) == list(experiment.UTILITIES)
    assert (found["gain"] == 2).all()
    assert (found["error"] == 1).all()
    assert (found[["changed", "settled"]] == 0.25).all(axis=None)
