"""The tables of settings: each row is what fitting by hand gives."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from bayesloss import LinkgisticClassifier, LogLoss, MatsushitaLoss
from bayesloss.experiments import linkgistic_settings as page
from bayesloss.experiments.linkgistic import kinked, reach

SMALL = kinked(300, 0, n_test=500)
QUICK = {"n_basis": 8, "max_iter": 3, "tol": 1e-2, "random_state": 0}


def by_hand(prior="isgp", **options):
    model = LinkgisticClassifier(prior, **(QUICK | options)).fit(SMALL.X, SMALL.y)
    p = model.predict_proba(SMALL.X_test)[:, 1]
    return model, log_loss(SMALL.y_test, p), ((p > 0.5) == SMALL.y_test).mean()


def test_c_is_the_filled_part():
    table = page.sensitivity_to_c(SMALL, (0.3, 0.6), C=10.0, **QUICK)
    model, loss, accuracy = by_hand(C=10.0, c=0.6 / reach(SMALL, 10.0))
    assert table.loc[0.6].tolist() == pytest.approx([loss, accuracy, model.n_iter_])
    assert table.loc[0.3, "log loss"] != table.loc[0.6, "log loss"]


def test_b_is_a_multiple_of_the_default():
    table = page.sensitivity_to_b(SMALL, (1.0, 4.0), C=10.0, **QUICK)
    model, loss, accuracy = by_hand("gp", C=10.0)
    assert table.loc[1.0, ["log loss", "accuracy"]].tolist() == pytest.approx([loss, accuracy])
    variance = 4 * float(model.link_.posterior.prior.kernel.variance)
    _, loss, _ = by_hand("gp", C=10.0, variance=variance)
    assert table.loc[4.0, "log loss"] == pytest.approx(loss, rel=1e-6)
    assert table["bent"].between(1, 500).all()


def test_losses_are_compared_with_the_first():
    table = page.compare_losses(SMALL, [LogLoss(), MatsushitaLoss()], C=10.0, **QUICK)
    first, loss, _ = by_hand(C=10.0)
    second, _, _ = by_hand(C=10.0, loss=MatsushitaLoss())
    gap = first.predict_proba(SMALL.X_test) - second.predict_proba(SMALL.X_test)
    assert table["difference"].tolist() == pytest.approx([0, np.abs(gap).mean()])
    assert table["log loss"].iloc[0] == pytest.approx(loss)


def test_against_logistic_regression():
    table = page.against_logistic_regression({"small": SMALL}, {"small": 10.0}, **QUICK)
    fixed = LogisticRegression(C=10.0, tol=1e-8).fit(SMALL.X, SMALL.y)
    expected = {
        "log loss, fixed link": log_loss(SMALL.y_test, fixed.predict_proba(SMALL.X_test)),
        "accuracy, fixed link": fixed.score(SMALL.X_test, SMALL.y_test),
        "log loss, learned link": by_hand(C=10.0)[1],
        "accuracy, learned link": by_hand(C=10.0)[2],
        "log loss, truth": log_loss(SMALL.y_test, expit(SMALL.odds)),
    }
    # scikit-learn's search ends at its own tolerance.
    assert table.loc["small"].to_dict() == pytest.approx(expected, rel=1e-5)
