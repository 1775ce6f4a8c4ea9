"""Tests of the search for weights against scikit-learn and automatic differentiation."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from bayesloss import LogLoss
from bayesloss.learning import linear_scores
from bayesloss.learning.linear_scores import LinearScores, by_parts, mean_curvature, sampled
from bayesloss.learning.weight_search import adapted_fit, maximise_weights


def problem(n=200, d=5, k=3, C=0.7, seed=0, scale=1.0):
    """Inputs far from the origin, on very different scales; labels that depend on them."""
    generator = np.random.default_rng(seed)
    spread = scale * np.geomspace(1, 50, d)
    z = generator.normal(size=(n, d)) * spread + 20 * spread
    truth = generator.normal(size=(k, d)) / spread
    odds = truth @ (z - z.mean(0)).T
    labels = (generator.random((k, n)) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    weight = generator.integers(1, 4, n).astype(float)
    arrays = (torch.from_numpy(a) for a in (z, labels, weight))
    return LinearScores(*arrays, C)


def logistic(data):
    def log_probability(scores):
        value, first, _ = LogLoss().log_probabilities(scores)
        one = data.labels == 1
        return torch.where(one, value[1], value[0]), torch.where(one, first[1], first[0])

    return log_probability


def fit(data, tol=1e-10, **options):
    k, d = len(data.labels), data.Z.shape[1]
    start = (torch.zeros((k, d), dtype=torch.float64), torch.zeros(k, dtype=torch.float64))
    options = {"free_offset": True, "tol": tol, "max_iter": 500, **options}
    return maximise_weights(data, logistic(data), *start, **options)


def reference(data, C, k):
    model = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    z = (data.Z - data.centre).numpy()
    return model.fit(z, data.labels[k].numpy(), data.weight.numpy())


def test_another_centre_changes_no_weights():
    """Only what the scores are measured from, though the far row makes the mean useless."""
    data = problem()
    data.Z[0] *= 1e3
    data = LinearScores(data.Z, data.labels, data.weight, 0.7)
    near = torch.arange(200) > 0
    moved = data.centred_on(near)
    mean = np.average(data.Z[1:], axis=0, weights=data.weight[1:])
    np.testing.assert_allclose(moved.centre, mean, rtol=1e-12)
    first, second = fit(data, tol=1e-8), fit(moved, tol=1e-8)
    largest = float(first.beta.abs().max())
    torch.testing.assert_close(first.beta, second.beta, rtol=0, atol=1e-4 * largest)
    torch.testing.assert_close(first.scores, second.scores, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("n", "d", "C"), [(200, 5, 0.7), (200, 5, 1e4), (30, 60, 0.7)])
def test_agrees_with_scikit_learn(n, d, C):
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


def test_gradient_is_the_objectives():
    """The largest slope that a search of no step reports, against automatic differentiation."""
    data = problem()
    beta = torch.randn((3, 5), dtype=torch.float64, generator=torch.Generator().manual_seed(1)) / 9
    beta.requires_grad_()
    offset = torch.zeros(3, dtype=torch.float64)
    scores = (data.Z - data.centre) @ beta.T
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


def test_offset_stays_unless_it_is_free():
    data = problem()
    held = fit(data, free_offset=False)
    assert not held.offset.any()
    torch.testing.assert_close(held.scores, data.scores(held.beta, held.offset), rtol=0, atol=1e-12)


def test_coordinates_make_all_directions_alike():
    """In them the covariance of the inputs, times the level, plus the ridge is the identity."""
    data = problem(n=400)
    centred = data.Z - data.centre
    covariance = centred.T @ (centred * (data.weight / data.total)[:, None])
    curvature = data.level.mean() * covariance + data.ridge * torch.eye(5, dtype=torch.float64)
    for k in range(3):
        units = torch.zeros((5, 3, 6), dtype=torch.float64)
        units[:, k, :5] = torch.eye(5, dtype=torch.float64)
        P = torch.stack([data.weights(unit)[k, :5] for unit in units], dim=1)
        adjoint = torch.stack([data.slopes(unit)[k, :5] for unit in units])
        torch.testing.assert_close(P, adjoint, rtol=1e-12, atol=0)
        identity = torch.eye(5, dtype=torch.float64) * data.level.mean() / data.level[k]
        torch.testing.assert_close(P.T @ curvature @ P, identity, rtol=0, atol=1e-8)


def test_few_iterations_whatever_the_scales():
    """Plain L-BFGS needs hundreds when columns differ by factors of 10^6."""
    assert fit(problem(scale=1e-6), tol=1e-6).n_iter < 30
    wide = problem()
    wide = LinearScores(wide.Z * torch.logspace(-3, 3, 5), wide.labels, wide.weight, 1e9)
    assert fit(wide, tol=1e-6).n_iter < 30


def test_without_a_penalty_the_search_does_not_run_ahead():
    """Separable data with a column that hardly varies: it gets no weight to speak of."""
    generator = np.random.default_rng(0)
    Z = generator.normal(size=(40, 30))
    Z[:, 0] *= 1e-6
    labels = torch.from_numpy((generator.random((1, 40)) < 0.5).astype(np.int64))
    data = LinearScores(torch.from_numpy(Z), labels, torch.ones(40).double(), math.inf)
    found = fit(data, tol=1e-3)
    assert found.settled(1e-3)
    assert float(found.beta[0, 0].abs()) < float(found.beta[0, 1:].abs().max())


def test_constant_columns_get_no_weight():
    data = problem()
    Z = torch.cat([data.Z, torch.full((200, 2), 3.0, dtype=torch.float64)], dim=1)
    for C in (1.0, math.inf):
        beta = fit(LinearScores(Z, data.labels, data.weight, C), tol=1e-8).beta
        assert float(beta[:, 5:].abs().max()) < 1e-8
        assert bool(beta.isfinite().all())
    nothing = LinearScores(torch.ones_like(data.Z), data.labels, data.weight, math.inf)
    assert not fit(nothing, tol=1e-8).beta.any()


def test_problems_together():
    """A problem that is the sum of others has their solutions; one may be seen several times."""
    data = problem()
    alone, joined = fit(data, tol=1e-8), fit(data.joined(), tol=1e-8)
    assert joined.objective.shape == joined.slope.shape == (1,)
    torch.testing.assert_close(joined.objective[0], alone.objective.sum(), rtol=1e-10, atol=0)
    largest = float(alone.beta.abs().max())
    torch.testing.assert_close(joined.beta, alone.beta, rtol=0, atol=1e-4 * largest)
    labels = data.labels.repeat(2, 1)

    def log_probability(scores):
        value, first, _ = LogLoss().log_probabilities(scores)
        return tuple(torch.where(labels == 1, each[1], each[0]) for each in (value, first))

    zero = torch.zeros((6, 5), dtype=torch.float64)
    strength = torch.tensor([1.0, 1, 1, 4, 4, 4], dtype=torch.float64)
    both = maximise_weights(
        data.joined(), log_probability, zero, zero[:, 0], free_offset=True, tol=1e-8,
        max_iter=500, strength=strength,
    )  # fmt: skip
    stronger = fit(problem(C=0.7 / 4), tol=1e-8)
    expected = torch.cat([alone.beta, stronger.beta])
    torch.testing.assert_close(both.beta, expected, rtol=0, atol=1e-4 * largest)


@pytest.mark.parametrize("joined", [False, True])
def test_coordinates_of_each_problem(joined):
    """The way back along slopes is the adjoint; and in them the Hessians are the identity."""
    data = problem()
    generator = torch.Generator().manual_seed(0)
    rows = 4 if joined else 3
    curvature = torch.rand((rows, 200), dtype=torch.float64, generator=generator)
    data = (data.joined() if joined else data).adapted(curvature)
    x = torch.randn((2 * rows, 6), dtype=torch.float64, generator=generator)
    g = torch.randn((6, 6), dtype=torch.float64, generator=generator)
    there, back = (data.weights(x) * g).sum(), (x * data.slopes(g)).sum()
    torch.testing.assert_close(there, back, rtol=1e-10, atol=0)
    inputs = torch.cat([data.Z - data.centre, torch.ones((200, 1), dtype=torch.float64)], dim=1)
    penalty = torch.diag(torch.tensor([data.ridge] * 5 + [0.0], dtype=torch.float64))
    for k in range(rows):
        units = torch.zeros((6, rows, 6), dtype=torch.float64)
        units[:, k] = torch.eye(6, dtype=torch.float64)
        moved = torch.stack([data.weights(unit) for unit in units], dim=2)
        if joined and k < 3:  # less what all classes would have in common
            own = moved[k] * 3 / 2
            torch.testing.assert_close(moved.sum(0), 0 * own, rtol=0, atol=1e-12)
        else:
            own = math.sqrt(3) * moved[0] if joined else moved[k]
        weighed = inputs * (data.weight / data.total * curvature[k])[:, None]
        H = own.T @ (inputs.T @ weighed + penalty) @ own
        torch.testing.assert_close(H, torch.eye(6).double(), rtol=0, atol=1e-5)  # offset + 1e-6


@pytest.mark.parametrize("shape", [(7,), (8,), (3, 5), (5, 16)])
def test_a_function_of_numbers_may_be_asked_by_parts(shape, monkeypatch):
    monkeypatch.setattr(linear_scores, "_PART", 8)
    x, generator = torch.randn(shape, dtype=torch.float64), torch.Generator().manual_seed(0)
    labels = torch.randint(2, shape, dtype=torch.int8, generator=generator)
    asked = []

    def function(x, labels):
        asked.append(x.numel())
        return x.exp() * labels, labels == 1

    values, ones = by_parts(function, x, labels)
    torch.testing.assert_close(values, x.exp() * labels, rtol=0, atol=0)
    torch.testing.assert_close(ones, labels == 1)
    assert sum(asked) == x.numel()
    assert len(asked) == 1 or max(asked) <= 8


def test_scores_that_are_given_stay_as_they_are():
    """The search moves those of its own in place; where it ends they are those of the weights."""
    data = problem()
    zero = torch.zeros((3, 5), dtype=torch.float64)
    scores = data.scores(zero, zero[:, 0])
    before = scores.clone()
    found = fit(data, tol=1e-6, scores=scores)
    assert found.n_iter > 2
    torch.testing.assert_close(scores, before, rtol=0, atol=0)
    expected = data.scores(found.beta, found.offset)
    torch.testing.assert_close(found.scores, expected, rtol=0, atol=1e-9)


def test_search_reports_what_is_left():
    data = problem()
    short = fit(data, max_iter=2)
    assert short.n_iter == 2
    assert float(short.slope.max()) > 1e-10
    assert bool((short.objective > short.start).all())


@pytest.mark.parametrize("step", [1, 3])
def test_few_rows_have_the_same_penalty_on_a_mean(step):
    """Against scikit-learn on those rows, with a C by which the mean is penalised as before."""
    data = problem()
    few = data.every(step)
    torch.testing.assert_close(few.Z, data.Z[::step], rtol=0, atol=0)
    found = fit(few, tol=1e-8)
    C = 0.7 * float(data.weight.sum() / data.weight[::step].sum())
    model = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    for k in range(3):
        z = (data.Z - data.centre).numpy()[::step]
        model.fit(z, data.labels[k, ::step].numpy(), data.weight[::step].numpy())
        atol = 1e-4 * np.abs(model.coef_).max()
        np.testing.assert_allclose(found.beta[k], model.coef_[0], rtol=0, atol=atol)


def test_rows_are_drawn_in_proportion_and_stand_for_all():
    """By equal steps: each row within one of what it is to be drawn; sums have the right mean."""
    generator = np.random.default_rng(0)
    mass = generator.exponential(size=50) * (generator.random(50) < 0.8)
    for preference in (None, generator.uniform(0.2, 5, 50)):
        chance = mass * (1 if preference is None else preference)
        chance = chance / chance.sum()
        given = None if preference is None else torch.from_numpy(preference)
        rows, stands = (each.numpy() for each in sampled(torch.from_numpy(mass), 40, given))
        times = np.bincount(rows, minlength=50)
        assert np.all(np.abs(times - 40 * chance) < 1)
        assert len(rows) == 40
        assert not times[mass == 0].any()
        # What a row stands for, times how often it is expected, is its mass.
        np.testing.assert_allclose(stands * 40 * chance[rows], mass[rows], rtol=1e-12)
    rows, stands = sampled(torch.from_numpy(mass), 50)  # no fewer than there are: all
    assert rows.tolist() == list(range(50))
    np.testing.assert_array_equal(stands, mass)


def test_leverages_of_a_covariance(monkeypatch):
    """From many random directions: four fifths of the exact ones by mean 1, and a fifth."""
    monkeypatch.setattr(linear_scores, "_GLANCES", 20_000)
    data = problem()
    z = (data.Z - data.centre).numpy()
    weight = (data.weight / data.total).numpy()
    covariance = float(data.level.mean()) * (z.T * weight) @ z + data.ridge * np.eye(5)
    exact = np.einsum("nd,de,ne->n", z, np.linalg.inv(covariance), z)
    # A share of a normal square's mean over 20,000 directions has standard error 0.01.
    np.testing.assert_allclose(data.leverages(), 0.8 * exact / exact.mean() + 0.2, rtol=0.05)
    moved = data.centred_on(torch.arange(len(z)) > 0)
    assert moved.leverages() is not data.leverages()  # made anew in other coordinates


@pytest.mark.parametrize("own", [False, True])
def test_some_of_the_problems(own):
    """They keep the coordinates that they had among all."""
    data = problem()
    if own:
        curvature = torch.rand((3, 200), dtype=torch.float64, generator=torch.Generator())
        data = data.adapted(curvature)
    x = torch.randn((3, 6), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    some = data.of([2, 0])
    torch.testing.assert_close(some.weights(x[[2, 0]]), data.weights(x)[[2, 0]], rtol=0, atol=0)
    assert torch.equal(some.labels, data.labels[[2, 0]])
    assert data.of([0, 1, 2]) is data


@pytest.mark.parametrize(("few", "sizes"), [(50, [50, 200]), (20, [29, 200]), (400, [200, 200])])
def test_a_rough_fit_to_few_rows_shows_where_to_begin(monkeypatch, few, sizes):
    """To an eighth of many rows, though never to few of them, and then to all, exactly."""
    monkeypatch.setattr(linear_scores, "_STRIDE", 7)
    monkeypatch.setattr(linear_scores, "_FEW", few)
    data, asked = problem(), []

    def told(some):
        asked.append(len(some.inputs))
        return logistic(some)

    def curvature(scores):
        return mean_curvature(LogLoss().log_probabilities(scores)[1])

    found, seen = adapted_fit(data, told, curvature, tol=1e-8, max_iter=500)
    assert asked == sizes
    assert found.settled(1e-8)
    assert seen.vectors.shape == (3, 5, 5)  # each problem's own
    for k in range(3):
        expected = reference(data, 0.7, k)
        atol = 1e-4 * np.abs(expected.coef_).max()
        np.testing.assert_allclose(found.beta[k], expected.coef_[0], rtol=0, atol=atol)
        np.testing.assert_allclose(found.offset[k], expected.intercept_[0], rtol=0, atol=1e-3)
    # From a start that is given there is no rough fit; nor at a tolerance no finer than its own.
    for options in ({"tol": 1e-8, "start": found}, {"tol": linear_scores._ROUGH}):
        asked.clear()
        adapted_fit(data, told, curvature, max_iter=500, **options)
        assert asked == ([200] if few == 400 or "start" in options else sizes)


def test_hessians_are_afforded_by_their_numbers(monkeypatch):
    """K d^2 of them may be a quarter of the inputs' numbers, or so many whatever these are."""
    data = problem()  # 3 Hessians of 25 numbers, 1,000 in the inputs
    for spare, stored, afforded in [(75, 0, True), (74, 0, False), (0, 300, True), (0, 299, False)]:
        monkeypatch.setattr(linear_scores, "_SPARE", spare)
        monkeypatch.setattr(type(data.inputs), "stored", stored)
        assert data.adaptable is afforded
    monkeypatch.setattr(linear_scores, "_SPARE", 75)
    for wide, afforded in [(5, True), (4, False)]:
        monkeypatch.setattr(linear_scores, "_WIDE", wide)
        assert data.adaptable is afforded


def test_iterations_are_passes_back_over_the_inputs(monkeypatch):
    """One for the gradient where the search begins, and one an iteration."""
    data = problem()
    passes, pull_back = [], LinearScores.pull_back
    monkeypatch.setattr(
        LinearScores, "pull_back", lambda *given: passes.append(1) or pull_back(*given)
    )
    for max_iter in (0, 3, 500):
        passes.clear()
        assert fit(data, tol=1e-6, max_iter=max_iter).n_iter == len(passes) - 1
    assert 3 < len(passes) < 100


def test_curvatures_are_expected_where_nothing_is_learned():
    """The level: p (1 - p) / 4, p the share of ones by weight, and 1e-6 for one label alone."""
    data = problem()
    labels = torch.cat([data.labels, torch.ones_like(data.labels[:1])])
    data = LinearScores(data.Z, labels, data.weight, 0.7)
    p = np.average(labels.numpy(), axis=1, weights=data.weight.numpy())
    np.testing.assert_allclose(data.level, [*(p * (1 - p) / 4)[:3], 1e-6], rtol=1e-12)


def test_where_no_datum_tells_anything_coordinates_stay_finite():
    """Without curvature the penalty alone is left, and 1e-6 for the offset."""
    data = problem().adapted(torch.zeros((3, 200), dtype=torch.float64))
    moved = data.weights(torch.eye(6, dtype=torch.float64).repeat_interleave(3, 0))
    expected = torch.diag(torch.tensor([data.ridge**-0.5] * 5 + [1e3], dtype=torch.float64))
    for k in range(3):
        torch.testing.assert_close(moved[k::3].abs(), expected, rtol=1e-6, atol=1e-6)
