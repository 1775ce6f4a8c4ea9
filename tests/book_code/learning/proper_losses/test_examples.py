import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from bayesloss import CompositeLoss, LogLoss
from bayesloss_book.learning.proper_losses import examples as proper_losses
from bayesloss_book.learning.proper_losses import figures


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


def test_diagram_that_does_not_commute_is_refused():
    composite = CompositeLoss(LogLoss(), proper_losses.bumpy)
    composite.inverse_source = lambda a: a  # a wrong inverse
    with pytest.raises(ValueError, match="does not commute"):
        figures.draw_diagram(composite, [0.2, 0.6])
