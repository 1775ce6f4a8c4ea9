"""The experiment with learned links: its truth and a cell."""

import torch

from bayesloss_book.beyond.both import regrets
from bayesloss_book.beyond.both.tilted import labels_joint
from bayesloss_book.data.labelled_scores import make_prior


def test_chains_without_labels_are_the_prior():
    prior = make_prior()
    # One label far to the left, where the mean of nu is -4: nearly no information.
    x = torch.tensor([-50.0], dtype=torch.float64)
    y = torch.zeros(1, dtype=torch.float64)
    targets = torch.tensor([-50.0, 0.0, 50.0], dtype=torch.float64)
    by_chain, r_hat, size = regrets.chains(
        labels_joint(prior, x, y), prior.features(targets), n_chains=32, n_draws=300, seed=0
    )
    nu = prior.source(targets, prior.sample(40_000, torch.Generator().manual_seed(0)))
    weight = torch.sigmoid(-nu[:, 0])
    exact = (weight / weight.sum()) @ torch.sigmoid(nu)
    error = by_chain.std(0) / 32**0.5 + 0.003
    assert bool(((by_chain.mean(0) - exact).abs() < 4 * error).all())
    assert r_hat < 1.1 and size > 300


def test_a_cell(monkeypatch):
    """With one ratio of costs: all methods, and regrets of which the chains' own is zero."""
    monkeypatch.setattr(regrets, "RATIOS", {"49": regrets.RATIOS["49"]})
    found = regrets.measure(data="diabetes", n=20, seed=0, n_chains=6, n_draws=30)
    assert all(
        0 <= found[f"{name}_49{end}"] <= 1 for name in regrets.METHODS for end in ("", "_paid")
    )
