"""Simulated truths of many classes, and how often a band holds them."""

import numpy as np
import pytest
from scipy.special import softmax

from bayesloss_book.beyond.calibration import many_bands


@pytest.mark.parametrize("truth", many_bands.TRUTHS)
@pytest.mark.parametrize("k", many_bands.CLASSES)
def test_truths_are_probabilities(truth, k):
    z = np.random.default_rng(0).normal(size=(50, k))
    p = many_bands.TRUTHS[truth](z)
    assert p.shape == z.shape
    assert (p > 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert np.allclose(p, softmax(z, axis=1)) == (truth == "as it is")


def test_a_measure_is_a_share_and_comes_again(monkeypatch):
    """Counted again by what the band was asked for: of 15 in 100 labels any may be true."""
    seen = []
    ask = many_bands.SoftmaxCalibrator.predict_interval

    def watched(self, scores, level):
        ends = ask(self, scores, level)
        truth = 0.15 / 4 + 0.85 * scores
        seen.append(((ends[0] <= truth) & (truth <= ends[1])).mean())
        return ends

    monkeypatch.setattr(many_bands.SoftmaxCalibrator, "predict_interval", watched)
    cell = {"truth": "wrong labels", "classes": 4, "n": 200, "number": 0}
    found = many_bands.measure(**cell)
    assert found["coverage"] == pytest.approx(seen[0], rel=1e-12) != 1
    assert found == many_bands.measure(**cell)
    assert 0 < found["width"] < 0.5
    other = many_bands.measure(**cell | {"n": 1_000})
    assert other["width"] < found["width"]  # more data, less doubt
