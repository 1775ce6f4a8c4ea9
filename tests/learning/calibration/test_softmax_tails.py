"""The map of distances behind a row's largest: its derivatives, its limits, and when it is used."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from bayesloss.learning.calibration.softmax_tails import Tails, _Cases, fit_tails

VOTE = 1e-4


def drawn(n, truth, K=5, seed=0):
    """Log probabilities with tails of dozens of nats, and labels of a truth about these."""
    rng = np.random.default_rng(seed)
    logits = log_softmax(rng.normal(0, 20, (n, K)), axis=1)
    p = softmax(truth(logits), axis=1)
    return logits, (rng.random((n, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1), p


def test_with_a_power_of_one_it_is_the_temperature_alone():
    logits, _, _ = drawn(20, lambda z: z)
    found = Tails(t=0.4, g=1.0, c=3.0)(logits)
    expected = 0.4 * (logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(Tails(t=0.4, g=1 - 1e-9, c=3.0)(logits), expected, rtol=1e-6)


@pytest.mark.parametrize(("g", "c"), [(0.02, 0.5), (0.5, 3.0), (0.9, 100.0)])
def test_it_is_the_identity_near_zero_a_power_far_out_and_keeps_the_order(g, c):
    tails = Tails(g=g, c=c)
    assert tails.distances(np.array([0.0])) == 0
    near, far = tails.distances(np.array([1e-6 * c, 1e9 * c]))
    assert near == pytest.approx(1e-6 * c, rel=1e-5)
    assert far == pytest.approx(c * (1e9**g - 1) / g, rel=1e-5)
    d = np.geomspace(1e-6, 1e6, 500)
    assert (np.diff(tails.distances(d)) > 0).all()


def test_slopes_are_those_of_finite_differences():
    d = np.r_[0, np.geomspace(1e-3, 300, 30)]
    step = 1e-5
    by_g, by_c = Tails(g=0.4, c=2.0).slopes(d)
    factor = np.exp(step)
    up, down = (Tails(g=0.4 * f, c=2.0).distances(d) for f in (factor, 1 / factor))
    np.testing.assert_allclose(by_g, (up - down) / (2 * step), rtol=1e-6, atol=1e-9)
    up, down = (Tails(g=0.4, c=2.0 * f).distances(d) for f in (factor, 1 / factor))
    np.testing.assert_allclose(by_c, (up - down) / (2 * step), rtol=1e-6, atol=1e-9)


def test_the_gradient_of_the_search_is_that_of_finite_differences():
    logits, y, _ = drawn(50, lambda z: 0.2 * z)
    weight = np.random.default_rng(1).uniform(0.5, 2, 50)
    cases = _Cases(logits.max(axis=1, keepdims=True) - logits, y, weight, VOTE)
    theta = np.log([0.3, 0.6, 4.0])
    _, gradient = cases.penalised(theta)
    for k, step in enumerate(1e-5 * np.eye(3)):
        ends = [cases.penalised(theta + sign * step)[0] for sign in (1, -1)]
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(gradient[k], rel=1e-6)


def test_a_map_of_the_data_is_found_and_not_made_up():
    def truth(z):
        return Tails(t=0.8, g=0.3, c=2.0)(z)

    logits, y, _ = drawn(2000, truth)
    found = fit_tails(logits, y, np.ones(2000), VOTE)
    assert found.g < 0.6
    test, _, p = drawn(4000, truth, seed=1)
    q = log_softmax(found(test), axis=1)
    # Three numbers cost 3 / 2 / 2,000 = 0.0008 nats; the best temperature alone 0.1.
    assert (p * (np.log(p) - q)).sum(axis=1).mean() < 0.003
    used = 0
    for seed in range(20):
        logits, y, _ = drawn(200, lambda z: 0.1 * z, seed=seed)
        used += fit_tails(logits, y, np.ones(200), VOTE).g < 1
    # Twice two nats by chance: of chi-square with two degrees of freedom 14 %, at a bound half.
    assert used <= 4


def test_of_many_cases_a_part_decides_on_the_map_whatever_their_order(monkeypatch):
    logits, y, _ = drawn(3000, lambda z: Tails(t=0.8, g=0.3, c=2.0)(z))
    all_of_them = fit_tails(logits, y, np.ones(3000), VOTE)
    monkeypatch.setattr("bayesloss.learning.calibration.softmax_tails._ENOUGH", 2**13)
    some = fit_tails(logits, y, np.ones(3000), VOTE)
    assert some.g != all_of_them.g
    assert some.loss - all_of_them.loss < 3
    order = np.random.default_rng(0).permutation(3000)
    again = fit_tails(logits[order], y[order], np.ones(3000), VOTE)
    assert again.g == pytest.approx(some.g, rel=1e-6)


def test_each_case_of_a_part_stands_for_those_left_out():
    """Every third of 3,000: the loss is that of all, but for what neighbours differ by."""
    logits, y, _ = drawn(3000, lambda z: Tails(t=0.8, g=0.3, c=2.0)(z))
    behind = logits.max(axis=1, keepdims=True) - logits
    cases = _Cases(behind, y, np.full(3000, 2.0), VOTE)
    theta = np.log([0.5, 0.5, 3.0])
    part = cases.every(3)
    assert len(part.codes) == 1000
    assert part.penalised(theta)[0] == pytest.approx(cases.penalised(theta)[0], rel=0.02)


def test_the_temperature_is_where_the_penalised_loss_is_least():
    """The loss as written out, with weights, and the prior of log t with variance 4."""
    logits, y, _ = drawn(200, lambda z: 0.1 * z)
    weight = np.random.default_rng(1).uniform(0.5, 2, 200)
    found = fit_tails(logits, y, weight, VOTE)
    assert found.g == 1

    def loss(t):
        own = softmax(t * logits, axis=1)[np.arange(200), y]
        return -weight @ np.log(own + VOTE) + np.log(t) ** 2 / 8

    assert found.loss == pytest.approx(loss(found.t))
    assert found.loss < min(loss(0.99 * found.t), loss(1.01 * found.t))
