import numpy as np
import pandas as pd
import pytest
import torch

from bayesloss_book.beyond.both.regrets import chains
from bayesloss_book.beyond.both.tilted import labels_joint
from bayesloss_book.beyond.costs_unknown import labels

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("t", [None, 0.5, 0.05])
def test_the_value_of_a_label_by_going_through_both_answers(t):
    p = np.sort(RNG.random((40, 101)), axis=1)
    weight = RNG.dirichlet(np.ones(40))
    mass = RNG.dirichlet(np.ones(101))
    found = labels.expected_after(p, weight, mass, t)
    for x in (0, 30, 77):
        expected = 0.0
        for label in (0, 1):
            likelihood = p[:, x] if label else 1 - p[:, x]
            chance = weight @ likelihood
            after = (weight * likelihood / chance) @ p
            if t is None:
                risk = -after * np.log(after) - (1 - after) * np.log(1 - after)
            else:
                risk = np.where(after > t, t * (1 - after), (1 - t) * after)
            expected += chance * (mass @ risk)
        assert found[x] == pytest.approx(expected)


def test_regret_by_trying_all_cuts():
    pool = labels.Pool.of(*RNG.uniform(-50, 50, 30)[None], np.ones(30), *_targets())
    for t in labels.RATIOS.values():
        by_cut = []
        for cut in range(102):
            yes = np.arange(101) >= cut
            false = (pool.mass - pool.positive)[yes].sum() * t / (1 - t)
            by_cut.append(false + pool.positive[~yes].sum())
        for cut in (0, 40, 101):
            p = np.where(np.arange(101) >= cut, 1.0, 0.0)
            assert pool.regret(p, t) == pytest.approx(by_cut[cut] - min(by_cut))


def _targets():
    scores = RNG.uniform(-50, 50, 200)
    return scores, (RNG.random(200) < 1 / (1 + np.exp(-scores / 10))).astype(float)


def test_paths_are_those_of_long_chains():
    paths = labels.Paths(4_096, 1)
    chance = np.random.default_rng(1)
    nodes = chance.integers(0, 101, 24)
    y = (chance.random(24) < 1 / (1 + np.exp(-labels.NODES[nodes] / 8))).astype(float)
    for node, label in zip(nodes, y, strict=True):
        paths.add(int(node), float(label))
    at = torch.from_numpy(labels.NODES)
    joint = labels_joint(paths.prior, at[nodes], torch.from_numpy(y))
    by_chain = chains(joint, paths.features, n_chains=16, n_draws=500, seed=0)[0]
    error = by_chain.std(0) / 4  # of the chains; paths are worth about a thousand draws
    assert (by_chain.mean(0) - torch.from_numpy(paths.mean)).abs().max() < 4 * error.max() + 0.03


def test_rules_ask_where_they_say():
    paths = labels.Paths(256, 0)
    for node, label in ((20, 0.0), (45, 0.0), (70, 1.0), (75, 1.0)):
        paths.add(node, label)
    mass = np.full(101, 1 / 101)
    at = {m: int(labels.choose(m, paths, mass, 0.2).argmin()) for m in ("threshold", "variance")}
    assert abs(paths.mean[at["threshold"]] - 0.2) == np.abs(paths.mean - 0.2).min()
    variance = np.cov(paths.nu.T, aweights=paths.weight, bias=True).diagonal()
    assert at["variance"] == variance.argmax()


def test_a_curve_has_an_increasing_link_at_each_size():
    few = labels.curve(labels.draw("simulated", 0), "regret", 0.05, 64, 0)
    assert list(few) == list(labels.LABELS)
    assert all((np.diff(p) >= -1e-12).all() for p in few.values())


def test_labels_needed_of_known_curves():
    def row(factor):
        return {
            f"{m}/{r}/{n}": 100 / (n * (factor if m == "regret" else 1))
            for m in labels.METHODS
            for r in labels.RATIOS
            for n in labels.LABELS
        }

    sets = {"a": 2, "b": 100, "c": 0.01}
    stored = pd.DataFrame([{"data": data, **row(factor)} for data, factor in sets.items()])
    assert labels.against_random(labels.curves(stored)).loc[("5", 16, "regret"), "mean"] == (
        pytest.approx(100 * np.mean([1 / factor for factor in sets.values()]))
    )
    found = labels.needed(labels.curves(stored))
    assert found.loc[("1", "a"), "random"] == pytest.approx(32)
    assert found.loc[("1", "a"), "regret"] == pytest.approx(16)
    assert found.loc[("1", "b"), "regret"] == labels.LABELS[0]
    assert found.loc[("1", "c"), "regret"] == labels.LABELS[-1]
