"""The benchmark: its measures by another route."""

import numpy as np
import pytest

from bayesloss_book.beyond.sparse_means import benchmark
from bayesloss_book.beyond.sparse_means.problems import draw
from bayesloss_book.beyond.sparse_means.rivals import OURS, fit


def test_measures_are_mean_squares():
    found = benchmark.measure(
        kind="cars", shift=2.0, k=4, seed=1, methods=["least KL", OURS], n_points=10
    )
    problem = draw("cars", 2.0, 4, 1)
    model = problem.model
    fresh = problem.fresh
    b = float(model.kernel.b)
    x = model.x.numpy()
    K, own = (b * np.exp(-0.5 * ((z[:, None] - x) ** 2).sum(axis=-1)) for z in (fresh.numpy(), x))
    noisy = own + model.noise_variance * np.eye(len(own))
    posterior = K @ np.linalg.solve(noisy, model.y.numpy())
    inputs, mean = fit(OURS, problem, 4)
    decision = model.kernel(fresh, inputs) @ mean
    assert found[f"{OURS}: d_L"] == pytest.approx(((decision.numpy() - posterior) ** 2).mean())
    error = ((decision - problem.outcomes) ** 2).mean()
    assert found[f"{OURS}: error"] == pytest.approx(float(error))
    assert found["zero: d_L"] == pytest.approx((posterior**2).mean())
    assert found["posterior mean: d_L"] == 0
    assert found[f"{OURS}: d_L"] < found["least KL: d_L"]


@pytest.mark.parametrize("method", benchmark.SIZES)
def test_costs_are_of_means_that_are_right(method):
    """The noise is 0.04; a mean that had missed the function would be off by 0.5."""
    found = benchmark.measure_cost(method=method, n=500, repeat=0, k=15, n_points=60)
    assert found["error"] < 0.02
