"""Other class frequencies against Bayes' rule by hand, and EM against other ways to the maximum."""

import dask.array as da
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, softmax
from scipy.stats import beta, norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from bayesloss import CalibratedClassifier, LinkCalibrator, SoftmaxCalibrator, estimate_prior
from bayesloss.learning.calibration import base_rates

MEANS = np.array([0.0, 1.0, 2.5])
TRAINING = np.array([0.5, 0.3, 0.2])


def draw(n, prior, seed, means=MEANS):
    """Cases of unit variance around the means of their classes."""
    rng = np.random.default_rng(seed)
    k = rng.choice(len(means), n, p=prior)
    return rng.normal(means[k]), k


def posterior(x, prior, means=MEANS):
    """By Bayes' rule."""
    joint = np.asarray(prior) * norm.pdf(x[:, None] - means)
    return joint / joint.sum(axis=1, keepdims=True)


def log_likelihood(prior, p, training):
    return np.log(p @ (prior / training)).sum()


def test_another_prior_is_bayes_rule():
    x, _ = draw(50, TRAINING, 0)
    wanted = np.array([0.1, 0.2, 0.7])
    moved = base_rates.at_prior(posterior(x, TRAINING), wanted, TRAINING, np.arange(3))
    np.testing.assert_allclose(moved, posterior(x, wanted), rtol=1e-12)


@pytest.mark.parametrize("true", [0.02, 0.3, 0.9])
def test_for_two_classes_no_point_of_a_grid_is_likelier(true):
    x, _ = draw(500, [1 - true, true], 1, MEANS[[0, 2]])
    p = posterior(x, [0.5, 0.5], MEANS[[0, 2]])
    found = estimate_prior(p[:, 1], 0.5).prior
    grid = np.linspace(0, 1, 20_001)
    likelihood = [log_likelihood(np.array([1 - q, q]), p, np.array([0.5, 0.5])) for q in grid]
    assert found[1] == pytest.approx(grid[np.argmax(likelihood)], abs=6e-5)  # the grid's step
    np.testing.assert_allclose(estimate_prior(p, [0.5, 0.5]).prior, found, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:the estimate rules class 1 out")
@pytest.mark.parametrize("true", [[0.2, 0.3, 0.5], [0.05, 0.0, 0.95]])
def test_for_many_classes_an_optimiser_finds_the_same_maximum(true):
    x, _ = draw(2000, true, 2)
    p = posterior(x, TRAINING)
    found = estimate_prior(p, TRAINING)
    best = minimize(
        lambda q: -log_likelihood(q, p, TRAINING),
        TRAINING,
        method="SLSQP",
        bounds=[(1e-12, 1)] * 3,
        constraints={"type": "eq", "fun": lambda q: q.sum() - 1},
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert found.converged
    np.testing.assert_allclose(found.prior.sum(), 1, rtol=1e-12)
    # EM leaves a millionth of a nat: at a curvature of 1,500 or more, 4e-5 in the frequencies.
    np.testing.assert_allclose(found.prior, best.x, atol=1e-4)
    assert log_likelihood(found.prior, p, TRAINING) > -best.fun - 1e-6


def test_the_standard_error_is_that_of_the_curvature():
    """By second differences of the likelihood on the simplex."""
    x, _ = draw(3000, [0.2, 0.3, 0.5], 3)
    p = posterior(x, TRAINING)
    found = estimate_prior(p, TRAINING)
    step = 1e-3
    along = np.array([[1, 0, -1], [0, 1, -1]])  # of the first two; the third is what is left

    def at(a, b):
        return log_likelihood(found.prior + step * (a * along[0] + b * along[1]), p, TRAINING)

    both = at(1, 1) - at(1, -1) - at(-1, 1) + at(-1, -1)
    hessian = np.array(
        [
            [4 * (at(1, 0) - 2 * at(0, 0) + at(-1, 0)), both],
            [both, 4 * (at(0, 1) - 2 * at(0, 0) + at(0, -1))],
        ]
    ) / (4 * step**2)
    covariance = along.T @ np.linalg.inv(-hessian) @ along
    np.testing.assert_allclose(found.standard_error, np.sqrt(np.diag(covariance)), rtol=1e-3)


def test_standard_errors_are_those_of_repeated_samples():
    true = np.array([0.2, 0.3, 0.5])
    off = []
    for seed in range(200):
        x, _ = draw(1000, true, seed)
        found = estimate_prior(posterior(x, TRAINING), TRAINING)
        off.append((found.prior - true) / found.standard_error)
    size = np.sqrt(np.mean(np.square(off), axis=0))
    assert (np.abs(size - 1) < 0.2).all()  # four standard errors of 200: 4 / sqrt(400)


def test_with_draws_the_error_knows_that_labels_were_few():
    """200 labels leave an error four times that of 2,000 cases without labels."""
    means = np.array([0.0, 1.5])
    off = []
    for seed in range(20):
        x, k = draw(200, [0.5, 0.5], seed, means)
        calibrator = LinkCalibrator().fit(x, k)
        x, _ = draw(2000, [0.9, 0.1], 1000 + seed, means)
        p = calibrator.predict_proba(x)
        alone = estimate_prior(p, calibrator.class_prior_)
        both = estimate_prior(p, calibrator.class_prior_, draws=calibrator.sample_proba(x))
        np.testing.assert_array_equal(both.prior, alone.prior)
        error = both.prior[1] - 0.1
        off.append([error / alone.standard_error[1], error / both.standard_error[1]])
    without, with_draws = np.sqrt(np.mean(np.square(off), axis=0))
    assert without > 2
    assert 0.5 < with_draws < 1.3  # the intercept counts twice: rather too large than too small


def test_draws_move_the_estimate_as_far_as_em_on_each():
    x, k = draw(1000, [0.5, 0.5], 4, MEANS[[0, 2]])
    calibrator = LinkCalibrator().fit(x, k)
    x, _ = draw(3000, [0.8, 0.2], 5, MEANS[[0, 2]])
    p = calibrator.predict_proba(x)
    draws = calibrator.sample_proba(x)
    alone = estimate_prior(p, calibrator.class_prior_).standard_error[1]
    both = estimate_prior(p, calibrator.class_prior_, draws=draws).standard_error[1]
    each = [estimate_prior(drawn, calibrator.class_prior_).prior[1] for drawn in draws]
    assert both == pytest.approx(np.hypot(alone, np.std(each, ddof=1)), rel=0.1)


@pytest.mark.parametrize("K", [2, 3, 5])
def test_a_blind_guess_is_uniform_on_the_simplex(K):
    """A frequency then has Dirichlet's marginal, a beta distribution."""
    blind = beta(1, K - 1).std()
    with pytest.warns(UserWarning, match=f"that of a blind guess {blind:.2g}"):
        estimate_prior(np.full((300, K), 1 / K), np.full(K, 1 / K))


def test_what_tells_nothing_of_the_prior_warns():
    with pytest.warns(UserWarning, match="hardly to be told from 300 cases"):
        found = estimate_prior(np.full(300, 0.3), 0.3)
    assert found.prior[1] == pytest.approx(0.3)
    assert found.standard_error[1] > 1
    twice = posterior(draw(2000, TRAINING, 6)[0], TRAINING)[:, [0, 1, 2, 2]] / [1, 1, 2, 2]
    with pytest.warns(UserWarning, match="standard error of class [23] "):  # told apart by nothing
        estimate_prior(twice, [0.5, 0.3, 0.1, 0.1])


def test_an_estimate_that_rules_a_class_out_warns():
    x, _ = draw(300, [1.0, 0.0], 14, MEANS[[0, 2]])
    with pytest.warns(UserWarning, match="rules class 1 out, with a standard error of 0.0"):
        found = estimate_prior(posterior(x, [0.5, 0.5], MEANS[[0, 2]]), 0.5)
    assert found.prior[1] < 1 / 300


def test_em_that_does_not_end_warns(monkeypatch):
    monkeypatch.setattr(base_rates, "_MAX_ROUNDS", 2)
    x, _ = draw(500, [0.1, 0.1, 0.8], 7)
    with pytest.warns(ConvergenceWarning, match="in 2 rounds"):
        assert not estimate_prior(posterior(x, TRAINING), TRAINING).converged


@pytest.mark.parametrize(
    ("p", "training", "draws", "said"),
    [
        ([[0.2, 0.8]], [0.5, 0.4, 0.1], None, r"training_prior of shape \(2,\).*, got \(3,\)"),
        ([[0.2, 0.3, 0.5]], 0.5, None, r"training_prior of shape \(3,\), a frequency a class, got"),
        ([[0.2, 0.8]], [0.5, 0.9], None, "of training_prior"),
        ([[0.2, 0.8]], [1.0, 0.0], None, "labelled cases of every class.*got none of 1"),
        ([[0.2, 0.9]], 0.5, None, "sum to 1"),
        ([[[0.2, 0.8]]], 0.5, None, r"\(n,\) or \(n, K\), got \(1, 1, 2\)"),
        (np.zeros((0, 2)), 0.5, None, "one case at least"),
        ([0.2, 0.8], 0.5, [[0.2, 0.8]], "two draws at least"),
        ([0.2, 0.8], 0.5, np.full((5, 3), 0.5), r"of shape \(2, 2\), got shape \(5, 3, 2\)"),
    ],
)
def test_bad_input_is_refused(p, training, draws, said):
    with pytest.raises(ValueError, match=said):
        estimate_prior(p, training, draws=draws)


# ------------------------------------------------------------------- what calibrators make of it


@pytest.fixture(scope="module")
def two():
    x, k = draw(2000, [0.6, 0.4], 8, MEANS[[0, 2]])
    return LinkCalibrator().fit(x, np.array(["bad", "good"])[k])


def test_two_classes_move_by_the_difference_of_log_odds(two):
    x = np.array([-30.0, -1.0, 1.0, 3.0, 30.0])
    share = two.class_prior_[1]
    assert share == pytest.approx(0.4, abs=0.05)
    shift = np.log(0.01 / 0.99) - np.log(share / (1 - share))
    p = two.predict_proba(x, prior=0.01)
    odds = two.log_odds(x) + shift
    np.testing.assert_allclose(p, np.stack([expit(-odds), expit(odds)], axis=1), rtol=1e-12)
    np.testing.assert_allclose(two.predict_proba(x, prior=[0.99, 0.01]), p, rtol=1e-13)
    ends = two.predict_interval(x, 0.9, prior=0.01)
    moved = expit(np.array(two.log_odds_interval(x, 0.9)) + shift)
    np.testing.assert_allclose(ends, moved, rtol=1e-12)
    np.testing.assert_allclose(
        two.predict_proba(x, two.class_prior_), two.predict_proba(x), rtol=1e-12
    )
    assert (two.predict_proba(x, prior=0)[:, 1] == 0).all()


def test_dask_scores_move_alike(two):
    x = np.linspace(-1, 3, 8)
    lazy = two.predict_proba(da.from_array(x, chunks=3), prior=0.2)
    np.testing.assert_array_equal(lazy.compute(), two.predict_proba(x, prior=0.2))


def test_weights_count_in_the_frequencies():
    x, k = draw(300, [0.6, 0.4], 9, MEANS[[0, 2]])
    times = np.arange(300) % 3
    rate = k.repeat(times).mean()
    assert LinkCalibrator().fit(x, k, times).class_prior_[1] == pytest.approx(rate)
    both = np.stack([-x, x], axis=1)
    assert SoftmaxCalibrator().fit(both, k, times).class_prior_[1] == pytest.approx(rate)
    lazy = LinkCalibrator().fit(*(da.from_array(each, chunks=100) for each in (x, k)))
    assert lazy.class_prior_[1] == pytest.approx(k.mean())


@pytest.fixture(scope="module")
def three():
    x, k = draw(1500, TRAINING, 10)
    return SoftmaxCalibrator().fit(posterior(x, TRAINING), k)


def test_many_classes_gain_the_logarithm_of_the_ratio(three):
    p = posterior(np.linspace(-1, 4, 7), TRAINING)
    wanted = np.array([0.05, 0.05, 0.9])
    by_hand = softmax(np.log(three.predict_proba(p) * wanted / three.class_prior_), axis=1)
    np.testing.assert_allclose(three.predict_proba(p, wanted), by_hand, rtol=1e-12)
    assert (three.predict_proba(p, [0.5, 0, 0.5])[:, 1] == 0).all()


def test_bands_of_a_matrix_of_two_columns_move_by_log_odds():
    """Where the ends of one class against the other are known by hand."""
    x, k = draw(800, [0.6, 0.4], 13, MEANS[[0, 2]])
    fitted = SoftmaxCalibrator().fit(posterior(x, [0.6, 0.4], MEANS[[0, 2]]), k)
    p = posterior(np.linspace(-1, 4, 5), [0.6, 0.4], MEANS[[0, 2]])
    shift = np.log(0.05 / 0.95) - np.log(k.mean() / (1 - k.mean()))
    moved = np.array(fitted.predict_interval(p, prior=[0.95, 0.05]))
    ends = np.array(fitted.predict_interval(p))
    by_hand = expit(np.log(ends / (1 - ends)) + shift * np.array([-1, 1]))
    np.testing.assert_allclose(moved, by_hand, rtol=1e-9)


def test_bands_of_many_classes_move_with_the_probabilities(three):
    p = posterior(np.linspace(-1, 4, 5), TRAINING)
    wanted = np.array([0.05, 0.05, 0.9])
    low, high = three.predict_interval(p, prior=wanted)
    mean = three.predict_proba(p, wanted)
    assert ((low < mean) & (mean < high)).all()
    same = three.predict_interval(p, prior=three.class_prior_)
    np.testing.assert_allclose(same, three.predict_interval(p), rtol=1e-9)
    # With the third class ruled out, what is known of its scores is of no use or harm.
    low, high = three.predict_interval(p, prior=[0.5, 0.5, 0])
    np.testing.assert_allclose(low[:, 0], 1 - high[:, 1], rtol=1e-9)
    assert (high[:, 2] == 0).all()


def test_a_class_without_labelled_cases_has_no_frequency_to_move_from():
    x, k = draw(300, TRAINING, 11)
    fitted = SoftmaxCalibrator(classes=[0, 1, 2]).fit(posterior(x, TRAINING)[k < 2], k[k < 2])
    with pytest.raises(ValueError, match="labelled cases of every class.*got none of 2"):
        fitted.predict_proba(posterior(x, TRAINING), prior=[0.2, 0.2, 0.6])


def test_a_prior_that_contradicts_a_case_is_refused():
    with pytest.raises(ValueError, match="a class that row 1 may have"):
        base_rates.at_prior(np.array([[0.5, 0.5], [1, 0]]), 1.0, np.full(2, 0.5), np.arange(2))


@pytest.mark.parametrize(
    ("prior", "said"),
    [
        (1.5, "expected probabilities in"),
        ([0.2, 0.7], "a sum of 0.9 in row 0 of prior"),
        ([0.2, 0.3, 0.5], r"shape \(2,\), a frequency a class, or that of the second"),
    ],
)
def test_a_prior_that_is_none_is_refused(two, prior, said):
    with pytest.raises(ValueError, match=said):
        two.predict_proba([0.0], prior=prior)


def test_a_calibrated_classifier_hands_the_prior_on():
    x, k = draw(600, TRAINING, 12)
    model = CalibratedClassifier(LogisticRegression()).fit(x[:, None], k)
    wanted = [0.1, 0.1, 0.8]
    moved = model.predict_proba(x[:9, None], wanted)
    by_hand = model.predict_proba(x[:9, None]) * wanted / model.calibrator_.class_prior_
    np.testing.assert_allclose(moved, by_hand / by_hand.sum(axis=1, keepdims=True), rtol=1e-12)
    low, high = model.predict_interval(x[:9, None], prior=wanted)
    assert ((low < moved) & (moved < high)).all()
