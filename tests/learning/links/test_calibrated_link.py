"""Tests of the alternation, against other solvers and by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from link_fits import kinked
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from sklearn.linear_model import LogisticRegression

from bayesloss.learning.data.folds import Folds, content_folds, no_folds
from bayesloss.learning.data.inputs import equal_rows
from bayesloss.learning.links import calibrated_link
from bayesloss.learning.links.calibrated_link import CalibratedLink, FoldWeights, alternate
from bayesloss.learning.links.tables import HermiteTable
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import fit_fixed_link
from bayesloss.proper_losses import LogLoss

TOL = 1e-7


def problem(n=240, C=0.7, weighted=False):
    """A kinked problem, its logistic regression, and its folds."""
    X, y, _ = kinked(n)
    weight = np.ones(n)
    if weighted:
        weight = np.random.default_rng(1).uniform(0.3, 0.9, n)
    labels = torch.from_numpy((y == 1)[None].view(np.int8))
    data = LinearScores.of(torch.from_numpy(X), labels, torch.from_numpy(weight), C)
    fit, data = fit_fixed_link(data, LogLoss(), 0.1 * TOL)
    p = expit(fit.scores[0].numpy())
    folds = content_folds(equal_rows(X), y, weight, np.stack([1 - p, p], axis=1))
    return X, y, weight, data, fit, folds


@pytest.mark.parametrize("weighted", [False, True])
def test_held_out_scores_are_those_of_regressions_without_each_fold(weighted):
    X, y, weight, data, fit, folds = problem(weighted=weighted)
    weights = FoldWeights(data, fit, folds, TOL)
    assert weights.settled
    held_out = weights.held_out().numpy()
    for k in range(folds.n_folds):
        rest = folds.fold != k
        other = LogisticRegression(C=0.7, solver="newton-cholesky", tol=1e-10)
        other.fit(X[rest], y[rest], weight[rest])
        np.testing.assert_allclose(
            held_out[~rest], other.decision_function(X[~rest]), rtol=0, atol=1e-4
        )


def bend():
    """A curve of log odds as a table, and as a function."""
    nodes = torch.linspace(-30, 30, 4001, dtype=torch.float64)
    odds = 0.8 * nodes + torch.sin(nodes / 2)
    slopes = 0.8 + torch.cos(nodes / 2) / 2
    return HermiteTable(nodes, odds[None], slopes[None]), lambda x: 0.8 * x + np.sin(x / 2)


@pytest.mark.parametrize("fold", [None, 3])
def test_weights_under_a_curve_are_the_likeliest(fold):
    """SciPy's BFGS on the objective as it is written, from where the search ended."""
    X, y, weight, data, fit, folds = problem(weighted=True)
    weights = FoldWeights(data, fit, folds, TOL)
    table, curve = bend()
    before = weights.scores[0].numpy()
    weights.move(table)
    counts = weight if fold is None else weight * (folds.fold != fold)
    row = 0 if fold is None else 1 + fold
    # Back from the size that scores were brought to: s divided by t^2, weights times t.
    factor = weights.strength**-0.5
    Z = X - data.centre.numpy()

    def loss(theta):
        scores = Z @ theta[:-1] + theta[-1]
        likelihood = counts @ log_expit((2 * y - 1) * curve(scores))
        return -likelihood + theta[:-1] @ theta[:-1] / (2 * 0.7)

    found = np.append(weights.beta[row].numpy(), float(weights.offset[row])) / factor
    best = minimize(loss, found, tol=1e-9)
    np.testing.assert_allclose(found, best.x, rtol=0, atol=2e-4)
    after = weights.scores[0].numpy()
    sizes = [np.sqrt(np.cov(each, aweights=weight, ddof=0)) for each in (before, after)]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-12)
    assert abs(factor - 1) > 0.02  # or the test would not see the factor


class TestRounds:
    """What ends the rounds, and which is kept, by evidences that are given."""

    X, y, _, data, fit, folds = problem(60)

    def outcome(self, monkeypatch, evidences, max_iter=30, tol=1e-9):
        given = iter(evidences)
        monkeypatch.setattr(calibrated_link, "_log_evidence", lambda curve: next(given))
        return alternate(self.data, self.fit, self.folds, tol=tol, max_iter=max_iter)

    @pytest.mark.parametrize(
        ("evidences", "kept"),
        [
            ((-50.0, -49.8), -49.8),  # a rise of less than half a nat is the last
            ((-50.0, -50.3), -50.3),  # nobody can tell these apart: the latest
            ((-50.0, -50.7), -50.0),
            ((-50.0, -45.0, -44.0, -46.0), -44.0),
        ],
    )
    def test_a_small_rise_ends_them(self, monkeypatch, evidences, kept):
        found = self.outcome(monkeypatch, evidences)
        assert found.log_evidences == evidences
        assert found.best.log_evidence == kept
        assert found.unsettled == ()

    def test_tol_counts_a_case(self, monkeypatch):
        evidences = (-50.0, -45.0, -40.0, -39.9)
        found = self.outcome(monkeypatch, evidences, tol=0.1)  # 6 nats
        assert found.log_evidences == evidences[:2]

    def test_too_few_rounds_are_told(self, monkeypatch):
        found = self.outcome(monkeypatch, (-50.0, -45.0, -40.0), max_iter=2)
        (told,) = found.unsettled
        assert "still gained 5 nats" in told


def test_without_rounds_it_is_a_calibrated_regression():
    _, y, weight, data, fit, folds = problem()
    found = alternate(data, fit, folds, tol=TOL, max_iter=0)
    assert found.unsettled == ()
    assert found.best.offset == pytest.approx(float(fit.offset[0]))
    p = found.best.curve.predict_proba(fit.scores[0].numpy())[:, 1]
    again = expit(CalibratedLink(found.best, data.weight).log_odds(data_scores(found, data)))
    np.testing.assert_allclose(again, p, rtol=1e-9)
    held_out = FoldWeights(data, fit, folds, TOL).held_out().numpy()
    loss = -np.average(log_expit((2 * y - 1) * found.best.curve.log_odds(held_out)), weights=weight)
    assert found.best.held_out_loss == pytest.approx(loss, rel=1e-4)


def data_scores(found, data):
    """Scores as shown: on the scale of the link, without the offset."""
    link = CalibratedLink(found.best, data.weight)
    return link.slope * data.scores(found.best.beta[None])[0].numpy()


def test_log_odds_have_mean_slope_one_over_the_rows():
    _, _, weight, data, fit, folds = problem(weighted=True)
    found = alternate(data, fit, folds, tol=1e-4, max_iter=3)
    x = data_scores(found, data)
    link = CalibratedLink(found.best, data.weight)
    step = 1e-4
    slopes = (link.log_odds(x + step) - link.log_odds(x - step)) / (2 * step)
    assert np.average(slopes, weights=weight) == pytest.approx(1, rel=2e-3)  # a table's


def test_bands_of_the_link_hold_its_means():
    _, _, _, data, fit, folds = problem()
    link = CalibratedLink(alternate(data, fit, folds, tol=1e-4, max_iter=3).best, data.weight)
    x = np.linspace(link.low, link.high, 30)
    low, high = link.source_band(x, 0.9)
    assert ((low < link.source(x)) & (link.source(x) < high)).all()
    p_low, p_high = link.inverse_link_band(x, 0.9)
    np.testing.assert_allclose(p_low, expit(low))
    np.testing.assert_allclose(p_high, expit(high))
    np.testing.assert_allclose(link.inverse_link(x), expit(link.log_odds(x)))
    assert np.ndim(link.source(0.0)) == 0


def test_without_folds_scores_are_the_training_rows_own():
    _, _, weight, data, fit, _ = problem()
    weights = FoldWeights(data, fit, no_folds(weight), TOL)
    np.testing.assert_array_equal(weights.held_out().numpy(), fit.scores[0].numpy())


def test_copies_count_once_for_the_curve():
    """With thrice the weight and a third of its power, the curve is that of the plain rows."""
    _, _, weight, data, fit, folds = problem()
    plain = alternate(data, fit, folds, tol=TOL, max_iter=0)
    heavy = replace(data, weight=3 * data.weight, total=3 * data.total)
    thrice = Folds(folds.rows, 3 * weight, folds.fold, folds.n_folds, power=1 / 3)
    again = alternate(heavy, fit, thrice, tol=TOL, max_iter=0)
    assert again.best.log_evidence == pytest.approx(plain.best.log_evidence, rel=1e-6)
