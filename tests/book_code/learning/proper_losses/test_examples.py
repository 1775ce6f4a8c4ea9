"""The measures and figures of the page on proper losses."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

from bayesloss import CompositeLoss, LogLoss
from bayesloss_book.learning.proper_losses import examples as proper_losses
from bayesloss_book.learning.proper_losses import figures


def test_tightest_instances_keep_to_the_bound_and_come_near_it():
    table = proper_losses.tightest(n_random=1000, seed=3)
    assert list(table.index) == list(proper_losses.LOSSES)
    # The least weights, by hand: 1/(u(1-u)), 2, (u(1-u))^(-3/2)/2, and 4^4/3^4 for the power 3.
    least = np.array([4, 2, 4, 4**4 / 3**4]) / 2
    assert table["half the least weight"].to_numpy() == pytest.approx(least, rel=1e-6)
    for name in ("regret", "concavity", "Fenchel-Young"):
        assert (table[name].to_numpy() >= least * (1 - 1e-6)).all()
        assert (table[name].to_numpy() <= least * 1.01).all()


def test_regret_of_the_square_loss_is_a_square():
    table = proper_losses.tightest(n_random=50, seed=0)
    assert table.loc["square", "regret"] == pytest.approx(1, rel=1e-9)


def test_bumpy_is_a_source():
    x = torch.linspace(-20, 20, 4001, dtype=torch.float64)
    assert (proper_losses.bumpy(x).diff() > 0).all()
    odd = proper_losses.bumpy(x, start=0.0)
    torch.testing.assert_close(odd, -odd.flip(0), rtol=1e-5, atol=1e-8)


def test_best_line_under_the_link_of_the_truth_is_the_truth():
    _, truth = proper_losses.skewed_truth()
    skewed = proper_losses.LOSSES["skewed log"]
    torch.testing.assert_close(proper_losses.best_line(skewed, skewed), truth, rtol=0, atol=1e-5)


def test_best_line_under_the_log_loss_is_a_logistic_regression():
    """Scikit-learn on weighted labels, without a penalty, is the other route."""
    x, truth = proper_losses.skewed_truth()
    log = proper_losses.LOSSES["log"]
    inputs = np.concatenate([x, x])[:, None]
    labels = np.repeat([1, 0], len(x))
    weights = np.concatenate([truth, 1 - truth])
    fit = LogisticRegression(C=np.inf, tol=1e-9, max_iter=1000)
    fit.fit(inputs, labels, sample_weight=weights)
    expected = fit.predict_proba(x.numpy()[:, None])[:, 1]
    np.testing.assert_allclose(proper_losses.best_line(log, log), expected, atol=1e-4)


def test_figures_are_drawn():
    composite = CompositeLoss(LogLoss(), proper_losses.bumpy)
    drawn = [
        figures.draw_losses(),
        figures.draw_bounded_link(),
        figures.draw_stationary_points(pi=0.7),
        figures.draw_diagram(composite, [0.2, 0.6]),
        figures.draw_margin_losses(composite),
        figures.draw_skew(),
    ]
    assert all(isinstance(figure, Figure) for figure in drawn)
    assert [len(figure.axes) for figure in drawn] == [4, 2, 4, 1, 2, 2]
    assert len(drawn[0].legends) == 1  # for all panels, and no second one in any
    assert not any(axis.get_legend() for axis in drawn[0].axes)
    words = " ".join(text.get_text() for text in drawn[3].axes[0].texts)
    assert "-1.39,  0.41" in words  # the logits of 0.2 and 0.6


def test_diagram_that_does_not_commute_is_refused():
    composite = CompositeLoss(LogLoss(), proper_losses.bumpy)
    composite.inverse_source = lambda a: a  # a wrong inverse
    with pytest.raises(ValueError, match="does not commute"):
        figures.draw_diagram(composite, [0.2, 0.6])
