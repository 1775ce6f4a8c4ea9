"""The experiment with learned links: its truth, its cells, its figures."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from bayesloss_book.beyond.both import figures, regrets
from bayesloss_book.beyond.both.tilted import labels_joint
from bayesloss_book.labelled_scores import DATA, make_prior


def test_chains_without_labels_are_the_prior():
    prior = make_prior()
    # One label far to the left, where the mean of nu is -4: nearly no information.
    x, y = torch.tensor([-50.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    targets = torch.tensor([-50.0, 0.0, 50.0], dtype=torch.float64)
    by_chain, r_hat, size = regrets.chains(
        labels_joint(prior, x, y), prior.features(targets), n_chains=32, n_draws=300, seed=0
    )
    Gamma = prior.sample(40_000, torch.Generator().manual_seed(0))
    nu = prior.source(targets, Gamma)
    weight = torch.sigmoid(-nu[:, 0])
    exact = (weight / weight.sum()) @ torch.sigmoid(nu)
    error = by_chain.std(0) / 32**0.5 + 0.003
    assert bool(((by_chain.mean(0) - exact).abs() < 4 * error).all())
    assert r_hat < 1.1 and size > 300


def test_a_cell(monkeypatch):
    """Two ratios of costs; one alone has the same measures."""
    cell = {"data": "diabetes", "n": 20, "seed": 0, "n_chains": 6, "n_draws": 60}
    ratios = {ratio: regrets.RATIOS[ratio] for ratio in ("4", "49")}
    monkeypatch.setattr(regrets, "RATIOS", ratios)
    found = regrets.measure(**cell)
    monkeypatch.setattr(regrets, "RATIOS", {"49": ratios["49"]})
    again = regrets.measure(**cell)
    assert again == {name: found[name] for name in again} and len(again) < len(found)
    for ratio in ratios:
        for name in regrets.METHODS:
            assert 0 <= found[f"{name}_{ratio}"] <= 1
            assert 0 <= found[f"{name}_{ratio}_paid"] <= 1


def test_figures():
    here = figures.live("simulated", 20, 0, 4, 30)
    curves = figures.risks(here, 0.2, 5)
    assert (curves > 0).all().all()
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        [
            {"data": data, "n": n, "seed": seed}
            | {f"{m}_{r}": rng.uniform(0, 0.1) for m in regrets.METHODS for r in regrets.RATIOS}
            for data in DATA
            for n in (20, 100)
            for seed in range(2)
        ]
    )
    drawn = figures.draw_links(here, 0.2), figures.draw_risk(curves), figures.draw_regrets(rows)
    drawn += (figures.draw_mixture(here, (0.2, 0.5), 20),)
    assert [len(figure.axes) for figure in drawn] == [1, 1, 2, 2]
    assert len(figures.by_kind(rows)) == len(DATA) * len(regrets.METHODS)
    for figure in drawn:
        plt.close(figure)
