import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import brier_score_loss, log_loss

from bayesloss_book.beyond.calibration import benchmark, rivals
from bayesloss_book.data.score_sets import Draw


def test_seconds_are_measured_where_asked_for():
    cell = {"data": "votes", "task": "curve", "model": "curve", "n": 200, "number": 0}
    plain = benchmark.measure(methods=["sigmoid"], **cell)
    timed = benchmark.measure(methods=["sigmoid"], timed=True, **cell)
    assert timed.keys() - plain.keys() == {"sigmoid: fit_seconds", "sigmoid: predict_seconds"}
    assert plain == {name: timed[name] for name in plain}
    assert timed["sigmoid: fit_seconds"] > 0


def test_measures_of_labels_are_scikit_learns():
    rng = np.random.default_rng(0)
    s = rng.normal(size=100)
    t = rng.normal(size=500)
    y, truth = ((rng.random(len(x)) < expit(x)).astype(float) for x in (s, t))
    found = benchmark.measure_one("none", Draw(s, y, t, truth, False))
    assert found["log_loss"] == pytest.approx(log_loss(truth, expit(t)))
    assert found["brier"] == pytest.approx(brier_score_loss(truth, expit(t)))
    assert found["failed"] == 0


def test_measures_of_probabilities_are_expectations():
    """Of the log loss and the Brier score over labels, by Monte Carlo, four standard errors."""
    rng = np.random.default_rng(0)
    t = rng.normal(size=2_000)
    truth = expit(2 * t)
    found = benchmark.measure_one("none", Draw(t, (truth > 0.5).astype(float), t, truth, False))
    draws = (rng.random((200, len(t))) < truth).astype(float)
    losses = [log_loss(y, expit(t)) for y in draws]
    assert found["log_loss"] == pytest.approx(np.mean(losses), abs=4 * np.std(losses) / 200**0.5)
    losses = [brier_score_loss(y, expit(t)) for y in draws]
    assert found["brier"] == pytest.approx(np.mean(losses), abs=4 * np.std(losses) / 200**0.5)


def test_a_method_that_fails_is_counted(monkeypatch):
    s = np.linspace(-1, 1, 20)
    y = (s > 0.5).astype(float)

    def broken(method, *_):
        if method == "beta":
            raise ZeroDivisionError
        if method == "isotonic":
            raise ImportError("no such package")
        return lambda t: np.where(t > 0, np.nan, 1 + 1e-9)

    monkeypatch.setattr(rivals, "fit", broken)
    found = benchmark.measure_one("beta", Draw(s, y, s, y, False))
    assert found["failed"] == 1
    assert found["brier"] == pytest.approx(((y.mean() - y) ** 2).mean())
    assert benchmark.measure_one("sigmoid", Draw(s, y, s, y, False))["failed"] == 0.5
    with pytest.raises(ImportError):  # of the environment, not of the method
        benchmark.measure_one("isotonic", Draw(s, y, s, y, False))


def test_coverage_counts_the_test_scores_whose_truth_is_in_the_band():
    """A truth that is never in the band, and one that always is."""
    rng = np.random.default_rng(0)
    s = rng.normal(size=300)
    y = (rng.random(300) < expit(s)).astype(float)
    middle = rivals.fit(rivals.OURS, s, y, False)(s)
    for truth, share in ((middle, 1.0), (np.clip(middle + 0.4, 0, 1), 0.0)):
        found = benchmark.measure_one(rivals.OURS, Draw(s, y, s, truth, False), known=True)
        assert found["coverage"] == pytest.approx(share, abs=0.02)
        assert 0 < found["width"] < 0.4
    assert np.isnan(benchmark.measure_one(rivals.OURS, Draw(s, y, s, y, False))["coverage"])
