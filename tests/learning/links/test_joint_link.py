"""Tests of joint sources: their scale, their priors, what rounds gain, and the covariance."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from bayesloss.learning.data.folds import Folds
from bayesloss.learning.links import joint_link
from bayesloss.learning.links.alternation import Limits, alternate
from bayesloss.learning.links.joint_link import SourceFits
from bayesloss.learning.links.softmax_joint import SoftmaxJoint
from bayesloss.learning.weights.fold_weights import FoldWeights
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.multinomial import fit_softmax

K = 3


def begin(data, classes, tol=1e-6):
    """Weights of all rows and without each of five folds, and fits of their sources."""
    fit, data = fit_softmax(data, 0.1 * tol)
    n = len(classes)
    fold = np.empty(n, dtype=np.int64)
    fold[np.argsort(classes, kind="stable")] = np.arange(n) % 5
    weights = FoldWeights(data, fit, Folds(np.arange(n), data.weight.numpy(), fold, 5), tol)
    return weights, SourceFits(data, weights.level)


def found_by(data, classes, max_iter=30, tol=1e-5):
    return alternate(*begin(data, classes, tol), Limits(tol=tol, max_iter=max_iter))


def test_temperature_scales_levels_in_the_first_round_only(classes_of):
    """Of logits, levels and all, at first; then of scores alone, about levels that are known."""
    data, classes = classes_of(bend=2.0, C=0.05)
    weights, fits = begin(data, classes)
    level = weights.level.numpy().copy()
    counts = data.weight.numpy()

    def best_scale(nu_of):
        def loss(log_t):
            log_p = log_softmax(nu_of(np.exp(log_t)), axis=0)
            return log_t**2 / 2 - counts @ log_p[classes, np.arange(len(classes))]

        return np.exp(minimize_scalar(loss, bracket=(-0.5, 0.5), tol=1e-10).x)

    x = weights.held_out().numpy().copy()
    first = fits(weights.held_out(), weights.scores)
    t = best_scale(lambda t: t * (x + level[:, None]))
    assert first.model.scale == pytest.approx(t, rel=1e-4)  # bounded searches end within 1e-5
    weights.move(first.curves)
    x = weights.held_out().numpy().copy()
    second = fits(weights.held_out(), weights.scores)
    t = best_scale(lambda s: s * x + t * level[:, None])
    assert second.model.scale == pytest.approx(t, rel=1e-4)


def test_priors_that_fall_behind_change_nothing(classes_of, monkeypatch):
    data, classes = classes_of(n=1000, bend=3.0)
    monkeypatch.setattr(joint_link, "_VARIANCES", (0.3, 1e-3))
    both = found_by(data, classes).best.fit
    monkeypatch.setattr(joint_link, "_VARIANCES", (0.3,))
    alone = found_by(data, classes).best.fit
    # Less than what ends rounds: searches in later ones begin elsewhere.
    assert both.log_evidence == pytest.approx(alone.log_evidence, abs=0.5)


def test_rounds_help(classes_of):
    """Bent sources, weights that are shrunk far too much: the loss on 4,000 new cases."""
    everything, classes = classes_of(n=4400, bend=3.0)
    data = LinearScores.of(
        everything.inputs.Z[:400], everything.labels[:, :400], torch.ones(400).double(), 0.02
    )
    new = everything.inputs.Z[400:]
    losses = []
    for max_iter in (0, 30):
        found = found_by(data, classes[:400], max_iter)
        x = found.best.beta @ (new - data.centre).T
        nu, _ = found.best.fit.curves(x)
        log_p = torch.log_softmax(nu, dim=0)
        losses.append(-float(log_p[classes[400:], torch.arange(4000)].mean()))
    assert losses[1] < losses[0] - 0.01
    assert max(found.log_evidences) > found.log_evidences[0] + 1


def test_sources_increase_and_differ_from_lines(classes_of):
    data, classes = classes_of(n=3000, bend=3.0)
    found = found_by(data, classes)
    sources = found.best.fit.model
    assert found.unsettled == ()
    assert float(sources.prior.kernel.variance) == pytest.approx(0.3)  # the evidence prefers bends
    for k in range(K):
        link = sources.link(k, found.best, data.weight)
        x = np.linspace(link.low, link.high, 100)
        steps = np.diff(link.log_odds(x))
        assert steps.min() >= 0
        assert steps[-10:].mean() / steps[:10].mean() > 2  # 9 in truth


def test_links_take_the_scores_of_weights_at_the_common_scale(classes_of):
    data, classes = classes_of(n=400, bend=2.0)
    best = found_by(data, classes).best
    sources = best.fit.model
    nu, _ = best.fit.curves(best.scores)
    for k in range(K):
        link = sources.link(k, best, data.weight)
        x = link.slope * sources.scale * best.scores[k]
        np.testing.assert_allclose(link.log_odds(x), nu[k], rtol=1e-5, atol=1e-5)
        ends = (link.low, link.high)
        assert ends == pytest.approx((float(x.min()), float(x.max())))  # none lies far out


def test_slopes_of_sources_are_in_the_scores_before_scaling(classes_of):
    """By central differences; weights are fitted along these slopes."""
    data, classes = classes_of(n=400, bend=2.0, C=0.01)
    best = found_by(data, classes, 0).best
    scale = best.fit.model.scale
    assert abs(scale - 1) > 0.2  # or the test would not see it
    inside = best.fit.model.prior.kernel.edge / scale - 1e-4
    x = best.scores.clamp(-inside, inside)
    step = 1e-5
    _, slopes = best.fit.curves(x)
    expected = (best.fit.curves(x + step)[0] - best.fit.curves(x - step)[0]) / (2 * step)
    # Differences are off by step^2, or by step where cubics of the table meet.
    torch.testing.assert_close(slopes, expected, rtol=0, atol=1e-3)


def test_covariance_is_that_of_the_curvature(classes_of):
    data, classes = classes_of()
    weights, fits = begin(data, classes)
    sources = fits(weights.held_out(), weights.scores).model
    D = sources.mode.shape[1]
    assert sources.root.shape == (K * D, K * D)
    edge = sources.prior.kernel.edge
    x = (sources.scale * weights.held_out()).clamp(-edge, edge)
    joint = SoftmaxJoint.of(
        sources.prior,
        sources.scale * weights.level,
        [sources.prior.features(row) for row in x],
        data.labels,
        data.weight,
    )
    curvature = joint.hessian(sources.mode.flatten())
    torch.testing.assert_close(
        sources.root @ sources.root.T @ curvature,
        torch.eye(K * D).double(),
        rtol=0,
        atol=1e-6,
    )
