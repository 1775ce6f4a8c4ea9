"""Tests of the calibrator of many classes against truths that are known."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from sklearn.exceptions import ConvergenceWarning

from bayesloss import SoftmaxCalibrator


def cases(n, transform, seed=0, K=4):
    """Classifier's probabilities, labels, and the true probabilities."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, K))
    logits -= logits.mean(axis=1, keepdims=True)  # probabilities tell no more of them
    truth = softmax(transform(logits), axis=1)
    y = (rng.random((n, 1)) > truth.cumsum(axis=1)).sum(axis=1)
    return softmax(logits, axis=1), y, truth


def divergence(truth, p):
    return float((truth * np.log(truth / p)).sum(axis=1).mean())


MIX = np.array([[1, 0.4, 0, 0], [0, 1, 0, 0], [0, 0, 0.6, -0.4], [0, 0, 0, 1.2]])


@pytest.mark.parametrize(
    ("transform", "most"),
    [
        (lambda z: 0.3 * z, 0.0035),  # a temperature
        (lambda z: z @ MIX.T + [0.5, 0, 0, -0.5], 0.006),
        (lambda z: np.where(z < 0, 0.3 * z, 2 * z), 0.02),  # a kinked source a class
    ],
)
def test_known_truths_are_found(transform, most):
    """3,000 cases: 12 free numbers alone would cost 12 / 2 / 3,000 = 0.002 nats."""
    p, y, _ = cases(3000, transform)
    q, _, truth = cases(4000, transform, seed=1)
    model = SoftmaxCalibrator().fit(p, y)
    assert model.converged_
    found = divergence(truth, model.predict_proba(q))
    assert found < most
    assert found < 0.2 * divergence(truth, q)


def test_a_search_that_is_cut_short_warns_and_no_other(monkeypatch):
    p, y, _ = cases(300, lambda z: 0.5 * z)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert SoftmaxCalibrator().fit(p, y).converged_
    monkeypatch.setattr("bayesloss.learning.calibration.calibrator_fit.MAX_ITER", 1)
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 steps"):
        assert not SoftmaxCalibrator().fit(p, y).converged_


def test_log_probabilities_and_probabilities_are_the_same_scores():
    p, y, _ = cases(500, lambda z: 0.5 * z)
    shifted = np.log(p) + np.linspace(-3, 3, 500)[:, None]
    one = SoftmaxCalibrator().fit(p, y)
    other = SoftmaxCalibrator().fit(shifted, y)
    assert (one.scale_, other.scale_) == ("probability", "real")
    # Searches that end at a tolerance, from scores that differ by rounding.
    np.testing.assert_allclose(one.predict_proba(p), other.predict_proba(shifted), atol=1e-4)


def test_weights_count_cases():
    p, y, _ = cases(300, lambda z: 0.5 * z)
    weight = np.random.default_rng(0).integers(0, 3, 300)
    weighted = SoftmaxCalibrator().fit(p, y, weight)
    repeated = SoftmaxCalibrator().fit(np.repeat(p, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.predict_proba(p), repeated.predict_proba(p), atol=1e-4)


def voted(n):
    """Shares of ten votes, many of them zero, and labels of three classes."""
    rng = np.random.default_rng(0)
    truth = rng.dirichlet([0.2] * 3, n)
    votes = np.array([rng.multinomial(10, row) for row in truth]) / 10
    return votes, (rng.random((n, 1)) > truth.cumsum(axis=1)).sum(axis=1)


def test_zeros_add_half_the_least_share_to_every_probability():
    votes, y = voted(300)
    found = SoftmaxCalibrator().fit(votes, y).predict_proba(votes)
    scores = np.log(votes + 0.05)
    np.testing.assert_allclose(
        found, SoftmaxCalibrator().fit(scores, y).predict_proba(scores), rtol=1e-10
    )


@pytest.mark.parametrize(("dtype", "power"), [(np.float32, -150), (np.float64, -1022)])
def test_a_later_zero_counts_as_the_last_number_of_its_format(dtype, power):
    """As log probabilities, that end where the format does. The temperature is small: it shows."""
    p, y, _ = cases(400, lambda z: 0.5 * z)
    sure = p**40 / (p**40).sum(axis=1, keepdims=True)
    model = SoftmaxCalibrator().fit(sure, y)
    assert model.temperature_ < 0.2 and sure.min() > 0
    on_logs = SoftmaxCalibrator(scale="real").fit(np.log(sure), y)
    later = np.array([[0, 0.5, 0.25, 0.25], [0, 0, 0, 1]])
    expected = on_logs.predict_proba(
        np.where(later > 0, np.log(later + (later == 0)), power * np.log(2))
    )
    found = model.predict_proba(later.astype(dtype))
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    assert found.min() > 1 / 400 / 4 / 20


def test_beyond_the_data_sources_go_on_increasing():
    p, y, _ = cases(500, lambda z: 0.5 * z)
    model = SoftmaxCalibrator(scale="real").fit(np.log(p), y)
    far = np.zeros((200, 4))
    far[:, 0] = np.linspace(-60, 60, 200)
    q = model.predict_proba(far)
    assert np.isfinite(q).all() and (np.diff(q[:, 0]) >= 0).all()


@pytest.mark.parametrize(
    ("scores", "y", "message"),
    [
        (np.eye(3), [0, 1, 1], "3 columns and labels of 2 classes"),
        (np.ones((3, 1)), [0, 0, 0], "1 columns and labels of 1 classes"),
        (np.full((3, 3), np.nan), [0, 1, 2], "NaN"),
    ],
)
def test_bad_input_is_refused(scores, y, message):
    with pytest.raises(ValueError, match=message):
        SoftmaxCalibrator().fit(scores, y)


def test_a_class_that_has_no_weight_is_refused_for_that_reason():
    with pytest.raises(ValueError, match="labels of 2 classes with a weight above zero"):
        SoftmaxCalibrator().fit(np.eye(3), [0, 1, 2], sample_weight=[1, 1, 0])


def test_rows_that_are_no_distributions_are_refused():
    p, y, _ = cases(100, lambda z: z)
    model = SoftmaxCalibrator().fit(p, y)
    with pytest.raises(ValueError, match=r"in \[0, 1\], got -.* scale='real'"):
        model.predict_proba(np.log(p))
    with pytest.raises(ValueError, match="a column a class, 4 of them, got 3"):
        model.predict_proba(p[:, :3])


def test_groups_that_repeat_cases_count_them_once():
    p, y, _ = cases(400, lambda z: z @ MIX.T)
    plain = SoftmaxCalibrator().fit(p, y)
    repeated, labels, ids = (np.repeat(v, 5, axis=0) for v in (p, y, np.arange(400)))
    told = SoftmaxCalibrator().fit(repeated, labels, groups=ids)
    untold = SoftmaxCalibrator().fit(repeated, labels)
    assert told.power_ == pytest.approx(0.2, rel=0.15)  # the sandwich is an estimate
    far, near = (np.abs(m.matrix_ - plain.matrix_).max() for m in (untold, told))
    assert near < 0.2 * far
    assert plain.power_ == 1


def laplace_bands(model, p, y, q):
    """Standard deviations of log odds at q without sources, by numerical derivatives alone.

    From what the calibrator says of itself: temperature, matrix and intercept.
    """
    (n, K), mode = p.shape, np.column_stack([model.matrix_, model.intercept_]).ravel()
    variances = np.full((K, K + 1), 1 / (2 * K * (K - 1)))
    variances[range(K), range(K)] = variances[:, K] = 1 / (2 * K)
    centre = np.eye(K, K + 1).ravel()
    prior = np.linalg.inv(np.diag(variances.ravel()) + 4 * np.outer(mode, mode))

    def logits(p):
        return np.log(softmax(model.tails_(np.log(p)), axis=1) + 1 / (n * K))

    def log_odds(theta, at):
        W = theta.reshape(K, K + 1)
        found = softmax(at @ W[:, :K].T + W[:, K], axis=1)
        return np.log(found) - np.log1p(-found)

    def minus_log_posterior(theta):
        W = theta.reshape(K, K + 1)
        away = theta - centre
        at = logits(p)
        likelihood = log_softmax(at @ W[:, :K].T + W[:, K], axis=1)[np.arange(n), y].sum()
        return -likelihood + away @ prior @ away / 2

    h = 1e-3
    E = np.eye(len(mode))
    H = np.empty((len(mode), len(mode)))
    for i, j in np.ndindex(H.shape):
        H[i, j] = sum(
            s * t * minus_log_posterior(mode + h * (s * E[i] + t * E[j]))
            for s in (1, -1)
            for t in (1, -1)
        ) / (4 * h**2)
    rows = np.stack(
        [
            (log_odds(mode + h * e, logits(q)) - log_odds(mode - h * e, logits(q))) / (2 * h)
            for e in E
        ]
    )
    return np.sqrt(np.einsum("ink,ij,jnk->nk", rows, np.linalg.inv(H), rows))


@pytest.mark.parametrize("n", [40, 400])
def test_bands_without_sources_are_laplaces(n):
    """Of 40 cases the prior says as much as the data do."""
    p, y, _ = cases(n, lambda z: 0.5 * z, K=3)
    model = SoftmaxCalibrator(sources=False).fit(p, y)
    q = cases(20, lambda z: z, seed=1, K=3)[0]
    low, high = model.predict_interval(q, 0.6826895)  # a standard deviation to either side
    width = (np.log(high / (1 - high)) - np.log(low / (1 - low))) / 2
    # Bands are a fifth wider. Differences err by h^2 and by 1e-13 / h^2, about 1e-6.
    np.testing.assert_allclose(width / 1.2, laplace_bands(model, p, y, q), rtol=1e-4)


@pytest.mark.parametrize("sources", [False, True, "auto"])
def test_derivatives_are_those_of_finite_differences(sources):
    """Of z in a row of the matrix, an intercept and a source, beyond the cases' range too.

    With all of the matrix, and as much of the sources as is used.
    """
    p, y, _ = cases(400, lambda z: np.where(z < 0, 0.3 * z, 2 * z))
    model = SoftmaxCalibrator(sources=sources).fit(p, y)
    logits = model._tempered(cases(30, lambda z: z, seed=1)[0]) * 2
    found = model._slopes(logits)
    np.testing.assert_allclose(found.p, softmax(model._calibrated(logits), axis=1))
    assert (model.source_share_ > 0) == bool(sources)
    model.matrix_share_ = 1.0
    line = np.column_stack([logits, np.ones(30)])
    g = np.concatenate([found.by_u.T[:, :, None] * line, found.by_Gamma], axis=2)
    step = 1e-6
    for k in range(4):
        parts = [(model.matrix_[k], j) for j in range(4)] + [(model.intercept_, k)]
        if sources:
            parts += [(model._sources[k].Gamma, j) for j in range(len(model._sources[k].Gamma))]
        assert g.shape[2] == len(parts)
        for j, (part, place) in enumerate(parts):
            kept = float(part[place])
            ends = []
            for sign in (1, -1):
                part[place] = kept + sign * step
                ends.append(model._calibrated(logits))
            part[place] = kept
            slope = (ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose(slope[:, k], g[k, :, j], atol=1e-6, rtol=1e-5)
            assert np.abs(slope[:, [other for other in range(4) if other != k]]).max() == 0


def test_bands_hold_the_means_and_narrow_with_the_cases():
    """By the root of ten. That they are the posterior's is in the tests of that."""
    widths = []
    for n in (300, 3000):
        for seed in range(3):
            p, y, _ = cases(n, lambda z: z @ MIX.T + [0.5, 0, 0, -0.5], seed=seed)
            q, _, _ = cases(2000, lambda z: z @ MIX.T + [0.5, 0, 0, -0.5], seed=seed + 10)
            model = SoftmaxCalibrator().fit(p, y)
            low, high = model.predict_interval(q)
            widths.append((high - low).mean())
            middle = model.predict_proba(q)
            assert ((low <= middle) & (middle <= high)).all()
            assert (low >= 0).all() and (high <= 1).all()
    # The prior narrows bands of few cases by some percent; three draws differ by as much.
    assert np.mean(widths[3:]) / np.mean(widths[:3]) == pytest.approx(10**-0.5, rel=0.15)
    inner = model.predict_interval(q, 0.5)
    assert (inner[0] > low).all() and (inner[1] < high).all()


@pytest.mark.parametrize("round_off", [lambda p: p.round(3), lambda p: p.astype(np.float16)])
@pytest.mark.filterwarnings("error")
def test_rounded_probabilities_are_no_margins(round_off):
    p, y, truth = cases(2000, lambda z: 0.5 * z)
    exact = SoftmaxCalibrator().fit(p, y)
    model = SoftmaxCalibrator().fit(round_off(p), y)
    assert model.scale_ == "probability"
    near = divergence(truth, model.predict_proba(round_off(p)))
    # As margins they were worse by 0.06; three digits cost 0.002.
    assert near < divergence(truth, exact.predict_proba(p)) + 0.005


def test_one_row_that_is_no_distribution_is_told_or_refused():
    p, y, _ = cases(300, lambda z: 0.5 * z)
    off = np.where((np.arange(300) == 5)[:, None], 0.97 * p, p)
    with pytest.warns(UserWarning, match="1 of 300 rows .* a sum .* 0.97 in row 5: they are sc"):
        model = SoftmaxCalibrator().fit(off, y)
    assert model.scale_ == "probability"
    with pytest.warns(UserWarning, match="1 of 1 rows"):
        found = model.predict_proba(0.97 * p[:1])
    np.testing.assert_allclose(found, model.predict_proba(p[:1]), rtol=1e-9)
    off[5] = 0
    with pytest.raises(ValueError, match="a sum of 0 in row 5: mend it, or fit with scale='real'"):
        SoftmaxCalibrator().fit(off, y)


def test_half_the_least_share_counts_where_classes_are_ruled_out():
    p, y, _ = cases(400, lambda z: 0.5 * z)
    logits = np.log(p)
    ruled_out = np.where(y == 3, False, np.arange(400) % 2 == 0)
    logits[ruled_out, 3] = -np.inf
    model = SoftmaxCalibrator().fit(logits, y)
    best = logits.max(axis=1)
    finite = logits.copy()
    finite[ruled_out, 3] = np.inf
    least = (finite.min(axis=1) - best).min() - np.log(2)
    finite[ruled_out, 3] = best[ruled_out] + least
    expected = SoftmaxCalibrator().fit(finite, y).predict_proba(finite)
    np.testing.assert_allclose(model.predict_proba(logits), expected, rtol=1e-10)
    unseen = SoftmaxCalibrator().fit(np.log(p), y)
    assert unseen.predict_proba(logits[ruled_out])[:, 3].max() < 0.01
    for bad in (np.inf, np.nan, 1e200):
        with pytest.raises(ValueError, match="expected .*scores"):
            model.predict_proba(np.append(logits[:1, :3], [[bad]], axis=1))
    with pytest.raises(ValueError, match="or -inf for some classes, got -inf in row 0"):
        model.predict_proba(np.full((1, 4), -np.inf))


def test_tensors_with_gradients_or_of_bfloat16_are_scores():
    p, y, _ = cases(300, lambda z: 0.5 * z)
    z = torch.tensor(np.log(p))
    model = SoftmaxCalibrator().fit(z.clone().requires_grad_(), torch.tensor(y))
    expected = model.predict_proba(np.log(p))
    np.testing.assert_array_equal(model.predict_proba(z.requires_grad_()), expected)
    # Half a unit of bfloat16 is a part of 2^-9, of log probabilities down to -15.
    np.testing.assert_allclose(model.predict_proba(z.bfloat16()), expected, atol=0.02)


def test_a_class_without_cases_can_be_named():
    p, y, _ = cases(1000, lambda z: 0.5 * z)
    kept = y != 2
    with pytest.raises(ValueError, match="labels of 3 classes: name them by classes="):
        SoftmaxCalibrator().fit(p[kept], y[kept])
    model = SoftmaxCalibrator(classes=[0, 1, 2, 3]).fit(p[kept], y[kept])
    found = model.predict_proba(p)
    # Of 780 cases none was of class 2.
    assert 0 < found[:, 2].mean() < 0.05
    assert model.predict(p).max() == 3
    low, high = model.predict_interval(p[:10])
    assert ((low < found[:10]) & (found[:10] < high)).all()


def test_classes_name_the_columns_in_their_order():
    p, y, _ = cases(500, lambda z: 0.5 * z)
    names = np.array(["d", "b", "a", "c"])
    named = SoftmaxCalibrator(classes=names).fit(p, names[y])
    found = named.predict_proba(p)
    np.testing.assert_array_equal(found, SoftmaxCalibrator().fit(p, y).predict_proba(p))
    np.testing.assert_array_equal(named.predict(p), names[found.argmax(axis=1)])
    for classes, message in (("aabc", "different classes"), ("abce", "the classes, got 'd'")):
        with pytest.raises(ValueError, match=message):
            SoftmaxCalibrator(classes=list(classes)).fit(p, names[y])


def hundred(n, seed):
    """Logits of a hundred classes that a network is twice too sure of, with labels and truth."""
    fixed = np.random.default_rng(0)
    places = fixed.normal(size=(10, 8))[fixed.integers(0, 10, 100)]
    places += 0.6 * fixed.normal(size=places.shape)
    rng = np.random.default_rng(seed)
    z = 2.5 * (places[rng.integers(0, 100, n)] + 0.5 * rng.normal(size=(n, 8))) @ places.T
    return 2 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1), softmax(z, axis=1)


def test_a_hundred_classes_have_intervals_draws_and_a_small_pickle():
    z, y, _ = hundred(600, 1)
    test, _, truth = hundred(300, 2)
    model = SoftmaxCalibrator(scale="real", classes=np.arange(100)).fit(z, y)
    assert divergence(truth, model.predict_proba(test)) < 0.25
    low, high = model.predict_interval(test)
    # No probability that is predicted is below that of the spread case.
    assert ((low <= truth) & (truth <= high))[truth > 0.05].mean() > 0.9
    p = model.predict_proba(test)
    assert ((low < p) & (p < high)).all()
    assert model.sample_proba(test[:3]).shape == (256, 3, 100)
    stored = pickle.dumps(model)
    assert len(stored) < 4e6  # of 600 cases; the matrix has 10,000 numbers
    more = SoftmaxCalibrator(scale="real", classes=np.arange(100)).fit(*hundred(1500, 1)[:2])
    assert len(pickle.dumps(more)) < 1.2 * len(stored) + 1e5
    again = pickle.loads(stored)
    np.testing.assert_array_equal(again.predict_proba(test), p)
    np.testing.assert_array_equal(again.matrix_, model.matrix_)


def test_with_more_classes_than_many_sources_are_not_tried(monkeypatch):
    monkeypatch.setattr("bayesloss.learning.calibration.softmax_calibrator._MANY", 3)
    p, y, _ = cases(3000, lambda z: np.where(z < 0, 0.3 * z, 2 * z))
    model = SoftmaxCalibrator().fit(p, y)
    assert model.source_share_ == 0
    assert model._sources == []
    assert SoftmaxCalibrator(sources=True).fit(p, y).source_share_ == 1


def test_few_cases_of_a_class_are_not_worse_off_by_default():
    """Of thirty classes ten cases each: sources alone cost more than they tell."""
    losses = {"auto": [], False: [], True: []}
    for seed in range(3):
        p, y, _ = cases(300, lambda z: 0.6 * z, seed=seed, K=30)
        q, _, truth = cases(2000, lambda z: 0.6 * z, seed=seed + 10, K=30)
        for sources, found in losses.items():
            model = SoftmaxCalibrator(sources=sources, classes=np.arange(30)).fit(p, y)
            found.append(divergence(truth, model.predict_proba(q)))
    assert np.mean(losses["auto"]) < 1.1 * np.mean(losses[False])
    assert np.mean(losses["auto"]) < 0.7 * np.mean(losses[True])
