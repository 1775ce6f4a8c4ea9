"""Tests of the calibrator against truths that are known, and on bad input."""

import copy
import pickle

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import expit, logit
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import roc_auc_score
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from bayesloss import LinkCalibrator, SoftmaxCalibrator
from bayesloss.learning.calibration.calibrator_base import WIDER
from bayesloss_book.references.source_laws import MixtureLaw


def kinked(s):
    return np.where(s < 0, 0.3 * s, 2.5 * s)


def cases(n, seed=0, truth=kinked, spread=1.5):
    rng = np.random.default_rng(seed)
    s = rng.normal(0, spread, n)
    return s, (rng.random(n) < expit(truth(s))).astype(int)


def log_odds(model, scores):
    """Of both columns: where the second is 1 within rounding the first still tells."""
    p = model.predict_proba(scores)
    return np.log(p[:, 1]) - np.log(p[:, 0])


@pytest.fixture(scope="module")
def fitted():
    s, y = cases(5000)
    return LinkCalibrator().fit(s, y), s


def test_the_curve_comes_near_the_truth(fitted):
    """5,000 cases tell a probability in the bulk to 0.02 or so; the corner at 0 is rounded off."""
    s = np.linspace(-3, 2, 11)
    p = fitted[0].predict_proba(s)
    np.testing.assert_allclose(p[:, 1], expit(kinked(s)), atol=0.06)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-15)


def test_the_mean_and_the_band_are_near_those_of_the_exact_law(fitted):
    """By the characteristic function of nu, with no draws: what 256 curves leave open."""
    model, s = fitted
    at = np.quantile(s, np.linspace(0.02, 0.98, 9))
    law = MixtureLaw(model.average_, torch.from_numpy(model.transform_(at) - model.centre_))
    off = model.predict_proba(at)[:, 1] - law.mean_probability().numpy()
    assert np.abs(off).max() < 4e-4  # a fiftieth of the posterior's standard deviation
    middle, *ends = (
        torch.from_numpy(logit(each))
        for each in (np.median(model.sample_proba(at), axis=0), *model.predict_interval(at))
    )
    for end, level in zip(ends, (0.025, 0.975), strict=True):
        shares = law.below(middle + (end - middle) / WIDER)
        # The sixth of 256 independent curves would be off by 0.01 at one score, one time in three.
        assert float((shares - level).abs().max()) < 0.03
        assert abs(float(shares.mean()) - level) < 0.01


def test_the_band_leaves_out_as_many_curves_as_its_level_says(fitted):
    model, s = fitted
    at = np.quantile(s, [0.1, 0.5, 0.9])
    odds = logit(model.sample_proba(at))
    middle = np.median(odds, axis=0)
    for level in (0.5, 0.8, 0.95):
        # On log odds the band is a fifth wider to either side than the posterior's quantiles.
        low, high = middle + (logit(model.predict_interval(at, level=level)) - middle) / 1.2
        for share in ((odds < low).mean(axis=0), (odds > high).mean(axis=0)):
            # Ends and middle are interpolated between nodes: a curve each.
            np.testing.assert_allclose(share, (1 - level) / 2, atol=2.01 / len(odds))


def test_the_order_of_the_scores_is_kept_everywhere(fitted):
    model, s = fitted
    grid = np.sort(np.concatenate([np.linspace(-30, 30, 20_001), np.unique(s)]))
    assert (np.diff(log_odds(model, grid)) > 0).all()
    y = (s > 0.3).astype(int) ^ (np.arange(len(s)) % 7 == 0)
    assert roc_auc_score(y, model.predict_proba(s)[:, 1]) == roc_auc_score(y, s)


def test_weights_count_cases_and_zero_leaves_them_out():
    s, y = cases(300, seed=1)
    weight = np.random.default_rng(0).integers(0, 4, 300)
    weighted = LinkCalibrator().fit(s, y, sample_weight=weight)
    repeated = LinkCalibrator().fit(np.repeat(s, weight), np.repeat(y, weight))
    at = np.linspace(-4, 4, 9)
    np.testing.assert_allclose(
        weighted.predict_proba(at), repeated.predict_proba(at), rtol=0, atol=1e-6
    )


def test_labels_of_any_kind_and_scores_in_a_column():
    s, y = cases(200)
    named = LinkCalibrator().fit(s[:, None], np.array(["no", "yes"])[y])
    np.testing.assert_array_equal(
        named.predict_proba(s), LinkCalibrator().fit(s.tolist(), y).predict_proba(s)
    )
    assert set(named.predict(s)) == {"no", "yes"}


def test_probabilities_are_calibrated_on_their_log_odds():
    s, y = cases(500)
    on_odds = LinkCalibrator().fit(s, y)
    on_p = LinkCalibrator().fit(expit(s), y)
    assert (on_odds.scale_, on_p.scale_) == ("real", "probability")
    # expit and its inverse lose digits.
    np.testing.assert_allclose(on_p.predict_proba(expit(s)), on_odds.predict_proba(s), atol=1e-9)


def test_units_and_origin_of_the_scores_do_not_matter():
    s, y = cases(500)
    plain = LinkCalibrator().fit(s, y).predict_proba(s)
    for scaled in (1e6 * s - 3e6, 1e-9 * s, 1e200 * s):
        other = LinkCalibrator(scale="real").fit(scaled, y).predict_proba(scaled)
        np.testing.assert_allclose(other, plain, atol=1e-5)


@pytest.mark.parametrize("far", [1e4, 1e300])
def test_one_outlier_does_not_ruin_the_rest(far):
    s, y = cases(1000)
    plain = LinkCalibrator().fit(s, y).predict_proba(s)
    spoilt = LinkCalibrator().fit(np.append(s, far), np.append(y, 1)).predict_proba(s)
    assert np.abs(spoilt - plain).max() < 0.05


def test_zeros_and_ones_and_infinite_log_odds():
    """A forest of ten trees: the rates at 0 and at 1 are what was seen there."""
    rng = np.random.default_rng(0)
    truth = rng.beta(0.3, 0.3, 4000)
    votes = rng.binomial(10, truth) / 10
    y = (rng.random(4000) < truth).astype(int)
    model = LinkCalibrator().fit(votes, y)
    with np.errstate(divide="ignore"):
        odds = logit(votes)
    infinite = LinkCalibrator().fit(odds, y)
    for vote in (0.0, 1.0):
        seen = y[votes == vote]
        error = np.sqrt(seen.mean() * (1 - seen.mean()) / len(seen))
        with np.errstate(divide="ignore"):
            for p in (model.predict_proba([vote]), infinite.predict_proba([logit(vote)])):
                assert abs(p[0, 1] - seen.mean()) < 3 * error
    p = model.predict_proba(np.linspace(0, 1, 101))[:, 1]
    assert (np.diff(p) > 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_is_certain_where_no_case_was(dtype):
    """A later 0 and 1, where there were none, that turn out wrong: the loss is finite."""
    s, y = cases(100)
    model = LinkCalibrator().fit(expit(s).astype(dtype), y)
    later = np.array([0, 1e-30, 1e-6, 0.5, 1 - 1e-6, 1], dtype)
    odds = log_odds(model, later)
    assert np.isfinite(odds).all() and (np.diff(odds) > 0).all()
    low, high = model.predict_interval(later)
    assert ((low > 0) & (low < high)).all() and (high <= 1).all()
    odds = log_odds(LinkCalibrator(scale="real").fit(s, y), [-np.inf, -1e9, 0, 1e9, np.inf])
    assert np.isfinite(odds).all() and (np.diff(odds) > 0).all()


def test_the_band_goes_as_far_as_the_curve():
    """Beyond the nodes of the table, too; cases in so short a range say little of what is there."""
    s, y = cases(5000, spread=0.02)
    model = LinkCalibrator().fit(s, y)
    far = s.max() * np.array([1e2, 1e3, 1e4])
    low, high = (logit(end) for end in model.predict_interval(far))
    assert ((low < log_odds(model, far)) & (log_odds(model, far) < high)).all()
    assert (np.diff(high - low) > 0).all()
    mean = model.sample_proba(far).mean(axis=0)
    np.testing.assert_allclose(mean, model.predict_proba(far)[:, 1], rtol=0.05)


@pytest.mark.parametrize(
    ("spread", "by_cases", "copies"), [(1.5, False, 1), (0.02, True, 1), (0.02, True, 10)]
)
def test_log_odds_grow_straight_and_then_by_logarithms(spread, by_cases, copies):
    """Scores for given log odds x of the sigmoid, by Brent's method; all on one straight line."""
    s, y = cases(300, spread=spread)
    groups = np.repeat(np.arange(300), copies) if copies > 1 else None
    model = LinkCalibrator().fit(np.repeat(s, copies), np.repeat(y, copies), groups=groups)
    assert model.power_ * copies == pytest.approx(1, abs=0.1)  # copies tell as much as one case
    seen = model.transform_(np.array([s.min(), s.max()]))
    # Three half periods, of which the cases fill 0.8; or as many log odds as cases speak of.
    far = model.centre_ + 3 / 0.8 * (seen[1] - seen[0]) / 2
    doubt = np.log1p(model.power_ * copies * 300)
    assert (doubt > far) == by_cases
    far = max(far, doubt)

    def score(x):
        return brentq(lambda s: model.transform_(np.array([s]))[0] - x, -1e9, 1e9, xtol=1e-9)

    k = np.array([0.5, 1, 1.5, 2])
    before, end, *beyond = log_odds(
        model, [score(x) for x in (far - 0.3, far, *(far + np.expm1(k)))]
    )
    # The mean of straight paths, in log odds, bends a little; so far out hardly.
    np.testing.assert_allclose(beyond, end + (end - before) / 0.3 * k, rtol=2e-3)


@pytest.mark.parametrize("scores_of", [np.asarray, np.exp], ids=["normal", "long tail"])
def test_a_pickle_is_small_and_holds_all(scores_of):
    """With the table, 256 curves at 1,201 nodes, it would be 2.6 MB."""
    s, y = cases(600)
    model = LinkCalibrator().fit(scores_of(s), y)
    stored = pickle.dumps(model)
    assert len(stored) <= 50_000
    at = scores_of(np.linspace(-9, 9, 50))
    for other in (pickle.loads(stored), copy.deepcopy(model)):
        for method in ("predict_proba", "predict_interval", "sample_proba"):
            np.testing.assert_array_equal(getattr(other, method)(at), getattr(model, method)(at))
        assert vars(other).keys() == vars(model).keys()
        assert other.average_.weights.equal(model.average_.weights)


def test_a_pickle_of_an_earlier_version_is_refused_by_name():
    """Up to version 0.2 the posterior was compressed, under this name."""
    s, y = cases(60)
    state = LinkCalibrator().fit(s, y).__getstate__() | {"_packed": b""}
    with pytest.raises(ValueError, match="saved, got one of an earlier version.*fit it again"):
        LinkCalibrator().__setstate__(state)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_interval"])
@pytest.mark.parametrize("kind", [LinkCalibrator, SoftmaxCalibrator])
def test_a_calibrator_that_is_not_fitted_says_so(kind, method):
    for model in (kind(), pickle.loads(pickle.dumps(kind()))):
        with pytest.raises(NotFittedError, match=f"This {kind.__name__} instance is not fitted"):
            getattr(model, method)([[0.5, 0.5]])


def test_it_says_that_it_takes_one_column_and_two_classes():
    """As IsotonicRegression does; scikit-learn's checks had fed it tables and many classes."""
    tags = get_tags(LinkCalibrator())
    assert tags.input_tags == get_tags(IsotonicRegression()).input_tags
    assert not tags.classifier_tags.multi_class
    with pytest.warns(SkipTestWarning, match="Can't test estimator"):
        results = check_estimator(LinkCalibrator(), on_fail=None)
    assert "failed" not in {result["status"] for result in results}


@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_scores_and_labels_mirrored_give_mirrored_predictions(spread):
    """A rare class: log odds end far below 0, or far above. So far out that they are logarithms."""
    s, y = cases(3000, truth=lambda s: s - 5, spread=spread)
    model = LinkCalibrator().fit(s, y)
    mirrored = LinkCalibrator().fit(-s, 1 - y)
    assert mirrored.centre_ == pytest.approx(-model.centre_, rel=1e-9) and model.centre_ < -4
    at = np.array([-1e6, -300, -100, -30, -10, -3, 0, 3, 10, 30, 100, 300, 1e6])
    # Draws are not mirrored: 256 balanced ones tell the slope far out to a twentieth.
    np.testing.assert_allclose(log_odds(mirrored, -at), -log_odds(model, at), rtol=0.1)


def test_the_shrinkage_is_towards_the_base_rate_when_scores_tell_nothing():
    rng = np.random.default_rng(0)
    s = rng.normal(size=1000)
    y = rng.random(1000) < 0.2
    assert np.abs(LinkCalibrator().fit(s, y).predict_proba(s)[:, 1] - y.mean()).max() < 0.12


def test_separable_cases_and_two_cases():
    s = np.linspace(-2, 2, 40)
    p = LinkCalibrator().fit(s, s > 0).predict_proba(s)[:, 1]
    assert p[0] < 0.06 and p[-1] > 0.94 and p.min() > 1e-6
    two = LinkCalibrator().fit([-1.0, 1.0], [0, 1])
    p = two.predict_proba([-1.0, 0.0, 1.0])[:, 1]
    assert 0.2 < p[0] < p[1] < p[2] < 0.8
    low, high = two.predict_interval([0.0])
    assert high - low > 0.4


def test_groups_that_repeat_cases_count_them_once():
    s, y = cases(400)
    at = np.linspace(-3, 3, 7)
    ids = np.arange(400)
    plain = LinkCalibrator().fit(s, y)
    five = LinkCalibrator().fit(np.repeat(s, 5), np.repeat(y, 5), groups=np.repeat(ids, 5))
    assert five.power_ == pytest.approx(0.2, rel=0.15)  # the sandwich is an estimate
    width = np.subtract(*plain.predict_interval(at)[::-1])
    np.testing.assert_allclose(np.subtract(*five.predict_interval(at)[::-1]), width, rtol=0.2)
    assert 0.85 < LinkCalibrator().fit(s, y, groups=ids).power_ <= 1


def test_scores_that_run_the_wrong_way_are_told():
    s, y = cases(500)
    with pytest.warns(UserWarning, match="run the wrong way: the larger, the rarer is 1"):
        model = LinkCalibrator().fit(-s, y)
    p = model.predict_proba(np.linspace(-4, 4, 9))[:, 1]
    assert (np.diff(p) > 0).all() and np.ptp(p) < 0.3


def test_constant_scores_give_the_base_rate_and_a_warning():
    y = np.arange(100) < 30
    with pytest.warns(UserWarning, match="all scores are equal"):
        model = LinkCalibrator().fit(np.full(100, 0.3), y)
    assert model.predict_proba([0.3])[0, 1] == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(
    ("scores", "y", "message"),
    [
        ([0.1, 0.2, 0.3], [1, 1, 1], "two classes, got only"),
        ([0.1, 0.2, 0.3], [0, 1, 2], "two classes, got 3"),
        ([0.1, np.nan, 0.3], [0, 1, 1], "1 NaN of 3"),
    ],
)
def test_bad_input_is_refused(scores, y, message):
    with pytest.raises(ValueError, match=message):
        LinkCalibrator().fit(scores, y)


def test_log_odds_where_probabilities_were_learned_are_refused():
    s, y = cases(100)
    model = LinkCalibrator().fit(expit(s), y)
    with pytest.raises(ValueError, match=r"probabilities in \[0, 1\], got .*scale='real'"):
        model.predict_proba([3.0])
    with pytest.raises(ValueError, match=r"probabilities in \[0, 1\]"):
        LinkCalibrator(scale="probability").fit(s, y)


def test_probabilities_where_log_odds_were_learned_are_told():
    s, y = cases(500, spread=4.0)
    model = LinkCalibrator().fit(s, y)
    with pytest.warns(UserWarning, match="look like probabilities"):
        model.predict_proba(expit(s))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("error")
def test_what_rounding_leaves_of_probabilities_is_read_as_such(dtype):
    s, y = cases(400)
    p = expit(s)
    plain = LinkCalibrator().fit(p, y)
    for off in (np.where(p == p.max(), 1.0002, p), np.where(p == p.min(), -1e-9, p)):
        model = LinkCalibrator().fit(off.astype(dtype), y)
        assert model.scale_ == "probability"
        # One of 400 cases lies at the end.
        found = model.predict_proba([0.2, 0.8])
        np.testing.assert_allclose(found, plain.predict_proba([0.2, 0.8]), atol=0.02)
    np.testing.assert_array_equal(plain.predict_proba([1.0005]), plain.predict_proba([1.0]))


def test_what_may_be_probabilities_is_told():
    s, y = cases(400)
    p = expit(s)
    with pytest.warns(UserWarning, match=r"outside \[0, 1\] by more than rounding, such as 1.006"):
        model = LinkCalibrator().fit(np.where(p == p.max(), 1.006, p), y)
    assert model.scale_ == "probability"
    with pytest.warns(UserWarning, match="1 of 1 probabilities lie outside .* such as -0.005"):
        model.predict_proba([-0.005])
    with pytest.warns(UserWarning, match="read as real numbers, since 1 of 400 lie outside"):
        assert LinkCalibrator().fit(np.where(p == p.max(), 1.3, p), y).scale_ == "real"


@pytest.mark.filterwarnings("error")
def test_small_units_are_no_probabilities():
    s, y = cases(400)
    plain = LinkCalibrator().fit(s, y).predict_proba(s)
    small = LinkCalibrator().fit(1e-4 * s, y)
    np.testing.assert_allclose(small.predict_proba(1e-4 * s), plain, atol=1e-5)


@pytest.mark.parametrize("unit", [5e307, 1e-310])
def test_scores_may_be_as_large_or_small_as_floats(unit):
    """Subnormal numbers have 40 bits here; the range of the largest is no number."""
    s, y = cases(500, spread=1.0)
    s = s.clip(-3.5, 3.5)
    plain = LinkCalibrator().fit(s, y).predict_proba(s)
    scaled = LinkCalibrator().fit(unit * s, y)
    np.testing.assert_allclose(scaled.predict_proba(unit * s), plain, atol=1e-5)
    p = scaled.predict_proba(np.finfo(float).max * np.array([-1, 1]))[:, 1]
    assert p[0] <= plain[s.argmin(), 1] and p[1] >= plain[s.argmax(), 1]


def test_weights_count_infinite_scores_at_one_end_as_copies():
    s, y = cases(300)
    s = np.where(s > 1.5, np.inf, s)
    weight = np.random.default_rng(0).integers(1, 6, 300)
    weighted = LinkCalibrator().fit(s, y, weight)
    repeated = LinkCalibrator().fit(np.repeat(s, weight), np.repeat(y, weight))
    at = np.array([-2, 0, 1, np.inf])
    np.testing.assert_allclose(weighted.predict_proba(at), repeated.predict_proba(at), atol=1e-6)
