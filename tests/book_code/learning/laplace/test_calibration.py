import numpy as np
import pandas as pd
import pytest
import torch

from bayesloss.learning.inference.laplace import laplace
from bayesloss_book.learning.laplace import calibration, figures
from bayesloss_book.problems import source_problems


def simulated_ranks(bias):
    """Ranks of a standard normal truth among 99 draws of a normal with a bias."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=400)
    ranks = (rng.normal(bias, size=(400, calibration.N_DRAWS)) < truth[:, None]).sum(axis=1)
    # The truth and the draws are exchangeable where there is no bias.
    frame = {f"rank_{place}": ranks for place in calibration.PLACES}
    return pd.DataFrame({"task": "regression", "method": "laplace", **frame})


def test_rank_test_passes_the_right_and_sees_the_wrong():
    assert figures.rank_tests(simulated_ranks(0.0))["p"].min() > 0.01
    wrong = figures.rank_tests(simulated_ranks(0.5))
    assert wrong["p"].max() < 1e-6
    assert (wrong["low"] > wrong["high"]).all()


@pytest.mark.parametrize("method", calibration.METHODS)
def test_a_small_cell_can_be_measured(method):
    found = calibration.measure(task="regression", method=method, seed=1, n=40, n_basis=4)
    assert all(0 <= found[f"rank_{place}"] <= calibration.N_DRAWS for place in calibration.PLACES)
    assert found["covered_50"] <= found["covered_80"] <= found["covered_95"]


def test_a_new_target_is_covered_as_often_as_draws_say():
    """Of 420,000 targets, 20,000 at each place: within four errors of the share of these."""
    found = calibration.measure(task="regression", method="laplace", seed=1, n=40, n_basis=4)
    Gamma, x, y = source_problems.simulate("regression", 40, 4, 1)
    prior, likelihood = source_problems.prior_and_likelihood("regression", 4)
    points = source_problems.grid()
    mean, variance = laplace(prior, likelihood, x, y).moments(points)
    noise = 1 / float(likelihood.alpha)
    errors = np.random.default_rng(0).normal(0, noise**0.5, (20_000, len(points)))
    miss = np.abs(prior.source(points, Gamma).numpy() + errors - mean.numpy())
    share = float((miss < 1.96 * np.sqrt(variance.numpy() + noise)).mean())
    error = (share * (1 - share) / errors.size) ** 0.5
    assert found["covered_new"] == pytest.approx(share, abs=4 * error)


def test_mixture_is_centred_where_it_should_be():
    """With many data the hyper-parameters are known, and all members nearly agree."""
    prior, likelihood = source_problems.prior_and_likelihood("regression", 4)
    _, x, y = source_problems.simulate("regression", 5000, 4, 0)
    posterior = laplace(prior, likelihood, x, y)
    found, weights = calibration.hyper_mixture(posterior, x, y, n_points=8)
    assert float(weights.sum()) == pytest.approx(1)
    precisions = torch.stack([member.likelihood.alpha for member in found])
    # sqrt(2 / 5000) = 0.02 is one deviation
    assert (precisions / likelihood.alpha - 1).abs().max() < 0.1


def test_mixture_refuses_labels():
    prior, likelihood = source_problems.prior_and_likelihood("classification", 4)
    _, x, y = source_problems.simulate("classification", 30, 4, 0)
    with pytest.raises(TypeError, match="Gaussian likelihood"):
        calibration.hyper_mixture(laplace(prior, likelihood, x, y), x, y)
