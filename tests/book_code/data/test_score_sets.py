"""The sets of scores: truth, draws, and what is refused."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from bayesloss_book.data import score_sets as scores
from bayesloss_book.data.score_sets import CURVES, MODELS, draw, kind, score_sets


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESLOSS_CACHE", str(tmp_path))
    scores._scores.cache_clear()
    draw.cache_clear()


def test_there_are_as_many_sets_as_promised():
    sets = score_sets()
    assert len(sets) == len(set(sets)) >= 40
    assert {kind(one.data) for one in sets} == {"image", "table", "small", "curve", "real"}
    assert len({one.model for one in sets}) == len(MODELS) + 1
    assert set(sets) > scores.TUNED
    assert len(scores.TUNED) == 8


@pytest.mark.parametrize("name", CURVES)
def test_curves_increase(name):
    s = np.sort(CURVES[name].sample(np.random.default_rng(0), 10_000))
    assert (np.diff(CURVES[name].log_odds(s)) > -1e-12).all()  # rounding
    if CURVES[name].probability:
        assert s[0] >= 0
        assert s[-1] <= 1


@pytest.mark.parametrize(
    ("name", "share", "one", "zero"),
    [
        ("normal classes", 0.5, stats.norm(1), stats.norm(-1)),
        ("gamma classes", 0.3, stats.gamma(4), stats.gamma(1.5)),
        ("beta classes", 0.4, stats.beta(4, 1.2), stats.beta(0.8, 3)),
        ("Laplace classes", 0.5, stats.laplace(1, 0.7), stats.laplace(-1, 0.7)),
        ("rare, normal", 1 / 201, stats.norm(2), stats.norm(0)),
        ("rare, skewed", 1 / 101, stats.gamma(3, scale=1.5), stats.expon()),
    ],
)
def test_two_classes_have_the_log_odds_of_their_densities(name, share, one, zero):
    s = CURVES[name].sample(np.random.default_rng(0), 20_000)
    expected = logit(share) + one.logpdf(s) - zero.logpdf(s)
    np.testing.assert_allclose(CURVES[name].log_odds(s), expected, atol=1e-9)
    p = expit(expected)  # E P(y | s) = P(y): four standard errors
    assert p.mean() == pytest.approx(share, abs=4 * p.std() / np.sqrt(len(p)))


def test_a_draw_of_a_curve_is_logistic_where_the_curve_is():
    """Maximum likelihood finds slope 2 of two normal classes, within four standard errors."""
    found = draw("normal classes", "curve", "curve", 20_000, 0)
    model = LogisticRegression(C=np.inf).fit(found.scores[:, None], found.y)
    p = model.predict_proba(found.scores[:, None])[:, 1]
    error = 1 / np.sqrt((p * (1 - p) * (found.scores - found.scores.mean()) ** 2).sum())
    assert abs(model.coef_.item() - 2) < 4 * error


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_small_sets_are_held_out_and_split_by_the_draw():
    first, second = (draw("breast cancer", "benign", "naive Bayes", 100, k) for k in (0, 1))
    for found in (first, second):
        assert found.probability
        assert len(found.scores) == 100
        assert len(found.truth) == 569 - 150 - 200
        assert set(np.unique(found.truth)) == {0.0, 1.0}
        benign = ((found.test_scores > 0.5) == found.truth).mean()
        assert benign > 0.85  # its accuracy is about 0.94, with a standard error of 0.02
    assert not np.array_equal(first.test_scores, second.test_scores)


def test_shuffled_parts_hold_the_same_cases():
    """Each test case is of either part, by about as much as its share; four standard errors."""
    plain = draw("digits", "odd", "logistic", 1_000, 0)
    mixed = draw("digits", "odd", "logistic", 1_000, 0, shuffled=True)
    cases = [
        sorted(zip([*d.scores, *d.test_scores], [*d.y, *d.truth], strict=True))
        for d in (plain, mixed)
    ]
    assert cases[0] == cases[1]  # n is the whole pool
    share = np.isin(mixed.test_scores, plain.test_scores).mean()
    m = len(plain.test_scores)
    total = len(plain.test_scores) + 1_000
    assert abs(share - m / total) < 4 * np.sqrt(m / total * (1 - m / total) / m) + 0.02  # ties


def test_scores_come_from_the_cache_the_second_time(monkeypatch):
    first = draw("digits", "odd", "logistic", 50, 0)
    scores._scores.cache_clear()
    draw.cache_clear()
    monkeypatch.setitem(scores.MODELS, "logistic", None)
    again = draw("digits", "odd", "logistic", 50, 0)
    np.testing.assert_array_equal(again.scores, first.scores)
    np.testing.assert_array_equal(again.truth, first.truth)
    assert again.probability is first.probability


@pytest.mark.parametrize(("name", "share"), [("additive", 0.5), ("interactions", 0.03)])
def test_labels_of_a_table_agree_with_their_probabilities(name, share):
    X, y, X_pool, y_pool, X_test, p = scores._table(name)
    assert len(X) == len(y) == 6_000
    assert len(X_test) == len(p)
    error = np.sqrt(share * (1 - share) / len(y_pool))
    assert y_pool.mean() == pytest.approx(p.mean(), abs=5 * error)
    assert p.mean() == pytest.approx(share, rel=0.05)
    assert len(X_pool) == len(y_pool)


def test_what_there_is_not_is_refused():
    with pytest.raises(ValueError, match="expected at most 200 cases"):
        draw("breast cancer", "benign", "logistic", 201, 0)
    with pytest.raises(ValueError, match="either class among 3 cases"):
        draw("normal classes", "curve", "curve", 3, 0)
