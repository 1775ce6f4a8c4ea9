"""Averages with rough priors and with a curve that changes nothing."""

import numpy as np
import torch

from bayesloss import LinkCalibrator
from bayesloss_book.beyond.calibration import other_averages


def test_rough_priors_are_six_more_with_the_mean_and_the_features_of_the_nine():
    more = other_averages.rough_priors(0.5, 1.0)
    nine = LinkCalibrator().fit(np.arange(20.0), np.arange(20) % 3 > 0).average_.components
    x = torch.linspace(-1, 1, 9, dtype=torch.float64)
    assert len(more) == len(nine) + 6
    for prior in more:  # one mean, and features that all share
        assert torch.allclose(prior.features(x), more[0].features(x))
        paths = prior.source(x, prior.sample(4_000, torch.Generator().manual_seed(0)))
        torch.testing.assert_close(paths.mean(dim=0), 1 + x, atol=0.15, rtol=0)  # errors to .03


def test_the_band_of_a_mixture_holds_its_share_of_curves():
    curves = np.linspace(0.2, 0.6, 400)[:, None] * np.ones(2)
    low, high = other_averages.mixed_band(curves, np.array([0.9, 0.9]), 0.0)
    assert (low < 0.21).all() and (high > 0.59).all() and (high < 0.7).all()
    _, high = other_averages.mixed_band(curves, np.array([0.9, 0.9]), 0.1)
    assert (high > 0.9).all()
    low, high = other_averages.mixed_band(curves, np.array([0.9, 0.9]), 0.99)
    np.testing.assert_allclose([low, high], 0.9)


def test_a_measure_comes_again_and_a_mixture_loses_no_more_than_its_parts_do_on_average():
    cell = {"data": "one step", "task": "curve", "model": "curve", "n": 50, "number": 1}
    found = other_averages.measure(**cell)
    assert found == other_averages.measure(**cell)
    w = found["no change: weight"]
    parts = (1 - w) * found["link: log_loss"] + w * found["none: log_loss"]
    assert 0 < w < 1
    assert found["no change: log_loss"] < parts  # -log is convex
    assert all(0 <= found[f"{name}: coverage"] <= 1 for name in ("link", "rough", "no change"))
