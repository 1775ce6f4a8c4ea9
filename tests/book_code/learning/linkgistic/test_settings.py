"""The tables of settings: each row is what fitting by hand gives."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from bayesloss import LinkgisticClassifier, PaperLink
from bayesloss_book.learning.linkgistic import settings as page
from bayesloss_book.learning.linkgistic.rounds import digit, kinked, reach

SMALL = kinked(300, 0, n_test=500)
QUICK = {"n_basis": 8, "max_iter": 3, "tol": 1e-2, "random_state": 0}


def by_hand(prior="isgp", *, C=1.0, **link):
    link = PaperLink(prior=prior, n_basis=8, random_state=0, **link)
    return judged(LinkgisticClassifier(link=link, C=C, max_iter=3, tol=1e-2))


def ours():
    return judged(LinkgisticClassifier(C=10.0))


def judged(model):
    p = model.fit(SMALL.X, SMALL.y).predict_proba(SMALL.X_test)[:, 1]
    return model, log_loss(SMALL.y_test, p), ((p > 0.5) == SMALL.y_test).mean()


def test_c_is_the_filled_part():
    table = page.sensitivity_to_c(SMALL, (0.3, 0.6), C=10.0, **QUICK)
    model, loss, accuracy = by_hand(C=10.0, c=0.6 / reach(SMALL, 10.0))
    p, q = (
        found.predict_proba(SMALL.X_test)[np.arange(len(SMALL.y_test)), SMALL.y_test]
        for found in (by_hand(C=10.0, c=0.3 / reach(SMALL, 10.0))[0], model)
    )
    error = np.log(p / q).std(ddof=1) / np.sqrt(len(p))
    assert table.loc[0.6].tolist() == pytest.approx(
        [loss, accuracy, page.evidence_of(model), model.n_iter_, error]
    )
    assert page.evidence_of(model) == model.history_["log_evidence"][-1, 0]
    assert table.loc[0.3, "+-"] == 0
    assert table.loc[0.3, "log loss"] != table.loc[0.6, "log loss"]


def test_against_logistic_regression():
    table = page.against_logistic_regression({"small": SMALL}, {"small": 10.0}, **QUICK)
    fixed = LogisticRegression(C=10.0, tol=1e-8).fit(SMALL.X, SMALL.y)
    losses = [
        log_loss(SMALL.y_test, fixed.predict_proba(SMALL.X_test)),
        by_hand(C=10.0)[1],
        ours()[1],
    ]
    expected = {
        "log loss, fixed link": losses[0],
        "log loss, EM": losses[1],
        "log loss, held out": losses[2],
        "log loss, truth": log_loss(SMALL.y_test, expit(SMALL.odds)),
        "saved, EM": losses[0] - losses[1],
        "saved, held out": losses[0] - losses[2],
        "accuracy, fixed link": fixed.score(SMALL.X_test, SMALL.y_test),
        "accuracy, EM": by_hand(C=10.0)[2],
        "accuracy, held out": ours()[2],
    }
    # scikit-learn's search ends at its own tolerance.
    found = table.loc["small"].to_dict()
    errors = [found.pop(f"+-, {which}") for which in ("EM", "held out")]
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert losses[1] != losses[2]
    # The errors of means of 500 differences, by drawing them anew.
    before, *after = (
        model.predict_proba(SMALL.X_test)[np.arange(500), SMALL.y_test]
        for model in (fixed, by_hand(C=10.0)[0], ours()[0])
    )
    drawn = np.random.default_rng(0).integers(500, size=(4000, 500))
    spreads = [np.log(p / before)[drawn].mean(axis=1).std() for p in after]
    assert errors == pytest.approx(spreads, rel=0.1)


def test_fit_is_the_papers():
    assert repr(page.fit(SMALL, **QUICK).link) == "PaperLink(n_basis=8)"


@pytest.mark.filterwarnings("ignore:scores reach")
def test_measures_each_reading_on_one_split():
    found = page.measure(split=1, C=1.0, tol=1e-2, max_iter=1)
    eight = digit(8, 1)
    options = {"C": 1.0, "tol": 1e-2, "max_iter": 1, "random_state": 1}
    model = page.fit(eight, c=0.25 / reach(eight, 1.0), **options)
    assert found["evidence_0.25"] == page.evidence_of(model)
    usual = page.fit(eight, "gp", **options)
    assert found["accuracy_1"] == usual.score(eight.X_test, eight.y_test)
    assert len(found) == len(page.FILLED) + len(page.FACTORS)
