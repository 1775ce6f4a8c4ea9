"""Tests of approximate leave-one-out scores against fits that leave data out."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from bayesloss import LogLoss
from bayesloss.learning.weights import leave_one_out
from bayesloss.learning.weights.leave_one_out import LeaveOneOut
from bayesloss.learning.weights.linear_scores import LinearScores


def problem(n=120, d=6, C=0.5, seed=0, weight=None):
    generator = np.random.default_rng(seed)
    z = generator.normal(size=(n, d)) * np.geomspace(1, 30, d) + 5
    z[:, 1] = 3.0  # a constant column
    odds = (z - z.mean(0)) @ (generator.normal(size=d) / np.geomspace(1, 30, d))
    labels = (generator.random((1, n)) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    weight = np.ones(n) if weight is None else weight
    return LinearScores.of(*(torch.from_numpy(a) for a in (z, labels, weight)), C)


def leverages(held, curvature):
    """The h_n, (1, n), from what is told of data of weight 1 with these curvatures."""
    size = curvature.sqrt()
    found = held.influences({0: torch.stack([-size, size])})[0]
    return (found.leverage / (1 + found.copies * curvature * found.leverage))[None]


def exact_leverages(data, curvature):
    """By the whole Hessian, and its inverse."""
    Z = data.inputs.Z - data.centre
    H = Z.T @ ((data.weight * curvature)[:, None] * Z)
    ridge = data.ridge * data.total
    H.diagonal().add_(ridge or leave_one_out._DAMPING * H.diagonal()).clamp_min_(1e-9)
    return ((Z @ torch.linalg.inv(H)) * Z).sum(1)


def fitted(data, C, without=None):
    """Scores of all data from scikit-learn's fit without the offset, some data left out.

    What is left has a centre of its own.
    """
    Z, labels = (data.inputs.Z - data.centre).numpy(), data.labels[0].numpy()
    weight = data.weight.numpy().copy()
    if without is not None:
        weight[without] = 0
    model = LogisticRegression(
        C=C, fit_intercept=False, solver="newton-cholesky", tol=1e-12, max_iter=1000
    )
    kept = weight > 0
    centre = np.average(Z, axis=0, weights=weight)
    return Z @ model.fit(Z[kept] - centre, labels[kept], weight[kept]).coef_[0]


def held_out(data, scores, groups=None):
    scores = torch.from_numpy(scores)
    slopes = LogLoss().log_probabilities(scores)[1]
    groups = None if groups is None else torch.from_numpy(groups)
    return LeaveOneOut(data, 0, groups).held_out_scores(scores[None], [slopes])[0].numpy()


@pytest.fixture
def exact(monkeypatch):
    """All leverages computed, from all data."""
    monkeypatch.setattr(leave_one_out, "_SKETCH", 1000)
    monkeypatch.setattr(leave_one_out, "_DRAWN", 10**6)


@pytest.mark.parametrize(("n", "d"), [(120, 6), (40, 90)])
@pytest.mark.usefixtures("exact")
def test_close_to_fits_that_leave_a_datum_out(n, d):
    """More data than columns, and fewer. One Newton step: errors are of second order."""
    data = problem(n=n, d=d)
    scores = fitted(data, 0.5)
    found = held_out(data, scores)
    truth = np.array([fitted(data, 0.5, without=[i])[i] for i in range(n)])
    moved = truth - scores
    assert np.abs(moved).max() > 0.3
    assert np.abs(found - truth).mean() < 0.1 * np.abs(moved).mean()
    assert np.corrcoef(found, truth)[0, 1] > 0.99


@pytest.mark.usefixtures("exact")
def test_exact_for_squares():
    """With the slopes of a Gaussian likelihood, y - x and -1, a Newton step leaves one out."""
    data = problem(C=0.5)
    Z, y = (data.inputs.Z - data.centre).numpy(), np.where(data.labels[0] == 1, 0.5, -0.5)
    y -= y.mean()  # then the slopes have no mean, and the centre may stay
    gram = Z.T @ Z + np.eye(6) / 0.5
    scores = Z @ np.linalg.solve(gram, Z.T @ y)

    # Slopes s_1 = 1/2 - x and s_0 = -1/2 - x do not have the product -1: two labels whose slopes
    # do, with the slope of the datum's own as it is.
    slope = torch.from_numpy(y - scores)
    slopes = torch.where(
        data.labels[0] == 1, torch.stack([-1 / slope, slope]), torch.stack([slope, -1 / slope])
    )
    held = LeaveOneOut(data)
    found = held.held_out_scores(torch.from_numpy(scores)[None], [slopes])[0].numpy()
    for i in (0, 17, 80):
        kept = np.arange(len(y)) != i
        beta = np.linalg.solve(gram - np.outer(Z[i], Z[i]), Z[kept].T @ y[kept])
        assert found[i] == pytest.approx(Z[i] @ beta, rel=1e-9, abs=1e-12)


def test_sketch_hardly_matters(monkeypatch):
    """Against all leverages computed: a sixth of the shift, as a sketch of 64 directions has it."""
    data = problem(n=3000, d=100)
    scores = fitted(data, 0.5)
    fast = held_out(data, scores) - scores
    monkeypatch.setattr(leave_one_out, "_SKETCH", 1000)
    slow = held_out(data, scores) - scores
    assert 0 < np.abs(fast - slow).sum() / np.abs(slow).sum() < 3 * math.sqrt(2 / 64)


@pytest.mark.parametrize("C", [0.5, math.inf])
def test_leverages_from_a_sample_of_rows(monkeypatch, C):
    """A tenth of the rows, and weights and curvatures that differ by a factor of 100.

    With m = 640 rows for d = 40 columns the error of one is sqrt(2 / (m - d)), 6 %, or less; were
    the bias of an inverse not corrected, the mean would be off by d / (m - d), 7 %.
    """
    generator = np.random.default_rng(3)
    weight = np.geomspace(1, 10, 6000)[generator.permutation(6000)]
    data = problem(n=6000, d=40, C=C, weight=weight)
    curvature = torch.from_numpy(np.geomspace(0.02, 0.2, 6000)[generator.permutation(6000)])
    monkeypatch.setattr(leave_one_out, "_DRAWN", 640)
    ratio = leverages(LeaveOneOut(data, seed=0), curvature) / exact_leverages(data, curvature)
    assert float(ratio.std()) < 0.1
    assert float(ratio.mean()) == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("drawn", [300, 301])
def test_as_many_data_as_would_be_drawn_are_all_taken(drawn, monkeypatch):
    """Then H is no estimate, and its inverse needs no correction: leverages are exact."""
    monkeypatch.setattr(leave_one_out, "_DRAWN", drawn)
    monkeypatch.setattr(leave_one_out, "_DRAWN_BY_COLUMN", 1)
    data = problem(n=300, d=6)
    curvature = torch.linspace(0.02, 0.2, 300, dtype=torch.float64)
    found = leverages(LeaveOneOut(data, seed=0), curvature)
    torch.testing.assert_close(found[0], exact_leverages(data, curvature), rtol=1e-9, atol=0)


def test_rows_that_are_sure_to_be_drawn_bias_no_leverage(monkeypatch):
    """300 rows of 6,000 are so long that all of them are drawn: they have 38 % of the chances.

    On average over orders of the rows a leverage is the exact one. Were the chances of all rows
    taken for equal in the correction of the inverse, it would be 2.5 % less.
    """
    monkeypatch.setattr(leave_one_out, "_DRAWN", 640)
    curvature = torch.full((6000,), 0.2, dtype=torch.float64)
    ratios = []
    for seed in range(8):
        generator = np.random.default_rng(seed)
        z = generator.normal(size=(6000, 40))
        z[generator.permutation(6000)[:300]] *= math.sqrt(40)
        labels = (generator.random((1, 6000)) < 0.5).astype(np.int64)
        data = LinearScores.of(*(torch.from_numpy(a) for a in (z, labels, np.ones(6000))), 0.5)
        found = leverages(LeaveOneOut(data, seed=0), curvature)
        ratios.append(float((found / exact_leverages(data, curvature)).mean()))
    # Four standard errors, which are 0.003.
    torch.testing.assert_close(float(np.mean(ratios)), 1.0, rtol=0, atol=0.012)


@pytest.mark.usefixtures("exact")
def test_a_weighted_datum_is_left_out_whole():
    """As a fit without it has it; leaving out one of its two copies moves half as far."""
    weight = np.ones(120)
    weight[:30] = 2
    data = problem(weight=weight)
    scores = fitted(data, 0.5)
    found = held_out(data, scores)
    truth = np.array([fitted(data, 0.5, without=[i])[i] for i in range(30)])
    assert np.abs(found[:30] - truth).mean() < 0.1 * np.abs(truth - scores[:30]).mean()


def test_shares_of_heavy_data_are_exact_with_a_sketch():
    """A hundred columns and ten rows of weight ten: no sixth of an error for those."""
    weight = np.ones(4000)
    weight[:10] = 10
    data = problem(n=4000, d=100, weight=weight)
    scores = 0.01 * fitted(data, 0.5)  # nearly the same curvature everywhere
    found = scores - held_out(data, scores)
    Z = (data.inputs.Z - data.centre).numpy()
    p = 1 / (1 + np.exp(-scores))
    H = (Z.T * (weight * p * (1 - p))) @ Z + 2 * np.eye(100)
    h = weight * np.einsum("ij,ij->i", Z, np.linalg.solve(H, Z.T).T)
    slope = data.labels[0].numpy() - p
    expected = h * (slope - np.average(slope, weights=weight)) / (1 - h * p * (1 - p))
    np.testing.assert_allclose(found[:10], expected[:10], rtol=1e-9)
    assert np.abs(found / expected - 1)[10:].max() > 0.05  # the others' are estimated


GROUPS = np.repeat(np.arange(30), [1] * 8 + [2] * 8 + [3] * 8 + [12] * 6)  # 120 data


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("d", [6, 90])
def test_close_to_fits_that_leave_a_group_out(d):
    """Smaller and larger than the number of columns."""
    C = 0.5 if d < 120 / 2 else 0.01  # so that a group is no large part of what is known
    data = problem(d=d, C=C)
    groups = np.random.default_rng(1).permutation(GROUPS)
    scores = fitted(data, C)
    found = held_out(data, scores, groups)
    truth = np.empty(120)
    for g in range(30):
        members = np.flatnonzero(groups == g)
        truth[members] = fitted(data, C, without=members)[members]
    moved = truth - scores
    assert np.abs(moved).max() > 0.3
    assert np.abs(found - truth).mean() < 0.15 * np.abs(moved).mean()
    alone = held_out(data, scores)  # one datum at a time: too little
    assert np.abs(found - truth).mean() < 0.5 * np.abs(alone - truth).mean()


def test_units_of_the_columns_do_not_matter_without_a_penalty():
    data = problem(C=math.inf)
    units = torch.tensor([1e6, 1, 1e-3, 1, 10, 1], dtype=torch.float64)
    other = LinearScores.of(data.inputs.Z * units, data.labels, data.weight, math.inf)
    scores = np.random.default_rng(0).normal(size=120)
    np.testing.assert_allclose(held_out(other, scores), held_out(data, scores), rtol=1e-7)


def test_what_goes_a_part_of_the_way_is_shifted_by_that_part():
    """Between two fits held-out scores are those between; what does not change stays."""
    data = problem()
    slopes = LogLoss().log_probabilities(torch.from_numpy(fitted(data, 0.5)))[1]
    held = LeaveOneOut(data)
    first = held.influences({0: slopes})
    again = held.influences({0: slopes}, first, step=[0.3])
    torch.testing.assert_close(again[0].shift, first[0].shift)
    # With the slopes' signs turned, all shifts are; half the way there is none.
    between = held.influences({0: -slopes}, first, step=[0.5])[0].shift
    torch.testing.assert_close(between, 0 * between, rtol=0, atol=1e-12)


def test_no_curvature_no_shift():
    data = problem()
    scores = torch.from_numpy(fitted(data, 0.5))
    found = LeaveOneOut(data).held_out_scores(scores[None], [torch.zeros((2, 120)).double()])
    torch.testing.assert_close(found[0], scores, rtol=0, atol=0)


@pytest.mark.parametrize("groups", [None, np.arange(120) // 2])
def test_what_is_not_finite_is_refused(groups):
    data = problem()
    slopes = LogLoss().log_probabilities(torch.zeros(120).double())[1]
    slopes[:, 7] = math.nan
    held = LeaveOneOut(data, 0, None if groups is None else torch.from_numpy(groups))
    with pytest.raises(torch.linalg.LinAlgError, match="expected H positive definite"):
        held.influences({0: slopes})


class TestStale:
    """Where it costs much, H is formed when curvatures have changed by a tenth."""

    data = problem(C=0.01)

    def rounds(self, curvatures, monkeypatch, cheap=0):
        """The shifts of scores whose log probabilities have these curvatures, and who formed H."""
        monkeypatch.setattr(leave_one_out, "_CHEAP", cheap)
        held, before, shifts, formed = LeaveOneOut(self.data), {}, [], []
        for now, curvature in enumerate(curvatures):
            size = curvature.expand(120).sqrt()
            found = held.influences({0: torch.stack([-size, size])}, before)
            shifts.append(-found[0].shift)
            if not before or found[0].leverage is not before[0].leverage:
                formed.append(now)
            before = found
        return torch.stack(shifts), formed

    def test_when(self, monkeypatch):
        even = torch.full((120,), 0.1, dtype=torch.float64)
        bent = torch.where(torch.arange(120) % 2 == 0, 0.8, 1.2) * even
        curvatures = [even, even, 1.02 * even, 0.5 * even, 0.5 * even, 0.5 * bent]
        assert self.rounds(curvatures, monkeypatch)[1] == [0, 3, 5]
        assert self.rounds(curvatures, monkeypatch, 2**30)[1] == [0, 1, 2, 3, 4, 5]

    def test_in_between(self, monkeypatch):
        """A tenth more curvature, and a penalty that makes up most of H in some directions only."""
        even = torch.full((120,), 0.1, dtype=torch.float64)
        curvatures = [even, 1.1 * even]
        found, formed = self.rounds(curvatures, monkeypatch)
        assert formed == [0]
        exact, _ = self.rounds(curvatures, monkeypatch, 2**30)
        # Leverages differ by a tenth where the data make up all of H, by nothing where the penalty.
        assert float((found[1] - exact[1]).norm() / exact[1].norm()) < 0.05


def test_a_sample_counts_the_weights_that_data_determine(monkeypatch):
    """Half of 40, where the penalty is as large as the data's curvature; from 120 rows of 4,000.

    On average over orders of the rows leverages are exact. Were the inverse corrected as if the
    data determined all 40 weights, they would be a tenth too small; not at all, 9 % too large.
    """
    monkeypatch.setattr(leave_one_out, "_DRAWN", 120)
    monkeypatch.setattr(leave_one_out, "_DRAWN_BY_COLUMN", 1)
    curvature, ratios = torch.full((4000,), 0.25, dtype=torch.float64), []
    for seed in range(12):
        generator = np.random.default_rng(seed)
        z = generator.normal(size=(4000, 40)) + 2 * generator.normal(size=(4000, 1))
        labels = (generator.random((1, 4000)) < 0.5).astype(np.int64)
        data = LinearScores.of(*(torch.from_numpy(a) for a in (z, labels, np.ones(4000))), 1e-3)
        found = leverages(LeaveOneOut(data, seed=0), curvature)
        ratios.append(float((found / exact_leverages(data, curvature)).mean()))
    # The correction is of first order: 1.4 % are left, with a standard error of 0.2 %.
    torch.testing.assert_close(float(np.mean(ratios)), 1.0, rtol=0, atol=0.03)


@pytest.mark.parametrize("cells", [1, 10_000])
@pytest.mark.parametrize("d", [6, 90])
def test_groups_in_blocks(cells, d, monkeypatch):
    """As rows of the inverse of H say: slopes of a group move its scores by h / (1 - h d)."""
    monkeypatch.setattr(leave_one_out, "_CELLS", cells)
    data = problem(d=d, C=0.01, weight=np.random.default_rng(2).uniform(0.5, 1.0, 120))
    groups = np.random.default_rng(1).permutation(GROUPS)
    scores = 0.1 * fitted(data, 0.01)
    found = held_out(data, scores, groups)
    Z, weight = (data.inputs.Z - data.centre).numpy(), data.weight.numpy()
    p = 1 / (1 + np.exp(-scores))
    H = (Z.T * (weight * p * (1 - p))) @ Z + 100 * np.eye(d)
    for g in range(30):
        own = np.flatnonzero(groups == g)
        rest = H - (Z[own].T * (weight * p * (1 - p))[own]) @ Z[own]  # without the group's
        slope = data.labels[0].numpy() - p
        slopes = weight[own] * (slope - np.average(slope, weights=weight))[own]
        moved = Z[own] @ np.linalg.solve(rest, Z[own].T @ slopes)
        np.testing.assert_allclose(scores[own] - found[own], moved, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("cells", [1, 2**23])
def test_problems_together(cells, monkeypatch):
    """As alone, to single precision, in which a product for several is seen."""
    monkeypatch.setattr(leave_one_out, "_CELLS", cells)
    one = problem(n=200, d=8)
    labels = torch.cat([one.labels, 1 - one.labels, one.labels.roll(3, 1)])
    data = LinearScores.of(one.inputs, labels, one.weight, 0.5)
    scores = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 200)))
    slopes = {k: LogLoss().log_probabilities(scores[k])[1] for k in range(3)}
    held, strength = LeaveOneOut(data), [1.0, 2.0, 0.5]
    both = held.influences({k: slopes[k] for k in (2, 0)}, None, strength)
    assert sorted(both) == [0, 2]
    for k in both:
        alone = held.influences({k: slopes[k]}, None, strength)
        torch.testing.assert_close(both[k].shift, alone[k].shift, rtol=1e-5, atol=1e-6)
