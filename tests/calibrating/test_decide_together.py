import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, norm

from bayesloss import GPClassifier, decide_together
from bayesloss.calibrating.decide_together import f_measure

BY_HITS = np.cumsum([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0])  # convex
UTILITIES = {
    "f": f_measure,
    "budget": lambda hits, chosen, positives: hits,
    "costs": lambda hits, chosen, positives: -(chosen - hits) - 3.0 * (positives - hits),
    "saturating": lambda hits, chosen, positives: -np.minimum(chosen + positives - 2 * hits, 3),
    "any": lambda hits, chosen, positives: 1.0 * (chosen + positives == 2 * hits),
    # Not a number at hits that no choice can have, such as more than there are positives:
    "roots": lambda hits, chosen, positives: -np.sqrt(positives - hits) - np.sqrt(chosen - hits),
    "by hits": lambda hits, chosen, positives: BY_HITS[hits] - chosen,  # needs whole numbers
}
LINEAR = ("f", "budget", "costs")


def labels(seed, m=8, n=60):
    chance = np.random.default_rng(seed)
    common = chance.normal(size=(n, 1)) * chance.choice([0, 1, 3])
    p = 1 / (1 + np.exp(-(1.5 * chance.normal(size=m) + common)))
    return (chance.random((n, m)) < p).astype(int), chance.random(n)


def best_bound(draws, weight, utility, sets):
    """The most that a choice is worth if the utility is the chord of its ends over the hits."""
    m = draws.shape[1]
    positives = draws.sum(axis=1)
    worths = []
    for chosen in sets:
        size = chosen.sum()
        least = np.maximum(0, size + positives - m)
        most = np.minimum(size, positives)
        ends = [utility(hits, size, positives) for hits in (least, most)]
        part = (draws[:, chosen].sum(axis=1) - least) / np.where(most > least, most - least, 1)
        worths.append(np.average((1 - part) * ends[0] + part * ends[1], weights=weight))
    return max(worths)


def worth(draws, weight, utility, chosen):
    return np.average(utility(draws[:, chosen].sum(1), chosen.sum(), draws.sum(1)), weights=weight)


@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("name", UTILITIES)
def test_all_choices_are_no_better(name, k):
    missed = []
    for seed in range(12):
        draws, weight = labels(seed)
        found = decide_together(draws, UTILITIES[name], k=k, sample_weight=weight)
        every = np.array(list(itertools.product([False, True], repeat=draws.shape[1])))
        every = every if k is None else every[every.sum(1) == k]
        best = max(worth(draws, weight, UTILITIES[name], chosen) for chosen in every)
        own = worth(draws, weight, UTILITIES[name], found.chosen)
        assert found.utility == pytest.approx(own, abs=1e-12)
        assert found.bound >= best - 1e-12
        bound = best_bound(draws, weight, UTILITIES[name], every)
        assert found.bound == pytest.approx(bound, abs=1e-12)
        assert k is None or found.chosen.sum() == k
        assert name not in LINEAR or found.bound == pytest.approx(found.utility, abs=1e-9)
        missed.append(best - found.utility)
    assert max(missed) < (1e-12 if name in LINEAR else 0.05)
    assert np.mean(np.array(missed) < 1e-12) >= (1 if name in LINEAR else 0.75)


def test_independent_labels_of_one_probability():
    """With P of 12 equal cases positive, k of them give 2 E[t / (k + P)], t hypergeometric."""
    m = 12
    p = 0.3
    every = np.array(list(itertools.product([0, 1], repeat=m)))
    weight = p ** every.sum(1) * (1 - p) ** (m - every.sum(1))
    found = decide_together(every, sample_weight=weight)
    P = np.arange(m + 1)
    by_k = [
        binom.pmf(P, m, p) @ np.where(k + P > 0, 2 * k * P / m / np.maximum(k + P, 1), 1)
        for k in range(m + 1)
    ]
    assert found.utility == pytest.approx(max(by_k), rel=1e-12)
    assert found.chosen.sum() == np.argmax(by_k)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"draws": [[0, 2]]}, "labels 0 and 1"),
        ({"draws": [0, 1]}, "of shape"),
        ({"k": 9}, "k between 0 and the number of cases"),
        ({"sample_weight": [0.0, 0.0]}, "a weight a draw"),
        ({"sample_weight": [1.0, -1.0]}, "a weight a draw"),
        ({"utility": lambda t, k, P: -((t - 1) ** 2) + 0 * k}, "linear or convex"),
        ({"utility": lambda t, k, P: np.full(np.broadcast(t, k, P).shape, np.nan)}, "finite"),
    ],
)
def test_bad_input(change, said):
    given = {"draws": [[1, 0, 1, 0], [1, 1, 0, 1]], "utility": f_measure} | change
    with pytest.raises(ValueError, match=said):
        decide_together(**given)


def test_sampled_labels_have_the_models_probabilities_and_go_together():
    X = np.linspace(0, 1, 12)[:, None]
    model = GPClassifier(length_scale=0.3, amplitude=2.0).fit(X, np.where(X[:, 0] > 0.5, "b", "a"))
    new = np.array([[0.1], [0.55], [8.0], [8.3]])
    drawn = model.sample_labels(new, 40_000, random_state=0) == "b"
    assert np.abs(drawn.mean(0) - model.predict_proba(new)[:, 1]).max() < 4.5 * 0.5 / 200
    # Far from the data the prior is left: f of variance 4 and a length scale apart, and noise.
    apart = np.corrcoef(drawn.T)
    correlation = 4 * np.exp(-0.5) / (4 + 1)
    steepness = correlation / (1 - correlation**2) ** 0.5
    both, _ = quad(lambda f: norm.pdf(f) * norm.cdf(steepness * f), 0, 9)
    expected = 4 * both - 1  # .323
    assert apart[2, 3] == pytest.approx(expected, abs=4.5 * (1 - expected**2) ** 0.5 / 200)
    assert abs(apart[0, 3]) < 4.5 / 200


@pytest.mark.filterwarnings("ignore:the fit tells nothing")
def test_labels_of_three_classes_are_not_sampled():
    model = GPClassifier(length_scale=1.0, amplitude=1.0).fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    with pytest.raises(ValueError, match="expected a fit of two classes, got 3"):
        model.sample_labels([[0.5]])


@pytest.mark.parametrize(
    ("labels", "pos_label"),
    [
        ([-1, 1], None),
        ([-1, 1], 1),
        ([0.0, 1.0], None),
        ([False, True], None),
        (["no", "yes"], "yes"),
        ([2, 1], 1),
    ],
)
def test_labels_are_those_that_were_sampled(labels, pos_label):
    draws = (np.random.default_rng(0).random((40, 6)) < 0.4).astype(int)
    expected = decide_together(draws)
    found = decide_together(np.array(labels)[draws], pos_label=pos_label)
    np.testing.assert_array_equal(found.chosen, expected.chosen)
    assert found.utility == expected.utility


def test_labels_of_which_none_is_known_to_be_positive():
    with pytest.raises(ValueError, match="or else the pos_label, got values such as .'a', 'b'."):
        decide_together([["a", "b"]])
    with pytest.raises(ValueError, match="pos_label='c' and one other label, got 2 kinds"):
        decide_together([["a", "b"]], pos_label="c")


@pytest.mark.parametrize("size", [1e-300, 1e308])
def test_only_ratios_of_weights_count(size):
    draws = np.random.default_rng(0).random((40, 6)) < 0.4
    weight = np.random.default_rng(1).random(40)
    expected = decide_together(draws, sample_weight=weight)
    found = decide_together(draws, sample_weight=size * weight)
    assert found.utility == pytest.approx(expected.utility, rel=1e-12)
