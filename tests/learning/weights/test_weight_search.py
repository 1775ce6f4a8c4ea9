"""Tests of the search for weights against scikit-learn and automatic differentiation."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from bayesloss import LogLoss
from bayesloss.learning.weights import weight_search
from bayesloss.learning.weights.linear_scores import LinearScores, mean_curvature
from bayesloss.learning.weights.weight_search import adapted_fit, maximise_weights


def logistic(data):
    def log_probability(scores):
        value, first, _ = LogLoss().log_probabilities(scores)
        one = data.labels == 1
        return torch.where(one, value[1], value[0]), torch.where(one, first[1], first[0])

    return log_probability


def fit(data, tol=1e-10, **options):
    k = len(data.labels)
    d = data.inputs.Z.shape[1]
    start = (torch.zeros((k, d), dtype=torch.float64), torch.zeros(k, dtype=torch.float64))
    options = {"free_offset": True, "tol": tol, "max_iter": 500, **options}
    return maximise_weights(data, logistic(data), *start, **options)


def reference(data, C, k):
    model = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    z = (data.inputs.Z - data.centre).numpy()
    return model.fit(z, data.labels[k].numpy(), data.weight.numpy())


def test_another_centre_changes_no_weights(problem):
    """Only what the scores are measured from, though the far row makes the mean useless."""
    data = problem()
    data.inputs.Z[0] *= 1e3
    data = LinearScores.of(data.inputs.Z, data.labels, data.weight, 0.7)
    moved = data.centred_on(torch.arange(200) > 0)
    mean = np.average(data.inputs.Z[1:], axis=0, weights=data.weight[1:])
    np.testing.assert_allclose(moved.centre, mean, rtol=1e-12)
    first = fit(data, tol=1e-8)
    second = fit(moved, tol=1e-8)
    largest = float(first.beta.abs().max())
    torch.testing.assert_close(first.beta, second.beta, rtol=0, atol=1e-4 * largest)
    torch.testing.assert_close(first.scores, second.scores, rtol=1e-3, atol=1e-3)


def test_a_far_row_hides_nothing_of_what_is_left_to_gain():
    """Without a penalty: in coordinates for the others, near the best weights by a twentieth."""
    generator = np.random.default_rng(0)
    Z = generator.normal(size=(300, 4))
    labels = (Z.sum(1) + 2 * generator.normal(size=300) > 0).astype(np.int64)[None]
    Z[0] = 1e3 * (2 * labels[0, 0] - 1)  # where its label is certain
    far = LinearScores.of(
        torch.from_numpy(Z), torch.from_numpy(labels), torch.ones(300).double(), math.inf
    )
    data = far.centred_on(torch.arange(300) > 0)
    best = fit(data, tol=1e-7)
    curvature = mean_curvature(LogLoss().log_probabilities(best.scores)[1])
    still = maximise_weights(
        data.adapted(curvature), logistic(data), 0.95 * best.beta, best.offset,
        free_offset=True, tol=0, max_iter=0,
    )  # fmt: skip
    # A part of 0.1 of the mean curvature is added where there is no penalty.
    assert float(still.gain) == pytest.approx(float(best.objective - still.objective), rel=0.2)


@pytest.mark.parametrize(("n", "d", "C"), [(200, 5, 0.7), (200, 5, 1e4), (30, 60, 0.7)])
def test_agrees_with_scikit_learn(problem, n, d, C):
    """All problems at once, with weights, on inputs that are neither centred nor scaled."""
    data = problem(n=n, d=d, C=C)
    found = fit(data, tol=1e-8)  # rounding of the objective hides slopes of about 1e-9
    assert float(found.slope.max()) <= 1e-8
    for k in range(3):
        expected = reference(data, C, k)
        # The flattest direction has a curvature of about 1e-4 in units of the largest.
        atol = 1e-4 * np.abs(expected.coef_).max()
        np.testing.assert_allclose(found.beta[k], expected.coef_[0], rtol=0, atol=atol)
        np.testing.assert_allclose(found.offset[k], expected.intercept_[0], rtol=0, atol=1e-3)


def test_gradient_is_the_objectives(problem):
    """The largest slope that a search of no step reports, against automatic differentiation."""
    data = problem()
    beta = torch.randn((3, 5), dtype=torch.float64, generator=torch.Generator().manual_seed(1)) / 9
    beta.requires_grad_()
    offset = torch.zeros(3, dtype=torch.float64)
    scores = (data.inputs.Z - data.centre) @ beta.T
    margins = (2 * data.labels - 1) * scores.T
    share = data.weight / data.weight.sum()
    objective = torch.nn.functional.logsigmoid(margins) @ share
    objective = objective - (beta**2).sum(1) / (2 * 0.7 * data.weight.sum())
    (slope,) = torch.autograd.grad(objective.sum(), beta)
    still = maximise_weights(
        data, logistic(data), beta.detach(), offset, free_offset=False, tol=0, max_iter=0
    )
    torch.testing.assert_close(still.objective, objective.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(still.slope, slope.abs().amax(1), rtol=1e-10, atol=1e-14)
    assert still.n_iter == 0
    torch.testing.assert_close(still.beta, beta.detach(), rtol=0, atol=0)


def test_offset_stays_unless_it_is_free(problem):
    data = problem()
    held = fit(data, free_offset=False)
    assert not held.offset.any()
    torch.testing.assert_close(held.scores, data.scores(held.beta, held.offset), rtol=0, atol=1e-12)


def test_few_iterations_whatever_the_scales(problem):
    """Plain L-BFGS needs hundreds when columns differ by factors of 10^6."""
    assert fit(problem(scale=1e-6), tol=1e-6).n_iter < 30
    wide = problem()
    wide = LinearScores.of(wide.inputs.Z * torch.logspace(-3, 3, 5), wide.labels, wide.weight, 1e9)
    assert fit(wide, tol=1e-6).n_iter < 30


def test_without_a_penalty_the_search_does_not_run_ahead():
    """Separable data with a column that hardly varies: it gets no weight to speak of."""
    generator = np.random.default_rng(0)
    Z = generator.normal(size=(40, 30))
    Z[:, 0] *= 1e-6
    labels = torch.from_numpy((generator.random((1, 40)) < 0.5).astype(np.int64))
    data = LinearScores.of(torch.from_numpy(Z), labels, torch.ones(40).double(), math.inf)
    found = fit(data, tol=1e-3)
    assert found.settled(1e-3)
    assert float(found.beta[0, 0].abs()) < float(found.beta[0, 1:].abs().max())


def test_constant_columns_get_no_weight(problem):
    data = problem()
    Z = torch.cat([data.inputs.Z, torch.full((200, 2), 3.0, dtype=torch.float64)], dim=1)
    for C in (1.0, math.inf):
        beta = fit(LinearScores.of(Z, data.labels, data.weight, C), tol=1e-8).beta
        assert float(beta[:, 5:].abs().max()) < 1e-8
        assert bool(beta.isfinite().all())
    nothing = LinearScores.of(torch.ones_like(data.inputs.Z), data.labels, data.weight, math.inf)
    assert not fit(nothing, tol=1e-8).beta.any()


def test_problems_together(problem):
    """A problem that is the sum of others has their solutions; one may be seen several times."""
    data = problem()
    alone = fit(data, tol=1e-8)
    joined = fit(data.joined(), tol=1e-8)
    assert joined.objective.shape == joined.slope.shape == (1,)
    torch.testing.assert_close(joined.objective[0], alone.objective.sum(), rtol=1e-10, atol=0)
    largest = float(alone.beta.abs().max())
    torch.testing.assert_close(joined.beta, alone.beta, rtol=0, atol=1e-4 * largest)
    labels = data.labels.repeat(2, 1)

    def log_probability(scores):
        value, first, _ = LogLoss().log_probabilities(scores)
        return tuple(torch.where(labels == 1, each[1], each[0]) for each in (value, first))

    zero = torch.zeros((6, 5), dtype=torch.float64)
    both = maximise_weights(
        data.joined(), log_probability, zero, zero[:, 0], free_offset=True, tol=1e-8,
        max_iter=500, strength=torch.tensor([1.0, 1, 1, 4, 4, 4], dtype=torch.float64),
    )  # fmt: skip
    expected = torch.cat([alone.beta, fit(problem(C=0.7 / 4), tol=1e-8).beta])
    torch.testing.assert_close(both.beta, expected, rtol=0, atol=1e-4 * largest)


def test_scores_that_are_given_stay_as_they_are(problem):
    data = problem()
    zero = torch.zeros((3, 5), dtype=torch.float64)
    scores = data.scores(zero, zero[:, 0])
    before = scores.clone()
    found = fit(data, tol=1e-6, scores=scores)
    assert found.n_iter > 2
    torch.testing.assert_close(scores, before, rtol=0, atol=0)
    expected = data.scores(found.beta, found.offset)
    torch.testing.assert_close(found.scores, expected, rtol=0, atol=1e-9)


def test_search_reports_what_is_left(problem):
    short = fit(problem(), max_iter=2)
    assert short.n_iter == 2
    assert float(short.slope.max()) > 1e-10
    assert bool((short.objective > short.start).all())


def test_what_is_settled_does_not_depend_on_units(problem):
    """In tiny numbers slopes are tiny, whatever is left to gain."""
    large = problem(C=math.inf)
    small = LinearScores.of(1e-8 * large.inputs.Z, large.labels, large.weight, math.inf)
    tol = 1e-3
    for data in (large, small):
        settled = [fit(data, tol, free_offset=False, max_iter=n).settled(tol) for n in (1, 500)]
        assert settled == [False, True]
    assert float(fit(small, free_offset=False, max_iter=1).slope.max()) < tol


@pytest.mark.parametrize("step", [1, 3])
def test_few_rows_have_the_same_penalty_on_a_mean(problem, step):
    """Against scikit-learn on those rows, with a C by which the mean is penalised as before."""
    data = problem()
    few = data.every(step)
    torch.testing.assert_close(few.inputs.Z, data.inputs.Z[::step], rtol=0, atol=0)
    found = fit(few, tol=1e-8)
    C = 0.7 * float(data.weight.sum() / data.weight[::step].sum())
    model = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    for k in range(3):
        z = (data.inputs.Z - data.centre).numpy()[::step]
        model.fit(z, data.labels[k, ::step].numpy(), data.weight[::step].numpy())
        atol = 1e-4 * np.abs(model.coef_).max()
        np.testing.assert_allclose(found.beta[k], model.coef_[0], rtol=0, atol=atol)


@pytest.mark.parametrize(("few", "sizes"), [(50, [50, 200]), (20, [29, 200]), (400, [200, 200])])
def test_a_rough_fit_to_few_rows_shows_where_to_begin(problem, monkeypatch, few, sizes):
    """To an eighth of many rows, though never to few of them, and then to all, exactly."""
    monkeypatch.setattr(weight_search, "_STRIDE", 7)
    monkeypatch.setattr(weight_search, "_FEW", few)
    data = problem()
    asked = []

    def told(some):
        asked.append(len(some.inputs))
        return logistic(some)

    def curvature(scores):
        return mean_curvature(LogLoss().log_probabilities(scores)[1])

    found, seen = adapted_fit(data, told, curvature, tol=1e-8, max_iter=500)
    assert asked == sizes
    assert found.settled(1e-8)
    assert seen.coordinates.vectors.shape == (3, 5, 5)  # each problem's own
    for k in range(3):
        expected = reference(data, 0.7, k)
        atol = 1e-4 * np.abs(expected.coef_).max()
        np.testing.assert_allclose(found.beta[k], expected.coef_[0], rtol=0, atol=atol)
        np.testing.assert_allclose(found.offset[k], expected.intercept_[0], rtol=0, atol=1e-3)
    # From a start that is given there is no rough fit; nor at a tolerance no finer than its own.
    for options in ({"tol": 1e-8, "start": found}, {"tol": weight_search._ROUGH}):
        asked.clear()
        adapted_fit(data, told, curvature, max_iter=500, **options)
        assert asked == ([200] if few == 400 or "start" in options else sizes)
