import numpy as np
import pytest
from sklearn.metrics import log_loss

from bayesloss_book.beyond.calibration import many, many_bands, rivals


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESLOSS_CACHE", str(tmp_path))
    many._scores.cache_clear()
    many.draw.cache_clear()


def test_every_class_is_among_the_cases():
    found = many.draw("digits", "logistic", 200, 0)
    assert found.p.shape == (200, 10)
    assert set(found.y) == set(range(10))
    assert (found.truth.sum(axis=1) == 1).all()
    with pytest.raises(ValueError, match="expected at most 1000 cases of digits, got n = 2000"):
        many.draw("digits", "logistic", 2_000, 0)


def test_measures_are_scikit_learns(monkeypatch):
    found = many.draw("digits", "logistic", 200, 0)
    measured = many._measure_one("none", *found)
    labels = found.truth.argmax(axis=1)
    assert measured["log_loss"] == pytest.approx(log_loss(labels, found.test))
    assert measured["brier"] == pytest.approx(((found.test - found.truth) ** 2).sum(axis=1).mean())
    assert measured["failed"] == 0

    def broken(*_):
        return lambda t: np.full_like(t, np.nan)

    monkeypatch.setattr(rivals, "fit_many", broken)
    measured = many._measure_one("sigmoid", *found)
    assert measured["failed"] == 1
    share = np.bincount(found.y) / 200
    assert measured["log_loss"] == pytest.approx(-np.log(share[labels]).mean())


@pytest.mark.parametrize("method", rivals.MANY_STANDARD)
def test_methods_give_distributions(method):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 200)
    y = (rng.random((200, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    np.testing.assert_allclose(rivals.fit_many(method, p, y)(p).sum(axis=1), 1)


def test_bands_are_judged_by_the_truth(monkeypatch):
    """A band of everything covers all, and a narrow one elsewhere nothing."""
    cell = {"truth": "kinked", "classes": 4, "n": 200, "number": 0}
    for ends, covered in (((0.0, 1.0), 1.0), ((1.1, 1.2), 0.0)):
        monkeypatch.setattr(
            many_bands.SoftmaxCalibrator,
            "predict_interval",
            lambda self, t, level, ends=ends: tuple(np.full(t.shape, end) for end in ends),
        )
        assert many_bands.measure(**cell)["coverage"] == covered
