"""Tests of the calibrator's link: a calibrated regression, its scale, its bands."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from link_fits import regression
from scipy.special import expit

from bayesloss import LinkCalibrator
from bayesloss.learning.data.folds import Folds
from bayesloss.learning.links.alternation import Limits, alternate
from bayesloss.learning.links.calibrated_link import CalibratedLink, CalibratorFits
from bayesloss.learning.weights.fold_weights import FoldWeights

TOL = 1e-7


def problem():
    """Labels of a kinked problem with weights, its logistic regression, and its folds."""
    _, y, _, data, fit, folds = regression(TOL, weighted=True)
    return y, data, fit, folds


def found_by(data, fit, folds, max_iter):
    weights = FoldWeights(data, fit, folds, TOL)
    fits = CalibratorFits(data, folds)
    return alternate(weights, fits, Limits(tol=1e-4, max_iter=max_iter))


def test_without_rounds_it_is_a_calibrated_regression():
    y, data, fit, folds = problem()
    held_out = FoldWeights(data, fit, folds, TOL).held_out()[0].numpy()
    calibrator = LinkCalibrator(scale="real").fit(held_out, y, data.weight.numpy())
    found = found_by(data, fit, folds, 0)
    link = CalibratedLink(found.best, data.weight)
    scores = (fit.scores - fit.offset[:, None])[0].numpy()
    p = calibrator.predict_proba(scores)[:, 1]
    np.testing.assert_allclose(link.inverse_link(link.slope * scores), p, rtol=1e-9)
    np.testing.assert_allclose(found.best.fit.values[0], calibrator.log_odds(held_out), rtol=1e-12)


def test_the_curve_that_weights_are_fitted_under_is_the_links():
    _, data, fit, folds = problem()
    best = found_by(data, fit, folds, 0).best
    x = best.scores[0]
    values, slopes = best.fit.curves(x)
    np.testing.assert_allclose(values, best.fit.model.log_odds(x.numpy()), atol=1e-6)
    step = 1e-4
    log_odds = best.fit.model.log_odds
    expected = (log_odds(x.numpy() + step) - log_odds(x.numpy() - step)) / (2 * step)
    np.testing.assert_allclose(slopes, expected, atol=0.01 * expected.max())


def test_weights_may_leave_the_scores_by_half_of_their_range():
    """The table that weights are fitted under is the curve there, too, and not a line."""
    _, data, fit, folds = problem()
    best = found_by(data, fit, folds, 0).best
    low, high = (float(end) for end in best.scores[0].aminmax())
    out = 0.49 * (high - low)
    x = torch.tensor([low - out, low - out / 2, high + out / 2, high + out], dtype=torch.float64)
    values, _ = best.fit.curves(x)
    np.testing.assert_allclose(values, best.fit.model.log_odds(x.numpy()), atol=1e-6)


def test_log_odds_have_mean_slope_one_over_the_rows():
    _, data, fit, folds = problem()
    best = found_by(data, fit, folds, 3).best
    link = CalibratedLink(best, data.weight)
    x = link.slope * data.scores(best.beta)[0].numpy()
    step = 1e-4
    slopes = (link.log_odds(x + step) - link.log_odds(x - step)) / (2 * step)
    mean = np.average(slopes, weights=data.weight.numpy())
    assert mean == pytest.approx(1, rel=2e-3)  # a table's
    assert (link.low, link.high) == pytest.approx((x.min(), x.max()))


def test_bands_of_the_link_hold_its_means():
    _, data, fit, folds = problem()
    link = CalibratedLink(found_by(data, fit, folds, 3).best, data.weight)
    x = np.linspace(link.low, link.high, 30)
    low, high = link.source_band(x, 0.9)
    assert ((low < link.source(x)) & (link.source(x) < high)).all()
    p_low, p_high = link.inverse_link_band(x, 0.9)
    np.testing.assert_allclose(p_low, expit(low))
    np.testing.assert_allclose(p_high, expit(high))
    np.testing.assert_allclose(link.inverse_link(x), expit(link.log_odds(x)))
    assert np.ndim(link.source(0.0)) == 0


def test_copies_count_once_for_the_curve():
    """With thrice the weight and a third of its power, the curve is that of the plain rows."""
    _, data, fit, folds = problem()
    plain = found_by(data, fit, folds, 0)
    heavy = replace(data, weight=3 * data.weight, total=3 * data.total)
    thrice = Folds(folds.rows, 3 * folds.weight, folds.fold, folds.n_folds, power=1 / 3)
    again = found_by(heavy, fit, thrice, 0)
    evidences = [found.best.fit.log_evidence for found in (plain, again)]
    assert evidences[0] == pytest.approx(evidences[1], rel=1e-6)


def test_groups_count_as_far_as_their_errors_agree():
    """As for a calibrator that is told the groups: here rows of one label and near scores."""
    y, data, fit, folds = problem()
    groups = np.lexsort((fit.scores[0].numpy(), y)).argsort() // 6
    found = found_by(data, fit, replace(folds, groups=groups), 0)
    held_out = FoldWeights(data, fit, folds, TOL).held_out()[0].numpy()
    expected = LinkCalibrator(scale="real").fit(held_out, y, data.weight.numpy(), groups)
    assert found.best.fit.model.power_ == expected.power_ < 0.5
    np.testing.assert_array_equal(found.best.fit.values[0], expected.log_odds(held_out))
